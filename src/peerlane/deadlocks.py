"""Ranks of a group that all wait for one another: found, told to all of them, and said with who waits for whom.

A rank says of itself, on the group's board, since when and until when nothing of its process could run: every thread
waits in peerlane, and no stream has anything to do.  When there is a time that is in the spells of a rank, of those
that it waits for, of those that they wait for, and so on, then nothing can be under way between them, and none will
ever go on.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
import weakref
from types import CodeType, FrameType
from typing import TYPE_CHECKING, NamedTuple

from peerlane import _core, failures, sites
from peerlane.errors import Error

if TYPE_CHECKING:
    from peerlane.group import Group

OVERLAP_NS = 500_000_000  # for so long all must have been stuck at a time

_KEPT = 64  # texts, by number
_MOST_SHOWN = 16  # ranks of a text
_MOST_WAITS = 8  # of a rank
_LONGEST = 400  # characters of a line that a rank says
_PATIENCE_NS = 800_000_000  # until all know, or one of them has died
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

_numbers = itertools.count(1)
_groups: weakref.WeakSet[Group] = weakref.WeakSet()
_looking = threading.Lock()
_tokens: weakref.WeakKeyDictionary[Group, int] = weakref.WeakKeyDictionary()  # of what each has on its board
_known_at: weakref.WeakKeyDictionary[Group, int] = (
    weakref.WeakKeyDictionary()
)  # when it learnt of its deadlock


def watch(group: Group) -> None:
    """Look from now on, whenever threads wait for long, whether the group can still go on."""
    _groups.add(group)
    _core.set_wait_hook(_look)


def _look() -> None:
    """Say whether this process is stuck, and end its waits if all are: native code's hook, in a thread that waits."""
    if not _looking.acquire(blocking=False):
        return
    try:
        groups = [each for each in list(_groups) if not each._is_closed and each._pid == os.getpid()]
        if groups:
            _look_at(groups)
        else:
            _core.set_wait_hook(None)
    finally:
        _looking.release()


def _look_at(groups: list[Group]) -> None:
    before = time.monotonic_ns()
    found = _core.standstill()
    others = _others({host for host, _ in found[1]}) if found is not None else None
    if found is None or others is None:
        for group in groups:
            _withdraw(group)
        return
    waits = _Waits(*found)
    token = hash((found[0], others))
    for group in groups:
        if _say(group, waits, token, before):
            _end(group, waits.token)
            return


def _withdraw(group: Group) -> None:
    if _tokens.pop(group, None) is not None and group._departures is not None:
        group._departures.board.withdraw()


def _say(group: Group, waits: _Waits, token: int, before: int) -> bool:
    """Say on a group's board that this process is stuck; return whether its waits are to end now."""
    if group._departures is None:
        return False
    board, peers = group._departures.board, waits.peers(group)
    if peers is None:
        _withdraw(group)
        return False
    if _tokens.get(group) != token:
        said = waits.of(group).encode(errors="replace")
        _tokens[group] = token
        _known_at.pop(group, None)
        board.begin(time.monotonic_ns(), peers, said)  # only what is behind the look is sure
        return False
    board.renew(before)
    if not board.is_condemned and (circle := board.circle(OVERLAP_NS)):
        board.condemn(circle)
    return board.is_condemned and _all_know(group, board, before)


def _all_know(group: Group, board: _core.WaitBoard, now: int) -> bool:
    """Wait until all know of the deadlock: who is told first may end, and the others would be told only of that."""
    board.acknowledge()
    if group not in _known_at:
        _core.put_off_losses()
    known_at = _known_at.setdefault(group, now)
    return board.have_acknowledged(board.reached()) or now > known_at + _PATIENCE_NS


def _end(group: Group, token: int) -> None:
    assert group._departures is not None
    board = group._departures.board
    circle = board.reached()
    graph = _graph(group, board, circle)
    number = next(_numbers)
    first = min(circle)
    if _is_launched(group) and _report(group, f"{group._key[:100]}.{first}.{board.spell(first)}", graph):
        own = "\n".join(_lines(group, board, group.rank))
        graph = f"{graph.partition(chr(10))[0]} `peerlane launch` shows who waits for whom; this rank:\n{own}"
    failures.deadlocks[number] = graph
    failures.deadlocks.pop(number - _KEPT, None)
    _core.end_standstill(token, number)


