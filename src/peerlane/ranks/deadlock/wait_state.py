"""The waits of this process's threads and streams, at a moment at which none of them can go on."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from peerlane.diagnostics import call_site, progress
from peerlane.diagnostics import wait_state as streams_wait
from peerlane.errors import FailedBefore, RankWait, ThreadWait, WaitState

if TYPE_CHECKING:
    from peerlane.ranks.session import Session

SOON_SECONDS = 2.0  # waits whose deadline comes within this time are left to end by it

_MOST_WAITS = 8  # waits that a text names
_MOST_FAILURES = 4


class Awaited(NamedTuple):
    """The rank that should record a notify: its group, and the pid of its process."""

    group: str
    rank: int
    peer: int
    pid: int


#: The notifies of this process's channels that it can wait for, by id.
awaited: dict[int, Awaited] = {}


class Coming:
    """A thread that waits at the rendezvous for a peer's message.

    Attributes
    ----------
    group : Session
    call : str
    peer : int
    deadline : float
        A time of the monotonic clock.
    number : int
        A number that no other wait of the process has.
    quiet_ns : int
        A time until which the message had not come.
    verdict : (str, WaitState) or None
        The deadlock that ends the wait, once it is known that the peer will not come.
    """

    def __init__(self, group: Session, call: str, peer: int, deadline: float) -> None:
        self.group, self.call, self.peer, self.deadline = group, call, peer, deadline
        self.number = next(_numbers)
        self.quiet_ns, self._slice_ns = 0, time.monotonic_ns()
        self.verdict: tuple[str, WaitState] | None = None

    def has_waited(self) -> None:
        """Note that no message has come since the last call."""
        self.quiet_ns, self._slice_ns = self._slice_ns, time.monotonic_ns()


#: The threads that wait at the rendezvous.
coming: dict[int, Coming] = {}
_numbers = itertools.count(1)


@contextmanager
def waiting_for(group: Session, call: str, peer: int, deadline: float) -> Iterator[Coming]:
    """Note that this thread waits for a peer during the block."""
    one = coming[threading.get_ident()] = Coming(group, call, peer, deadline)
    try:
        yield one
    finally:
        del coming[threading.get_ident()]


class Waits:
    """The waits of this process at a moment at which it could not go on.

    Attributes
    ----------
    token : int
        Changes when anything happens.
    sure_ns : int
        A time until which it certainly could not go on.
    """

    def __init__(self, before: int, found: progress.NoProgress) -> None:
        self._found = found
        self._coming = dict(coming)
        numbers = tuple(each.number for each in self._coming.values())
        self.token = hash((found.token, numbers))
        self.sure_ns = min([before, *(each.quiet_ns for each in self._coming.values())])

    @classmethod
    def now(cls) -> Waits | None:
        """Return the waits of this process, None if a thread or stream of it may go on."""
        before, now = time.monotonic_ns(), time.monotonic()
        if any(each.deadline < now + SOON_SECONDS for each in coming.values()):
            return None
        found = progress.NoProgress.now(coming)
        return cls(before, found) if found is not None else None

    def peers(self, group: Session) -> list[int] | None:
        """Return the ranks of a group that could end these waits; None if other processes could."""
        found = set()
        by_pid: dict[int, int] = {}
        for member in group.members:
            by_pid.setdefault(member.pid, member.rank)
        for _, _, _, _, notify, is_local in self._found.notifies:
            who = awaited.get(notify)
            if who is None and not is_local:
                return None
            if who is None:
                continue
            peer = who.peer if who.group == group._key else by_pid.get(who.pid)
            if peer is None:
                return None
            found.add(peer)
        for each in self._coming.values():
            members = getattr(each.group, "members", ())  # a group that is being made has none yet
            at = each.peer if each.group is group else by_pid.get(members[each.peer].pid if members else 0)
            if at is None:
                return None
            found.add(at)
        return sorted(found)

    def end(self, number: int) -> None:
        """End all these waits with a kept deadlock."""
        if self._found.end(number, others_wait=bool(self._coming)):
            for each in self._coming.values():
                each.verdict = progress.deadlocks[number]

    def of(self, group: Session) -> list[RankWait | FailedBefore]:
        """Return the waits and failures of this process, without the waits of its other ranks in the group."""
        streams = [
            self._of_stream(group, *each) for each in self._found.notifies if self._is_of(each[4], group)
        ]
        failed = progress.failed_before()[:_MOST_FAILURES]
        return [
            *self._coming_of(group),
            *failed,
            *streams[:_MOST_WAITS],
        ]  # the most important first: the end may be cut off

    def _coming_of(self, group: Session) -> list[RankWait]:
        return [
            RankWait(
                group.rank,
                os.getpid(),
                "",
                each.peer,
                threads=(ThreadWait(progress.name_of(thread), progress.place_of(thread)),),
                call=each.call,
            )
            for thread, each in self._coming.items()
            if each.group._key != group._key or each.group.rank == group.rank
        ][:_MOST_WAITS]

    def _is_of(self, notify: int, group: Session) -> bool:
        who = awaited.get(notify)
        return who is None or who.group != group._key or who.rank == group.rank

    def _of_stream(
        self,
        group: Session,
        stream: int,
        operation: int,
        place: call_site.Place | None,
        _is_notify: bool,
        notify: int,
        _is_local: bool,
    ) -> RankWait:
        who = awaited.get(notify)
        return RankWait(
            group.rank,
            os.getpid(),
            streams_wait.notify_names.get(notify, f"notify {notify} of this process"),
            who.peer if who else -1,
            who.group.rpartition(".")[0] if who and who.group != group._key else "",
            tuple(each for each in self._found.threads() if each.stream == stream),
            stream,
            operation,
            str(call_site.at(place) or ""),
        )
