"""The waits of the threads and streams of a process that is blocked: none of them can go on."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from peerlane.backend import host
from peerlane.diagnostics import call_site
from peerlane.diagnostics.log import event_log
from peerlane.diagnostics.waits import progress, store_waits, stream_waits
from peerlane.diagnostics.waits.store_waits import StoreWait
from peerlane.errors import Deadlock, FailedBefore, RankWait, StreamWait, ThreadWait, WaitState

if TYPE_CHECKING:
    from peerlane.ranks.session import Session
    from peerlane.rendezvous import Rendezvous

_MOST_WAITS = 8  # waits that a text names
_MOST_FAILURES = 4


class Awaited(NamedTuple):
    """The rank that should record a notify: its group, and its process's pid, 0 on another machine."""

    group: str
    rank: int
    peer: int
    pid: int
    is_in_collective: bool


#: The notifies of other ranks that this process can wait for, by id; those of a channel by the id of the first.
awaited: dict[int, Awaited] = {}


def expect(session: Session, peer: int, notify: int, *, is_in_collective: bool = False) -> None:
    """Note that a rank of a group records a notify, or those of a channel, and no other process does."""
    pid = session.members[peer].pid_here
    awaited[notify] = Awaited(session._key, session.rank, peer, pid, is_in_collective)


class QueuedCollective(NamedTuple):
    """A collective on a stream: its first and last operation, and the call."""

    stream: int
    first: int
    last: int
    call: str


#: The last collectives that this process queued.
queued: deque[QueuedCollective] = deque(maxlen=256)

#: ``call``: the name under which a dialect's program has called the present collective of this thread.
calling = threading.local()


class PeerHasLeft(Exception):
    """The peer whose message a thread waits for has closed its group."""


class MessageWait(StoreWait):
    """A thread's wait, at the rendezvous, for a message of a peer in its group.

    ``deadline``: of the monotonic clock.
    ``has_left``: tells whether the peer has closed its group.
    ``awaits``: what the peer should make: its end of a ``"channel"``, or one for the first ``"collective"``.
    """

    def __init__(
        self,
        group: Session,
        call: str,
        key: str,
        peer: int,
        deadline: float,
        has_left: Callable[[], bool],
        awaits: str = "channel",
    ) -> None:
        super().__init__(group._meeting.rendezvous, "key", key, call, deadline, peer)
        self.group, self.awaits = group, awaits
        self._has_left, self._has_raised = has_left, False

    def check(self) -> None:
        """Raise an error if the group is closed, `PeerHasLeft` once if the peer has closed its group."""
        self.group._check_open(self.call)  # another thread may have closed it
        if not self._has_raised and self._has_left():
            self._has_raised = True
            raise PeerHasLeft


