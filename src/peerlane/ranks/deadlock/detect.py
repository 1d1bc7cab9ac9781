"""Finds ranks that all wait for one another, and raises `Deadlock` in each of them with all their waits.

A rank is blocked while every thread of its process waits in peerlane and no stream has an operation that can run.
It reports on the boards of its groups since when and until when it was blocked.  The search follows the waits from a
rank to the ranks that could end them, from these to the next, and so on.  If one moment lies in the reports of all of
them, nothing was under way between them, and none of them will ever go on.

A rank of another machine never reports, so a rank that waits for one, directly or through others, is in no deadlock.

A rank that waits at a rendezvous reports to its server.  The server knows which requests wait and which processes
could end them, so it finds deadlocks of ranks without a common group.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from peerlane.diagnostics.waits import progress, store_waits
from peerlane.errors import PeerLost, WaitTimeout
from peerlane.ranks.deadlock import wait_state
from peerlane.ranks.deadlock.board_records import BoardRecord, decode, encode
from peerlane.ranks.deadlock.known import MOST_SHOWN, Graph, Known, end, head, lines, state
from peerlane.ranks.membership import Membership

if TYPE_CHECKING:
    from peerlane.backend.ranks import WaitBoard
    from peerlane.ranks.session import Session


_BOARD_BYTES = 1700  # of a rank's report; the board cuts a longer one

_groups: weakref.WeakSet[Session] = weakref.WeakSet()
_tokens: weakref.WeakKeyDictionary[Session, int] = (
    weakref.WeakKeyDictionary()
)  # of the last report on each group's board
_known: weakref.WeakKeyDictionary[Session, Known] = weakref.WeakKeyDictionary()
_spell = 0, 0  # the process's token, and the time since which it has this token


def watch(group: Session) -> None:
    """Check from now on, whenever threads wait for long, whether the group can go on."""
    _groups.add(group)


@contextmanager
def waiting_for(coming: wait_state.MessageWait) -> Iterator[None]:
    """Note that this thread waits for a peer at the rendezvous; raise a deadlock in place of its consequences."""
    with store_waits.noted(coming):
        try:
            yield
        except (PeerLost, WaitTimeout):
            if coming.in_vain is None:
                raise
            raise coming.in_vain from None


def look_from_rendezvous(wait: store_waits.StoreWait) -> None:
    """End the wait of this thread if it must end or is in vain; the rendezvous client calls this while it waits."""
    wait.check()
    if not wait.is_over:
        progress.look()
    if wait.is_over and wait.in_vain is not None:
        raise wait.in_vain


def _look_at_ranks() -> bool:
    """Report on each group's board whether this process is blocked, and end its waits if they are in vain.

    Returns False if the process has no open group and does not wait at a rendezvous.
    """
    global _spell
    groups = [each for each in list(_groups) if not each._is_closed and each._pid == os.getpid()]
    if not groups and not store_waits.waiting:
        return False
    waits = wait_state.Waits.now()
    if waits is None or waits.token != _spell[0]:
        # The state is certain only from the end of the look.
        _spell = (waits.token, time.monotonic_ns()) if waits is not None else (0, 0)
        for wait in list(store_waits.waiting.values()):
            if not wait.is_over:
                wait.in_vain = None
    # A process that will raise is not blocked: another rank may have raised before, and wait for it by now.
    must_raise = any(each in _known for each in groups)
    if waits is not None and store_waits.waiting and not must_raise:
        from peerlane.ranks.deadlock import at_server  # it loads sockets; a program without ranks needs none

        if at_server.ask(waits, _spell[1]):
            return True
    must_raise = must_raise or any(each.in_vain for each in store_waits.waiting.values())
    for group in groups:
        if waits is None:
            _withdraw(group)
        elif (known := _report(group, waits, renews=not must_raise)) is not None:
            end(known, waits)
            break
    return True


def _withdraw(group: Session) -> None:
    _known.pop(group, None)
    if _tokens.pop(group, None) is not None and isinstance(group._membership, Membership):
        group._membership.board.withdraw()


def _report(group: Session, waits: wait_state.Waits, *, renews: bool) -> Known | None:
    """Report on a group's board that this process is blocked; return the deadlock if its waits must end now.

    ``renews``: whether the report may be extended until now.
    """
    if not isinstance(group._membership, Membership):
        return None
    board, peers = group._membership.board, waits.peers(group)
    if peers is None:
        _withdraw(group)
        return None
    if _tokens.get(group) != waits.token:
        report, traits = encode(waits.of(group), _BOARD_BYTES), (waits.is_over_store, waits.has_children)
        _tokens[group] = waits.token
        _known.pop(group, None)
        board.begin(_spell[1], peers, report, *traits)
        return None
    if renews and not board.is_condemned:
        board.renew(waits.sure_ns)
        if board.circle(progress.STEADY_NS):
            board.condemn(board.in_vain())
    if not board.is_condemned:
        return None
    now, known = time.monotonic_ns(), _known.get(group)
    if known is None:
        known = _known[group] = _graph(group, board).report(now)
        waits.warn(known.text, known.state)
        progress.put_off_losses()
        board.acknowledge()
    unaware = [group.members[rank].pid for rank in known.ranks if not board.have_acknowledged([rank])]
    return known if progress.may_raise(now - known.since_ns, unaware) else None


def _graph(group: Session, board: WaitBoard) -> Graph:
    """Return the deadlock as the board shows it, before other ranks leave."""
    ranks = sorted({*board.in_vain(), *board.reached()})
    records = {rank: _records(group, board, rank) for rank in ranks}
    pids = {rank: group.members[rank].pid for rank in ranks}
    return Graph(
        ranks,
        head(ranks, "" if group.name == "world" else f" of group {group.name!r}"),
        "\n".join(text for rank in ranks[:MOST_SHOWN] for text in lines(rank, pids[rank], records[rank])),
        state([record for rank in ranks for record in records[rank]]),
        "\n".join(lines(group.rank, os.getpid(), records[group.rank])),
        f"{pids[ranks[0]]}.{board.spell(ranks[0])}",
    )


def _records(group: Session, board: WaitBoard, rank: int) -> list[BoardRecord]:
    return decode(board.text(rank), rank, group.members[rank].pid)


progress.look_at_ranks = _look_at_ranks