def _is_launched(group: Group) -> bool:
    from peerlane.rendezvous.meeting import LAUNCHED

    return bool(os.environ.get(LAUNCHED)) and not group._meeting.owns_line


def _report(group: Group, name: str, graph: str) -> bool:
    """Let the launcher show it, once whatever the number of ranks that report it; return whether it does."""
    from peerlane.rendezvous.meeting import REPORT_KEY

    try:
        group._meeting.line.put(REPORT_KEY + name, graph.encode(errors="replace"))
    except Error:  # it has ended, or does not answer
        return False
    return True


def _graph(group: Group, board: _core.WaitBoard, circle: list[int]) -> str:
    shown, more = [str(rank) for rank in circle[:_MOST_SHOWN]], len(circle) - _MOST_SHOWN
    last = f"{more:,} more" if more > 0 else shown.pop()
    who = f"ranks {', '.join(shown)} and {last}" if shown else f"rank {last}"
    of = "" if group.name == "world" else f" of group {group.name!r}"
    lines = [f"a deadlock: {who}{of} wait{'' if shown else 's'} in vain, and nothing there can run."]
    for rank in circle[:_MOST_SHOWN]:
        lines += _lines(group, board, rank)
    return "\n".join(lines)


def _lines(group: Group, board: _core.WaitBoard, rank: int) -> list[str]:
    """Return what a rank says of itself, which may be anybody's bytes."""
    said = board.text(rank).decode(errors="replace").split("\n")
    shown = [
        "".join(c if c.isprintable() else "?" for c in line[:_LONGEST]) for line in said[: _MOST_WAITS + 1]
    ]
    name = f"rank {rank} (process {group.members[rank].pid})"
    return [f"  {name}: {line}" for line in shown if line] or [f"  {name}"]


class _Waits:
    """What the threads and streams of this process wait for, of which none can go on by itself."""

    def __init__(
        self,
        token: int,
        hosts: list[tuple[int, int]],
        parked: list[tuple[int, int, sites.Place | None, bool, int, bool]],
    ) -> None:
        self.token = token
        self._hosts = hosts
        self._marks = {stream: what for stream, _, _, is_notify, what, _ in parked if not is_notify}
        self._notifies = [each for each in parked if each[3]]

    def peers(self, group: Group) -> list[int] | None:
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
        return sorted(found)

    def of(self, group: Group) -> str:
        """Return, a line each, what a rank waits for; not what the other ranks of this process do."""
        here = [each for each in self._notifies if self._is_of(each[4], group)]
        lines = [self._line(group, *each) for each in here[:_MOST_WAITS]]
        if len(here) > _MOST_WAITS:
            lines.append(f"and {len(here) - _MOST_WAITS:,} more streams wait")
        return "\n".join(lines)

    def _is_of(self, notify: int, group: Group) -> bool:
        who = awaited.get(notify)
        return who is None or who.group != group._key or who.rank == group.rank

    def _line(
        self,
        group: Group,
        stream: int,
        operation: int,
        place: sites.Place | None,
        _is_notify: bool,
        notify: int,
        _is_local: bool,
    ) -> str:
        who = awaited.get(notify)
        site = sites.at(place)
        of = f" of group {who.group.rpartition('.')[0]!r}" if who and who.group != group._key else ""
        what = failures.notify_names.get(notify, f"notify {notify} of this process")
        duty = f", which rank {who.peer} should record{of}" if who else ""
        threads = self._threads(stream)
        submitted = f", submitted at {site}" if site and f" at {site} " not in threads else ""
        return f"{threads}{what}{duty} (stream {stream}, operation {operation}{submitted})"

    def _threads(self, stream: int) -> str:
        frames, names = sys._current_frames(), {each.ident: each.name for each in threading.enumerate()}
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


def _place(frame: FrameType | None) -> str:
    while frame is not None and sites.is_own(frame):
        frame = frame.f_back
    return str(sites.Site(frame.f_code, frame.f_lasti)) if frame is not None else "an unknown place"


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
        if ident in waiting and sites.is_own(frame):
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