class Waits:
    """The waits of this process while it is blocked."""

    def __init__(self, before: int, state: progress.NoProgress, store: dict[int, StoreWait]) -> None:
        self._state = state
        self._store = store
        self.has_children = _has_children()  #: whether it has child processes, which may use a rendezvous
        #: Whether a child process of a rank could end one of its waits at a rendezvous.
        self.is_over_store = any(each.peer < 0 for each in store.values())
        waits = tuple((each.number, each.standing) for each in store.values())
        self.token = hash((state.token, waits, self.has_children))  #: changes when anything happens
        #: A time at which this process was blocked, without regard to its waits at a rendezvous.
        self.before_ns = before
        #: The last time at which it was certainly blocked: the server of each rendezvous has confirmed the waits
        #: there.
        self.sure_ns = min([before, *(each.sure_ns for each in store.values())])

    @classmethod
    def now(cls) -> Waits | None:
        """Return the waits of this process, None if a thread or stream of it may go on."""
        before, now = time.monotonic_ns(), time.monotonic()
        store = dict(store_waits.waiting)
        if any(_ends(each, now) for each in store.values()):
            return None
        state = progress.NoProgress.now(store)
        if state is None or progress.has_handlers():
            return None
        return cls(before, state, store)

    def peers(self, group: Session) -> list[int] | None:
        """Return the ranks of a group that could end a wait; None if a process outside the group could."""
        ranks: set[int | None] = set()
        by_pid = _ranks_by_pid(group)
        pids = self._pids_of_notifies(besides=group._key)
        if pids is None:
            return None
        ranks.update(by_pid.get(pid) for pid in pids)
        ranks.update(who.peer for who in self._awaited() if who is not None and who.group == group._key)
        for each in self._store.values():
            if each.standing is None:
                return None
            ranks.update(_rank_in(group, by_pid, each, *other) for other in each.standing)
        return None if None in ranks else sorted(rank for rank in ranks if rank is not None)

    def at(self, rendezvous: Rendezvous) -> list[StoreWait]:
        """Return the waits at the server of ``rendezvous``, as the same rank."""
        return [each for each in self._store.values() if _is_at(each, rendezvous)]

    def pids_besides(self, rendezvous: Rendezvous) -> list[int] | None:
        """Return the processes that could end one of the other waits; None if unknown processes could."""
        pids = self._pids_of_notifies()
        for each in self._store.values():
            if pids is None or _is_at(each, rendezvous):
                continue
            pids = None if each.standing is None else pids.union(pid for _, pid in each.standing)
        return sorted(pids) if pids is not None else None

    def _awaited(self) -> list[Awaited | None]:
        return [_awaited_by(each[4]) for each in self._state.notifies]

    def _pids_of_notifies(self, besides: str = "") -> set[int] | None:
        """Return the processes that should record the notifies outside a group; None if unknown processes could."""
        pids = set()
        for who, (_, _, _, _, _, is_local) in zip(self._awaited(), self._state.notifies, strict=True):
            if who is None and not is_local:
                return None
            if who is not None and who.group != besides:
                if not who.pid:
                    return None  # nothing is known of a process of another machine
                pids.add(who.pid)
        return pids

    def warn(self, graph: str, detail: WaitState) -> None:
        """Let waits at a rendezvous that fail from now on raise this deadlock instead, and log it.

        The log must have it before another rank raises: the launcher may kill this process then.
        """
        self._state.log_in_vain(others_wait=bool(self._store))
        for each in self._store.values():
            each.in_vain = Deadlock(f"{each.call}: {graph}", call=each.call, detail=detail)

    def end(self, number: int) -> None:
        """End all waits with the kept deadlock of this number."""
        if self._state.end(number, others_wait=bool(self._store)):
            self.warn(*progress.deadlocks[number])
            for each in self._store.values():
                each.is_over = True

    def of(self, group: Session) -> list[RankWait | FailedBefore]:
        """Return the waits of a rank, without those of this process's other ranks, and the earlier failures."""
        by_pid = _ranks_by_pid(group)
        streams = [
            self._of_stream(group.rank, group._key, *each)
            for each in self._state.notifies
            if self._is_of(each[4], group)
        ]
        store = [
            _of_store(
                group.rank,
                thread,
                each,
                [_rank_in(group, by_pid, each, *other) for other in each.standing or ()],
            )
            for thread, each in self._store.items()
            if each.rendezvous.address != group._meeting.rendezvous.address
            or each.rendezvous.rank == group.rank
        ]
        return self._records(group.rank, store, streams)

    def of_rendezvous(self, rendezvous: Rendezvous) -> list[RankWait | FailedBefore]:
        """Return the waits of a rank of a rendezvous, and the earlier failures."""
        store = [
            _of_store(rendezvous.rank, thread, each, [rank for rank, _ in each.standing or ()])
            for thread, each in self._store.items()
            if each.rendezvous.address != rendezvous.address or each.rendezvous.rank == rendezvous.rank
        ]
        streams = [self._of_stream(rendezvous.rank, "", *each) for each in self._state.notifies]
        return self._records(rendezvous.rank, store, streams)

    def _records(
        self, rank: int, store: list[RankWait], streams: list[RankWait]
    ) -> list[RankWait | FailedBefore]:
        failed = progress.failed_before()[:_MOST_FAILURES]
        words = [self._of_word(rank, each) for each in stream_waits.streams() if each.what == "value"]
        return [
            *store[:_MOST_WAITS],
            *failed,
            *[*streams, *words][:_MOST_WAITS],
        ]  # a board with little room cuts the last ones

    def _is_of(self, notify: int, group: Session) -> bool:
        who = _awaited_by(notify)
        return who is None or who.group != group._key or who.rank == group.rank

    def _of_stream(
        self,
        rank: int,
        key: str,
        stream: int,
        operation: int,
        position: call_site.Position | None,
        _is_notify: bool,
        notify: int,
        _is_local: bool,
    ) -> RankWait:
        who = _awaited_by(notify)
        is_in_collective = who is not None and who.is_in_collective
        return RankWait(
            rank,
            os.getpid(),
            stream_waits.notify_name(notify, f"notify {notify} of this process"),
            who.peer if who else -1,
            who.group.rpartition(".")[0] if who and who.group != key else "",
            self._threads_behind(stream),
            stream,
            operation,
            str(call_site.at(position) or ""),
            call=_collective_of(stream, operation) if is_in_collective else "",
            kind="collective" if is_in_collective else "notify",
        )

    def _of_word(self, rank: int, wait: StreamWait) -> RankWait:
        return RankWait(
            rank,
            os.getpid(),
            "a word of memory",
            threads=self._threads_behind(wait.stream),
            stream=wait.stream,
            operation=wait.operation,
            submitted_at=wait.submitted_at,
            kind="word",
        )

    def _threads_behind(self, stream: int) -> tuple[ThreadWait, ...]:
        return tuple(each for each in self._state.threads() if self._state.root(each.stream) == stream)


