"""Which threads of this process wait at a rendezvous, and for what."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from peerlane.errors import Deadlock

#: Ranks and processes that could end a wait; None: others could, too.
Standing: TypeAlias = "tuple[tuple[int, int], ...] | None"

#: Called again and again by threads that wait, with what they wait for; what it raises ends the wait.
while_waiting: Callable[[StoreWait], None] | None = None

_numbers = itertools.count(1)


class StoreWait:
    """A thread that waits at a rendezvous.

    Attributes
    ----------
    line : Rendezvous
    kind : str
        ``"key"``, ``"barrier"`` or ``"gather"``.
    key : str
    call : str
        For texts.
    deadline : float
        Of the monotonic clock.
    peer : int
        The rank that alone could end it; -1: whoever could by the kind.
    number : int
        Unlike all others'.
    standing : Standing
        Who could end it, as the server said last.
    sure_ns : int
        It waited then, as the server said.
    next_ns : int
        When the server is to be asked again.
    in_vain : Deadlock or None
        What to tell, once it is known that nobody will end it.
    is_over : bool
        Whether to tell it now.
    """

    def __init__(self, line: Any, kind: str, key: str, call: str, deadline: float, peer: int = -1) -> None:
        self.line, self.kind, self.key = line, kind, key
        self.call, self.deadline, self.peer = call, deadline, peer
        self.number = next(_numbers)
        self.standing: Standing = None
        self.sure_ns = self.next_ns = 0
        self.in_vain: Deadlock | None = None
        self.is_over = False


#: Those, by thread.
waiting: dict[int, StoreWait] = {}
os.register_at_fork(after_in_child=waiting.clear)


@contextlib.contextmanager
def noted(wait: StoreWait) -> Iterator[StoreWait]:
    """Note that this thread waits meanwhile, unless it has noted that it waits for the same already."""
    thread = threading.get_ident()
    before = waiting.get(thread)
    is_same = before is not None and (before.line, before.key) == (wait.line, wait.key)
    mine = before if before is not None and is_same else wait
    waiting[thread] = mine
    try:
        yield mine
    finally:
        if before is None:
            del waiting[thread]
        else:
            waiting[thread] = before
