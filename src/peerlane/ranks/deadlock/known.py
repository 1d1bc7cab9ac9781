"""A deadlock of ranks that this process knows of: its text, and how its waits end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from peerlane.diagnostics import progress, wait_state, wait_texts
from peerlane.errors import Error, FailedBefore, RankWait, WaitState
from peerlane.ranks.deadlock.said import Said
from peerlane.support.records import dataclass

if TYPE_CHECKING:
    from peerlane.ranks.deadlock.wait_state import Waits
    from peerlane.rendezvous import Rendezvous

MOST_SHOWN = 16  # ranks that a text shows


@dataclass(frozen=True, slots=True)
class Known:
    """A deadlock that this rank is in.

    Attributes
    ----------
    since_ns : int
        When this rank learnt of it.
    ranks : sequence of int
        The ranks that wait in vain.
    head, lines : str
        The parts of the text: the ranks that wait in vain; the waits of each rank.
    state : WaitState
        The waits as data.
    own : str
        The text about this rank's waits.
    name : str
        Identifies the deadlock: the same in all of its ranks.
    """

    since_ns: int
    ranks: Sequence[int]
    head: str
    lines: str
    state: WaitState
    own: str
    name: str

    @property
    def graph(self) -> str:
        """The whole text."""
        return f"{self.head}\n{self.lines}"


def end(line: Rendezvous, known: Known, waits: Waits) -> None:
    """End the waits of this process; let the launcher show the waits of all ranks."""
    graph, state = known.graph, known.state
    streams = tuple(each for each in wait_state.streams() if each.before or each.of_awaited)
    if streams:
        state = replace(state, streams=streams)
    if _is_launched(line) and _report(line, known):
        graph = f"{known.head} `peerlane launch` shows which rank waits for which; this rank:\n{known.own}"
        state = replace(state, is_shown=True)
    waits.end(progress.keep(graph + "".join(wait_texts.past(streams)), state))


def _is_launched(line: Rendezvous) -> bool:
    from peerlane.rendezvous.reports import LAUNCHED

    return os.environ.get(LAUNCHED) == line.address


def _report(line: Rendezvous, known: Known) -> bool:
    """Let the launcher show it, once for all ranks that report it; return whether the server has the report."""
    from peerlane.rendezvous.reports import SHOWN_KEY

    try:
        line.put(SHOWN_KEY + known.name, known.graph.encode(errors="replace"))
    except Error:  # the server has ended, or does not answer
        return False
    return True


def head(ranks: Sequence[int], of: str) -> str:
    """Return the first line: the ranks that wait in vain; ``of`` names their group."""
    waits = f"wait{'s' if len(ranks) == 1 else ''} in vain"
    return f"a deadlock: {wait_texts.ranks(ranks)}{of} {waits}, and nothing there can run."


def lines(rank: int, pid: int, said: Sequence[Said]) -> list[str]:
    """Return the lines of the text about one rank."""
    name = f"rank {rank} (process {pid})"
    none = "no thread waits as this rank, and it has not closed its group"
    return [f"  {name}: {_in_words(each)}" for each in said] or [f"  {name}: {none}"]


def _in_words(said: Said) -> str:
    if isinstance(said, RankWait):
        return wait_texts.rank_wait(said)
    return wait_texts.failure(said) if isinstance(said, FailedBefore) else said


def state(said: Sequence[Said]) -> WaitState:
    """Return the records of ranks as a `WaitState`."""
    own = [each for each in said if isinstance(each, RankWait) and each.pid == os.getpid()]
    return WaitState(
        "ranks",
        next((thread.stream for each in own for thread in each.threads if thread.stream), 0),
        ranks=tuple(each for each in said if isinstance(each, RankWait)),
        failed=tuple(each for each in said if isinstance(each, FailedBefore)),
    )
