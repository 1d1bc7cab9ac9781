"""Detects ranks of a group that wait for one another, and ends their waits with `Deadlock`.

Each rank reports on the group's board the time from which, and until which, nothing of its process could run: every
thread waits in peerlane, and no stream has an operation that can run.  Take a rank, the ranks that it waits for, the
ranks that those wait for, and so on.  If one moment lies in the reported times of all of them, no record can be under
way between them, and none of them will ever go on.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerlane.diagnostics import progress, wait_texts
from peerlane.errors import Deadlock, Error, FailedBefore, PeerLost, RankWait, WaitState, WaitTimeout
from peerlane.ranks.deadlock import wait_state
from peerlane.ranks.deadlock.said import Said, decode, encode

if TYPE_CHECKING:
    from peerlane.backend.ranks import WaitBoard
    from peerlane.ranks.session import Session


@dataclass(frozen=True, slots=True)
class Known:
    """A deadlock that this rank is in.

    Attributes
    ----------
    since_ns : int
        The time at which this rank learnt of it.
    ranks : sequence of int
        The ranks that wait in vain.
    head, lines : str
        In words, the ranks that wait in vain, and what each waits for.
    state : WaitState
        The same as data.
    name : str
        A name of the deadlock, the same in all of these ranks.
    """

    since_ns: int
    ranks: Sequence[int]
    head: str
    lines: str
    state: WaitState
    name: str


OVERLAP_NS = 500_000_000  # the time for which all must have waited at once

_MOST_SHOWN = 16  # ranks that a text names
_BOARD_BYTES = 1700  # of a rank's report; the board cuts longer ones
_PATIENCE_NS = 800_000_000  # the time for all ranks to see the deadlock, unless one of them has died

_groups: weakref.WeakSet[Session] = weakref.WeakSet()
_tokens: weakref.WeakKeyDictionary[Session, int] = (
    weakref.WeakKeyDictionary()
)  # of each rank's report on the board
_known: weakref.WeakKeyDictionary[Session, Known] = weakref.WeakKeyDictionary()


def watch(group: Session) -> None:
    """Check from now on, whenever threads wait for long, whether the group can go on."""
    _groups.add(group)
    progress.look_at_ranks = _look_at_groups
    from peerlane.rendezvous import client

    client.while_waiting = _look_from_rendezvous


@contextmanager
def waiting_for(group: Session, call: str, peer: int, deadline: float) -> Iterator[None]:
    """Note that this thread waits for a peer at the rendezvous; raise a deadlock instead of its consequences."""
    with wait_state.waiting_for(group, call, peer, deadline) as coming:
        try:
            yield
        except (PeerLost, WaitTimeout):
            known = _known.get(group)
            found = coming.verdict or ((f"{known.head}\n{known.lines}", known.state) if known else None)
            if found is None:
                raise
            raise _deadlock(call, *found) from None


def _deadlock(call: str, graph: str, detail: WaitState) -> Deadlock:
    return Deadlock(f"{call}: {graph}", call=call, detail=detail)


def _look_from_rendezvous() -> None:
    """Look, and end the wait of this thread if it is in vain; the rendezvous client calls it while it waits."""
    coming = wait_state.coming.get(threading.get_ident())
    if coming is None:
        return
    coming.has_waited()
    progress.look()
    if coming.verdict is not None:
        raise _deadlock(coming.call, *coming.verdict)


def _look_at_groups() -> bool:
    """Report to each group whether this process can only wait, and end its waits if all can; False without groups."""
    groups = [each for each in list(_groups) if not each._is_closed and each._pid == os.getpid()]
    if groups:
        _look_at(groups)
    return bool(groups)


def _look_at(groups: list[Session]) -> None:
    waits = wait_state.Waits.now()
    for group in groups:
        if waits is None:
            _withdraw(group)
        elif (known := _say(group, waits)) is not None:
            _end(group, known, waits)
            return


def _withdraw(group: Session) -> None:
    _known.pop(group, None)
    if _tokens.pop(group, None) is not None and group._membership is not None:
        group._membership.board.withdraw()


def _say(group: Session, waits: wait_state.Waits) -> Known | None:
    """Report on a group's board that this process can only wait; return the deadlock if its waits must end now."""
    if group._membership is None:
        return None
    board, peers = group._membership.board, waits.peers(group)
    if peers is None:
        _withdraw(group)
        return None
    if _tokens.get(group) != waits.token:
        said = encode(waits.of(group), _BOARD_BYTES)
        _tokens[group] = waits.token
        _known.pop(group, None)
        board.begin(time.monotonic_ns(), peers, said)  # only the time after the look is proved
        return None
    board.renew(waits.sure_ns)
    if not board.is_condemned and board.circle(OVERLAP_NS):
        board.condemn(board.in_vain())
    if not board.is_condemned:
        return None
    # The first rank that raises may end, and the others would report its loss instead: all must know before.
    now, known = time.monotonic_ns(), _known.get(group)
    if known is None:
        known = _known[group] = _learn(group, board, now)
        progress.put_off_losses()
        board.acknowledge()
    is_time = board.have_acknowledged(known.ranks) or now > known.since_ns + _PATIENCE_NS
    return known if is_time else None


