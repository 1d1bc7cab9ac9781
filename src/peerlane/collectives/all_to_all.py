"""All-to-all, parts of any sizes: in each round a rank sends a piece to every other, then takes one of each.

All send before they take, so the rounds cannot deadlock; a rank begins with the next one, so not all write to the
same.  Passes over what leaves a rank: one write; over what comes: one copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlane.collectives.pieces import pieces
from peerlane.memory.copy import copy

if TYPE_CHECKING:
    from peerlane.collectives.workspace import Workspace
    from peerlane.memory.buffer import Buffer
    from peerlane.streams.stream import Stream


def all_to_all(
    work: Workspace, incoming: list[Buffer], outgoing: list[Buffer], stream: Stream | None
) -> None:
    """Have each rank's ``outgoing[me]`` in ``incoming[rank]``."""
    sent = {peer: pieces(outgoing[peer].size, work.slot) for peer in work.others}
    taken = {peer: pieces(incoming[peer].size, work.slot) for peer in work.others}
    copy(incoming[work.rank], outgoing[work.rank], stream=stream)
    rounds = max(map(len, [*sent.values(), *taken.values()]))
    for number in range(rounds):
        for peer in work.others:
            if number < len(sent[peer]):
                first, last = sent[peer][number]
                work.lanes.send(peer, outgoing[peer][first:last], stream)
        for peer in reversed(work.others):
            if number < len(taken[peer]):
                first, last = taken[peer][number]
                copy(incoming[peer][first:last], work.lanes.take(peer, last - first, stream), stream=stream)
                work.lanes.let_go(peer, stream)
