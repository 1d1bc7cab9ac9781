"""All-to-all with parts of any sizes: in each round a rank sends a piece to every other rank, then takes one of each.

All ranks send before they take, so that the rounds cannot deadlock.  Each begins with the rank after it, so that they
do not all write to one rank at once.  Outgoing bytes are written once; incoming bytes are copied once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlane.collectives.pieces import pieces
from peerlane.memory.copy import copy

if TYPE_CHECKING:
    from peerlane.collectives.in_rounds import Parts
    from peerlane.collectives.workspace import Workspace
    from peerlane.memory.buffer import Buffer
    from peerlane.streams.stream import Stream


def all_to_all(
    work: Workspace, dst: Buffer, src: Buffer, takes: Parts, gives: Parts, stream: Stream | None
) -> None:
    """Receive a part of ``src`` of each rank in the part of ``dst`` that is for it."""
    incoming, outgoing = (
        [whole[at : at + nbytes] for at, nbytes in zip(*parts, strict=True)]
        for whole, parts in ((dst, takes), (src, gives))
    )
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
