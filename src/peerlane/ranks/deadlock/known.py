"""A deadlock of ranks that this process knows: its text, and the end of this process's waits."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from peerlane.diagnostics.waits import progress, stream_waits, wait_texts
from peerlane.errors import FailedBefore, RankWait, WaitState
from peerlane.ranks.deadlock.board_records import BoardRecord
from peerlane.support.records import dataclass

if TYPE_CHECKING:
    from peerlane.ranks.deadlock.wait_state import Waits

MOST_SHOWN = 16  # ranks that a text shows


@dataclass(frozen=True, slots=True)
class Known:
    """A deadlock that this rank is in."""

    since_ns: int  #: when this rank learnt it
    ranks: Sequence[int]  #: the ranks that wait in vain
    text: str  #: the waits of all ranks; where the launcher shows these, the waits of this rank
    state: WaitState  #: the waits as data


@dataclass(frozen=True, slots=True)
class Graph:
    """The waits of all ranks of a deadlock."""

    ranks: Sequence[int]  #: the ranks that wait in vain
    #: ``head``, ``lines``: the parts of the text: the ranks that wait in vain; the waits of each rank.
    head: str
    lines: str
    state: WaitState  #: the waits as data
    own: str  #: the text about this rank's waits
    name: str  #: identifies the deadlock: the same in all of its ranks

    def report(self, since_ns: int) -> Known:
        """Let the launcher, if there is one, show the waits of all ranks; return what this rank raises.

        All ranks of the deadlock report before one raises: the wait of a rank may fail when another has ended.
        """
        from peerlane.rendezvous import reports  # a program without ranks needs no sockets

        whole = f"{self.head}\n{self.lines}"
        if reports.show(self.name, whole):
            text = f"{self.head} `peerlane launch` shows which rank waits for which; this rank:\n{self.own}"
            return Known(since_ns, self.ranks, text, replace(self.state, is_shown=True))
        return Known(since_ns, self.ranks, whole, self.state)


def end(known: Known, waits: Waits) -> None:
    """End the waits of this process."""
    state = known.state
    streams = tuple(each for each in stream_waits.streams() if each.before or each.of_awaited)
    if streams:
        state = replace(state, streams=streams)
    waits.end(progress.keep(known.text + "".join(wait_texts.past(streams)), state))


def head(ranks: Sequence[int], of: str) -> str:
    """Return the first line: the ranks that wait in vain; ``of`` names their group."""
    return f"a deadlock: {wait_texts.in_vain(ranks, of)}, and nothing there can run."


def lines(rank: int, pid: int, records: Sequence[BoardRecord]) -> list[str]:
    """Return the lines of the text about one rank."""
    name = f"rank {rank} (process {pid})"
    none = "no thread waits as this rank, and it has not closed its group"
    return [f"  {name}: {_in_words(each)}" for each in records] or [f"  {name}: {none}"]


def _in_words(record: BoardRecord) -> str:
    if isinstance(record, RankWait):
        return wait_texts.rank_wait(record)
    return wait_texts.failure(record) if isinstance(record, FailedBefore) else record


def state(records: Sequence[BoardRecord]) -> WaitState:
    """Return the records of ranks as a `WaitState`."""
    own = [each for each in records if isinstance(each, RankWait) and each.pid == os.getpid()]
    return WaitState(
        "ranks",
        next((thread.stream for each in own for thread in each.threads if thread.stream), 0),
        ranks=tuple(each for each in records if isinstance(each, RankWait)),
        failed=tuple(each for each in records if isinstance(each, FailedBefore)),
    )