def _awaited_by(notify: int) -> Awaited | None:
    """Return who should record a notify, None if it is not a channel's."""
    return awaited.get(stream_waits.first_id(notify))


def _collective_of(stream: int, operation: int) -> str:
    """Return the call that queued an operation on a stream, empty if it is not known."""
    calls = (
        each for each in reversed(queued) if each.stream == stream and each.first <= operation <= each.last
    )
    return next((each.call for each in calls), "") or host.queued_call(stream, operation)


def _ends(wait: StoreWait, now: float) -> bool:
    """Tell whether the program may go on after a wait's time-out, or the time-out is near."""
    return wait.deadline < (now + progress.SOON_SECONDS if wait.is_net else math.inf)


def _of_store(rank: int, thread: int, wait: StoreWait, ranks: Iterable[int | None]) -> RankWait:
    is_joining = isinstance(wait, MessageWait) and not wait.group.members
    is_channel = isinstance(wait, MessageWait) and not is_joining
    kind = "group" if is_joining else wait.awaits if isinstance(wait, MessageWait) else wait.kind
    name = wait.group.name if isinstance(wait, MessageWait) else wait.key
    return RankWait(
        rank,
        os.getpid(),
        "" if is_channel else name,
        wait.peer,
        threads=(progress.wait_of(thread),),
        call=wait.call,
        kind=kind,
        awaited=() if wait.peer >= 0 else tuple(sorted({r for r in ranks if r not in (None, rank, -1)})),
    )


def _is_at(wait: StoreWait, rendezvous: Rendezvous) -> bool:
    return (wait.rendezvous.address, wait.rendezvous.rank) == (rendezvous.address, rendezvous.rank)


def _ranks_by_pid(group: Session) -> dict[int, int]:
    ranks: dict[int, int] = {}
    for member in group.members:
        if member.is_here:
            ranks.setdefault(member.pid, member.rank)
    return ranks


def _rank_in(group: Session, by_pid: dict[int, int], wait: StoreWait, rank: int, pid: int) -> int | None:
    """Return the rank in a group of a process that is a rank of the wait's rendezvous; None if it has none."""
    is_same = wait.rendezvous.address == group._meeting.rendezvous.address and rank < group.size
    return rank if is_same and group.members[rank].pid_here == pid else by_pid.get(pid)


def _has_children() -> bool:
    try:
        with event_log.quiet():  # the program does not ask
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
