"""All-gather by reads: each rank puts a piece of its part into its own memory, and all others read it there.

Parts may have any sizes: a rank whose part has no more pieces puts nothing.  Each rank passes once over the whole
result, and once more over its own part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlane.collectives.pieces import pieces, pipelined
from peerlane.memory.copy import copy

if TYPE_CHECKING:
    from peerlane.collectives.workspace import Step, Workspace
    from peerlane.memory.buffer import Buffer
    from peerlane.streams.stream import Stream


def all_gather(
    work: Workspace, dst: Buffer, src: Buffer, at: list[int], sizes: list[int], stream: Stream | None
) -> None:
    """Gather the parts of all ranks in ``dst``, at the offsets ``at``; ``src`` may be this rank's part of it."""
    cuts = [pieces(nbytes, work.slot) for nbytes in sizes]
    steps: list[Step] = []

    def offer(number: int) -> None:
        step = work.board.begin(stream)
        steps.append(step)
        if number < len(cuts[work.rank]):
            first, last = cuts[work.rank][number]
            copy(step.mine(work.rank, last - first), src[first:last], stream=stream)
            for peer in work.others:
                step.tell_data(peer)

    def collect(number: int) -> None:
        step = steps[number]
        for peer in work.others:
            if number < len(cuts[peer]):
                first, last = cuts[peer][number]
                step.await_data(peer)
                step.read(peer, peer, dst[at[peer] + first : at[peer] + last])
        step.end()

    own = dst[at[work.rank] : at[work.rank] + src.size]
    if own.address != src.address:
        copy(own, src, stream=stream)
    pipelined(max(map(len, cuts)), offer, collect)
