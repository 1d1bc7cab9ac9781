"""What the threads and streams of this process wait for, when none of them can go on by itself."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from peerlane import _core
from peerlane.backends.virtual.messages import streams as stream_messages
from peerlane.diagnostics import call_site

if TYPE_CHECKING:
    from peerlane.ranks.session import Session

SOON_SECONDS = 2.0  # what ends by itself until then is left to it

_MOST_WAITS = 8  # that a text tells of
#: Threads of ours that serve others and never record anything.
_SERVING = frozenset(("peerlane callbacks", "peerlane-rendezvous", "peerlane-rendezvous-end"))


class Awaited(NamedTuple):
    """Who should record a notify: a rank of a group, in the process that has this pid."""

    group: str
    rank: int
    peer: int
    pid: int


#: The notifies of the channels of this process that it can wait for, by id.
awaited: dict[int, Awaited] = {}


class Coming:
    """A thread that waits, at the rendezvous, for what a peer says there.

    Attributes
    ----------
    group : Session
    call : str
    peer : int
    deadline : float
        Of the monotonic clock.
    number : int
        Unlike all others'.
    quiet_ns : int
        When the answer had not come yet, at least.
    verdict : str or None
        Why it ends, once it is known that the peer will not come.
    """

    def __init__(self, group: Session, call: str, peer: int, deadline: float) -> None:
        self.group, self.call, self.peer, self.deadline = group, call, peer, deadline
        self.number = next(_numbers)
        self.quiet_ns, self._slice_ns = 0, time.monotonic_ns()
        self.verdict: str | None = None

    def has_waited(self) -> None:
        """Say that nothing has come since it was said last."""
        self.quiet_ns, self._slice_ns = self._slice_ns, time.monotonic_ns()


#: Those, by thread.
coming: dict[int, Coming] = {}
_numbers = itertools.count(1)


@contextmanager
def waiting_for(group: Session, call: str, peer: int, deadline: float) -> Iterator[Coming]:
    """Note that this thread waits for a peer meanwhile."""
    one = coming[threading.get_ident()] = Coming(group, call, peer, deadline)
    try:
        yield one
    finally:
        del coming[threading.get_ident()]


_Parked: TypeAlias = "tuple[int, int, call_site.Place | None, bool, int, bool]"
_Found: TypeAlias = "tuple[int, list[tuple[int, int]], list[_Parked]]"


class Waits:
    """A moment in which this process could not go on.

    Attributes
    ----------
    native : int
        Native code's token.
    token : int
        While it stays the same, nothing has happened.
    sure_ns : int
        Until then it was so, at least.
    """

    def __init__(self, before: int, found: _Found, others: tuple[tuple[int, int], ...]) -> None:
        self.native, self._hosts, parked = found
        self._marks = {stream: what for stream, _, _, is_notify, what, _ in parked if not is_notify}
        self._notifies = [each for each in parked if each[3]]
        self._coming = dict(coming)
        numbers = tuple(each.number for each in self._coming.values())
        self.token = hash((self.native, others, numbers))
        self.sure_ns = min([before, *(each.quiet_ns for each in self._coming.values())])

    @classmethod
    def now(cls) -> Waits | None:
        """Return what this process waits for, None if anything of it may go on."""
        before, now = time.monotonic_ns(), time.monotonic()
        if any(each.deadline < now + SOON_SECONDS for each in coming.values()):
            return None
        found = _core.standstill(bool(coming))
        if found is None:
            return None
        others = _others({*coming, *(thread for thread, _ in found[1])})
        return cls(before, found, others) if others is not None else None

    def peers(self, group: Session) -> list[int] | None:
        """Return the ranks of a group that could let it go on; None if others could."""
        found = set()
        by_pid: dict[int, int] = {}
        for member in group.members:
            by_pid.setdefault(member.pid, member.rank)
        for _, _, _, _, notify, is_local in self._notifies:
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
            members = getattr(each.group, "members", ())  # it may be in the making
            at = each.peer if each.group is group else by_pid.get(members[each.peer].pid if members else 0)
            if at is None:
                return None
            found.add(at)
        return sorted(found)

    def end(self, number: int) -> None:
        """Let all of them end, with the text of this number."""
        if _core.end_standstill(self.native, number, bool(self._coming)):
            for each in self._coming.values():
                each.verdict = stream_messages.deadlocks[number]

    def of(self, group: Session) -> str:
        """Return, a line each, what a rank waits for; not what the other ranks of this process do."""
        here = [each for each in self._notifies if self._is_of(each[4], group)]
        lines = [self._line(group, *each) for each in here[:_MOST_WAITS]]
        if len(here) > _MOST_WAITS:
            lines.append(f"and {len(here) - _MOST_WAITS:,} more streams wait")
        return "\n".join([*self._coming_of(group), *lines])

    def _coming_of(self, group: Session) -> list[str]:
        frames, names = sys._current_frames(), _names()
        return [
            f"{names.get(thread, thread)} at {_place(frames.get(thread))} waits for rank {each.peer}, which should "
            f"make its end of a channel ({each.call})"
            for thread, each in self._coming.items()
            if each.group._key != group._key or each.group.rank == group.rank
        ][:_MOST_WAITS]

    def _is_of(self, notify: int, group: Session) -> bool:
        who = awaited.get(notify)
        return who is None or who.group != group._key or who.rank == group.rank

    def _line(
        self,
        group: Session,
        stream: int,
        operation: int,
        place: call_site.Place | None,
        _is_notify: bool,
        notify: int,
        _is_local: bool,
    ) -> str:
        who = awaited.get(notify)
        site = call_site.at(place)
        of = f" of group {who.group.rpartition('.')[0]!r}" if who and who.group != group._key else ""
        what = stream_messages.notify_names.get(notify, f"notify {notify} of this process")
        duty = f", which rank {who.peer} should record{of}" if who else ""
        threads = self._threads(stream)
        submitted = f", submitted at {site}" if site and f" at {site} " not in threads else ""
        return f"{threads}{what}{duty} (stream {stream}, operation {operation}{submitted})"

    def _threads(self, stream: int) -> str:
        frames, names = sys._current_frames(), _names()
        found = [
            f"{names.get(thread, f'thread {thread}')} at {_place(frames.get(thread))}"
            for thread, waits_for in self._hosts
            if self._root(waits_for) == stream
        ]
        if not found:
            return "a stream waits for "
        return f"{' and '.join(found[:4])} wait{'s' if len(found) == 1 else ''} for "

    def _root(self, stream: int) -> int:
        seen = set()
        while stream in self._marks and stream not in seen:
            seen.add(stream)
            stream = self._marks[stream]
        return stream


def _names() -> dict[int | None, str]:
    return {each.ident: each.name for each in threading.enumerate()}


def _place(frame: FrameType | None) -> str:
    while frame is not None and call_site.is_own(frame):
        frame = frame.f_back
    return str(call_site.Site(frame.f_code, frame.f_lasti)) if frame is not None else "an unknown place"


def _others(waiting: set[int]) -> tuple[tuple[int, int], ...] | None:
    """Return who waits for other threads, and the time of a processor that each has had; None if a thread may go on.

    Who waits in peerlane is in ``waiting``, and runs none of the program's code, as a handler of a signal does.  A
    thread that had no time of a processor has not run.
    """
    found = []
    threads = {each.ident: each for each in threading.enumerate()}
    joins = _joins()
    for ident, frame in sys._current_frames().items():
        thread = threads.get(ident)
        if ident in waiting and call_site.is_own(frame):
            continue
        if thread is not None and thread.daemon and thread.name in _SERVING:
            continue
        if not _is_joining(frame, joins) and not (thread is not None and thread.daemon and _is_idle(frame)):
            return None
        found.append((ident, time.clock_gettime_ns(time.pthread_getcpuclockid(ident))))
    return tuple(found)


def _joins() -> set[CodeType]:
    """Return the functions in which a thread waits for the end of others' work."""
    found = {threading.Thread.join.__code__}
    futures = sys.modules.get("concurrent.futures._base")
    if futures is not None:
        found |= {futures.Future.result.__code__, futures.Future.exception.__code__}
        found |= {futures.wait.__code__, futures.as_completed.__code__}
    pool = sys.modules.get("concurrent.futures.thread")
    if pool is not None:
        found.add(pool._worker.__code__)  # has nothing to do
    ending = getattr(threading, "_shutdown", None)
    if ending is not None:
        found.add(ending.__code__)
    return found


def _is_joining(frame: FrameType | None, joins: set[CodeType]) -> bool:
    while frame is not None and frame.f_code not in joins and frame.f_globals.get("__name__") == "threading":
        frame = frame.f_back
    return frame is not None and frame.f_code in joins


def _is_idle(frame: FrameType) -> bool:
    """Tell whether only another thread can wake it: of a daemon, which nobody waits for."""
    return frame.f_code is threading.Condition.wait.__code__ and frame.f_locals.get("timeout") is None
