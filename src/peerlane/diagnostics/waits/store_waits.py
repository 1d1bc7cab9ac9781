"""The waits of this process's threads at a rendezvous."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Iterator
from typing import Any, TypeAlias

from peerlane import _core
from peerlane.errors import Deadlock

#: A wait with a time-out of so many seconds counts as one without: no program goes on after it on purpose.
NET_SECONDS: float = _core.NET_SECONDS

#: The (rank, pid) of each process that could end a wait; None while that is unknown, or if other processes could.
Standing: TypeAlias = "tuple[tuple[int, int], ...] | None"

_numbers = itertools.count(1)


class StoreWait:
    """A thread's wait at a rendezvous.

    Attributes
    ----------
    rendezvous : Rendezvous
    kind : str
        ``"key"``, ``"barrier"`` or ``"gather"``.
    key : str
    call : str
        The name of the call, for texts.
    deadline : float
        Of the monotonic clock.
    peer : int
        The only rank that could end it; -1 if the kind says which ranks could.
    is_net : bool
        Whether the time-out is so long that no program goes on after it on purpose: :data:`NET_SECONDS`.
    number : int
        Differs from the number of every other wait.
    standing : Standing
        The processes that could end it, by the server's last reply.
    sure_ns : int
        The last time for which the server has confirmed the wait.
    next_ns : int
        When to ask the server again.
    in_vain : Deadlock or None
        The error to raise, once it is known that no process will end the wait.
    is_over : bool
        Whether to raise the error now.
    """

    def __init__(
        self, rendezvous: Any, kind: str, key: str, call: str, deadline: float, peer: int = -1
    ) -> None:
        self.rendezvous, self.kind, self.key = rendezvous, kind, key
        self.call, self.deadline, self.peer = call, deadline, peer
        self.is_net = deadline - time.monotonic() >= NET_SECONDS
        self.number = next(_numbers)
        self.standing: Standing = None
        self.sure_ns = self.next_ns = 0
        self.in_vain: Deadlock | None = None
        self.is_over = False

    def check(self) -> None:
        """Raise an error if the wait must end for a reason that the server does not know."""


#: The present waits, by thread.
waiting: dict[int, StoreWait] = {}
os.register_at_fork(after_in_child=waiting.clear)


@contextlib.contextmanager
def noted(wait: StoreWait) -> Iterator[StoreWait]:
    """Keep a wait in :data:`waiting` during the block; an outer wait of the thread for the same key stays."""
    thread = threading.get_ident()
    before = waiting.get(thread)
    is_same = before is not None and (before.rendezvous, before.key) == (wait.rendezvous, wait.key)
    mine = before if before is not None and is_same else wait
    waiting[thread] = mine
    try:
        yield mine
    finally:
        if before is None:
            del waiting[thread]
        else:
            waiting[thread] = before