def _learn(group: Session, board: WaitBoard, now: int) -> Known:
    """Return the deadlock as the board shows it, before other ranks leave."""
    ranks = sorted({*board.in_vain(), *board.reached()})
    name = f"{group._key[:100]}.{ranks[0]}.{board.spell(ranks[0])}"
    lines = [line for rank in ranks[:_MOST_SHOWN] for line in _lines(group, board, rank)]
    return Known(now, ranks, _head(group, ranks), "\n".join(lines), _state(group, board, ranks), name)


def _end(group: Session, known: Known, waits: wait_state.Waits) -> None:
    assert group._membership is not None
    graph = f"{known.head}\n{known.lines}"
    if _is_launched(group) and _report(group, known):
        own = "\n".join(_lines(group, group._membership.board, group.rank))
        graph = f"{known.head} `peerlane launch` shows which rank waits for which; this rank:\n{own}"
    waits.end(progress.keep(graph, known.state))


def _is_launched(group: Session) -> bool:
    from peerlane.rendezvous.reports import LAUNCHED

    return os.environ.get(LAUNCHED) == group._meeting.line.address


def _report(group: Session, known: Known) -> bool:
    """Let the launcher show it, once, however many ranks report it; return whether it does."""
    from peerlane.rendezvous.reports import SHOWN_KEY

    try:
        group._meeting.line.put(
            SHOWN_KEY + known.name, f"{known.head}\n{known.lines}".encode(errors="replace")
        )
    except Error:  # the launcher has ended, or does not answer
        return False
    return True


def _head(group: Session, ranks: Sequence[int]) -> str:
    shown, more = [str(rank) for rank in ranks[:_MOST_SHOWN]], len(ranks) - _MOST_SHOWN
    last = f"{more:,} more" if more > 0 else shown.pop()
    who = f"ranks {', '.join(shown)} and {last}" if shown else f"rank {last}"
    of = "" if group.name == "world" else f" of group {group.name!r}"
    return f"a deadlock: {who}{of} wait{'' if shown else 's'} in vain, and nothing there can run."


def _said(group: Session, board: WaitBoard, rank: int) -> list[Said]:
    return decode(board.text(rank), rank, group.members[rank].pid)


def _lines(group: Session, board: WaitBoard, rank: int) -> list[str]:
    """Return a rank's report in words."""
    name = f"rank {rank} (process {group.members[rank].pid})"
    said = [_in_words(each) for each in _said(group, board, rank)]
    return [f"  {name}: {line}" for line in said] or [f"  {name}"]


def _in_words(said: Said) -> str:
    if isinstance(said, RankWait):
        return wait_texts.rank_wait(said)
    return wait_texts.failure(said) if isinstance(said, FailedBefore) else said


def _state(group: Session, board: WaitBoard, ranks: Sequence[int]) -> WaitState:
    said = [each for rank in ranks for each in _said(group, board, rank)]
    return WaitState(
        "ranks",
        ranks=tuple(each for each in said if isinstance(each, RankWait)),
        failed=tuple(each for each in said if isinstance(each, FailedBefore)),
    )
