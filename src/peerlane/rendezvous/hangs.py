"""Finds processes that all wait for one another, at a rendezvous or elsewhere.  No sockets, no threads.

A process that can only wait sends reports; the server adds which of its requests wait.  `Hangs` follows the waits
from one process to those that could end them, from these to the next, and so on.  If one moment lies in the reports
of all of them, none will ever go on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from peerlane.diagnostics.waits import progress
from peerlane.diagnostics.waits.store_waits import Standing
from peerlane.rendezvous.frames import Operation
from peerlane.rendezvous.meeting import Meeting, Waiter
from peerlane.rendezvous.wait_reports import MAX_PROCESSES, Party, Reply, Report, Wait
from peerlane.support.processes import lives, parent_of

_INTERVAL_NS = 300_000_000
_UNHURRIED = 64  # the most ranks that report at this interval; more ranks report less often
_FRESH = 5  # intervals for which a report counts: less than the 2 s before a time-out in which a process sends none
_MOST_TEXTS = 16
_MANY = 64  # processes of one rank; beyond, those that have ended are forgotten


def interval_ns(size: int) -> int:
    """Return how long a process waits between two reports: the server has one thread for all."""
    return _INTERVAL_NS * max(1, size // _UNHURRIED)


@dataclass
class _Verdict:
    parties: tuple[Party, ...]
    since_ns: int
    aware: set[int] = field(default_factory=set)  # pids of processes that know it


@dataclass(frozen=True)
class _Blocked:
    report: Report
    standings: tuple[Standing, ...]
    pids: frozenset[int]  # processes that could end its waits


@dataclass(frozen=True)
class _Condemned:
    since_ns: int  # of its report
    standings: tuple[Standing, ...]
    verdict: _Verdict


class Hangs:
    """The reports of the processes of a rendezvous.

    ``requests``: returns the waiting requests of a process, given its pid.
    """

    def __init__(self, meeting: Meeting, requests: Callable[[int], Sequence[Waiter]]) -> None:
        #: Whether this process is a launcher: it puts no values, and only its children are ranks.
        self.is_launcher = False
        self._meeting, self._requests = meeting, requests
        self._pids: dict[int, set[int]] = {}  # pids, by the rank that the processes act as
        self._blocked: dict[tuple[int, int], _Blocked] = {}  # by pid and rank
        self._condemned: dict[tuple[int, int], _Condemned] = {}

    def note(self, rank: int, pid: int) -> None:
        """Note that a process acts as a rank."""
        pids = self._pids.setdefault(rank, set())
        if pid not in pids:
            if len(pids) >= _MANY:
                pids.intersection_update([each for each in pids if lives(each)])
            pids.add(pid)

    def hear(self, rank: int, pid: int, report: Report, now: int) -> Reply:
        """Take a report; return the reply to it.

        ``rank``, ``pid``: the rank that the reporting process acts as, and its pid.
        ``now``: nanoseconds of the monotonic clock.
        """
        requests = {(each.operation, each.key): each for each in self._requests(pid) if each.rank == rank}
        waiters = [requests.get((each.operation, each.key)) for each in report.waits]
        standings = tuple(
            self._standing(pid, wait, waiter) for wait, waiter in zip(report.waits, waiters, strict=True)
        )
        key = pid, rank
        condemned = self._condemned.get(key)
        if condemned is None or condemned.since_ns != report.since_ns:
            self._blocked.pop(key, None)
            if 0 < report.since_ns <= report.until_ns <= now and None not in standings:
                pids = {other for each in standings for _, other in each or ()}
                self._blocked[key] = _Blocked(report, standings, frozenset(pids.union(report.pids)))
                self._forget(now)
                if self._are_in_vain(pid, progress.STEADY_NS, now):
                    self._condemn(now)
            condemned = self._condemned.get(key)
        # else: it will raise, so a wait for it that has begun since the verdict is not in vain
        if condemned is None or condemned.since_ns != report.since_ns or None in waiters:
            return Reply(standings)
        # The verdict holds for this process as long as it waits, even if the others know it and have ended.
        return Reply(
            condemned.standings, condemned.verdict.parties, self._all_know(condemned.verdict, pid, now)
        )

    def _standing(self, asking: int, wait: Wait, waiter: Waiter | None) -> Standing:
        if waiter is None:
            return None
        if wait.rank >= 0:
            ranks, is_known = [wait.rank], lives
        else:
            ranks, is_known = self._meeting.awaited(waiter), self._is_a_rank
        awaited: list[tuple[int, int]] = []
        for rank in ranks:
            pids = [pid for pid in self._pids.get(rank, ()) if lives(pid)]
            if not pids or not all(is_known(pid) for pid in (*pids, asking)):
                return None  # the rank may still come, or another process may act as it
            awaited += ((rank, pid) for pid in pids)
        by_anybody = wait.rank < 0 and wait.operation is Operation.GET
        if by_anybody and not self.is_launcher and os.getpid() not in [pid for _, pid in awaited]:
            return None  # the program of this process may put the value
        return tuple(awaited) if len(awaited) <= MAX_PROCESSES else None

    def _is_a_rank(self, pid: int) -> bool:
        """Tell whether a process is known to be the only one of its rank: a launcher knows those that it started."""
        if not self.is_launcher:
            return True
        try:
            return parent_of(pid) == os.getpid()
        except OSError:
            return False

    def _forget(self, now: int) -> None:
        oldest = now - _FRESH * interval_ns(self._meeting.size)
        for key in [key for key, each in self._blocked.items() if each.report.until_ns < oldest]:
            del self._blocked[key]

    def _are_in_vain(self, pid: int, overlap: int, now: int) -> bool:
        """Tell whether a process and all that could end its waits were blocked at once, for ``overlap`` ns."""
        since, until = 0, now
        traits = [False, False]
        seen, left = {pid}, [pid]
        while left:
            blocked = self._of(left.pop())
            if not blocked:
                return False
            for each in blocked:
                since, until = max(since, each.report.since_ns), min(until, each.report.until_ns)
                traits[0] |= each.report.has_children
                traits[1] |= any(wait.rank < 0 for wait in each.report.waits)
                left += each.pids - seen
                seen |= each.pids
        return until - since >= overlap and not all(traits)  # a child could come to a barrier, or put a value

    def _of(self, pid: int) -> list[_Blocked]:
        """Return the reports of a process, one for each rank; none if a rank of it waits and has not reported."""
        reports = {rank: each for (process, rank), each in self._blocked.items() if process == pid}
        are_all = all(each.rank in reports for each in self._requests(pid))
        return list(reports.values()) if are_all else []

    def _is_condemned(self, key: tuple[int, int]) -> bool:
        condemned = self._condemned.get(key)
        return condemned is not None and condemned.since_ns == self._blocked[key].report.since_ns

    def _condemn(self, now: int) -> None:
        self._condemned = {key: each for key, each in self._condemned.items() if lives(key[0])}
        keys = sorted(
            (rank, pid)
            for pid, rank in self._blocked
            if not self._is_condemned((pid, rank)) and self._are_in_vain(pid, 0, now)
        )[:MAX_PROCESSES]
        parties = []
        for number, (rank, pid) in enumerate(keys):
            report = self._blocked[pid, rank].report
            parties.append(Party(rank, pid, report.since_ns, report.text if number < _MOST_TEXTS else ""))
        verdict = _Verdict(tuple(parties), now)
        for rank, pid in keys:
            blocked = self._blocked[pid, rank]
            self._condemned[pid, rank] = _Condemned(blocked.report.since_ns, blocked.standings, verdict)

    def _all_know(self, verdict: _Verdict, pid: int, now: int) -> bool:
        verdict.aware.add(pid)
        unaware = {each.pid for each in verdict.parties} - verdict.aware
        return progress.may_raise(now - verdict.since_ns, unaware)
