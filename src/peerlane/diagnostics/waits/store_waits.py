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
    """A thread's wait at a rendezvous."""

    def __init__(
        self, rendezvous: Any, kind: str, key: str, call: str, deadline: float, peer: int = -1
    ) -> None:
        #: ``kind``: ``"key"``, ``"barrier"`` or ``"gather"``.
        self.rendezvous, self.kind, self.key = rendezvous, kind, key
        #: ``call``: the name of the call, for texts.
        #: ``deadline``: of the monotonic clock.
        #: ``peer``: the only rank that could end it; -1 if the kind says which ranks could.
        self.call, self.deadline, self.peer = call, deadline, peer
        #: Whether the time-out is so long that no program goes on after it on purpose: :data:`NET_SECONDS`.
        self.is_net = deadline - time.monotonic() >= NET_SECONDS
        self.number = next(_numbers)  #: differs from the number of every other wait
        self.standing: Standing = None  #: the processes that could end it, by the server's last reply
        #: ``sure_ns``: the last time for which the server has confirmed the wait.
        #: ``next_ns``: when to ask the server again.
        self.sure_ns = self.next_ns = 0
        #: The error to raise, once it is known that no process will end the wait.
        self.in_vain: Deadlock | None = None
        self.is_over = False  #: whether to raise the error now

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
