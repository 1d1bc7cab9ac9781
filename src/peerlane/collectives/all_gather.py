"""All-gather, pulled: each rank lays a piece of its part into its own memory, and all others read it there.

Passes over the whole result, at each rank: one, and one more over its own part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlane.collectives.pieces import pieces, pipelined
from peerlane.copies import copy

if TYPE_CHECKING:
    from peerlane.buffer import Buffer
    from peerlane.collectives.workspace import Workspace
    from peerlane.stream import Stream


def all_gather(work: Workspace, dst: Buffer, src: Buffer, stream: Stream | None) -> None:
    """Have the parts of all ranks side by side in ``dst``; ``src`` may be this rank's part of it."""
    each, cuts, steps = src.size, pieces(src.size, work.slot), []

    def offer(number: int) -> None:
        first, last = cuts[number]
        step = work.board.begin(stream)
        steps.append(step)
        copy(step.mine(work.rank, last - first), src[first:last], stream=stream)
        for peer in work.others:
            step.tell_data(peer)

    def collect(number: int) -> None:
        (first, last), step = cuts[number], steps[number]
        for peer in work.others:
            step.await_data(peer)
            step.read(peer, peer, dst[peer * each + first : peer * each + last])
        step.end()

    own = dst[work.rank * each : (work.rank + 1) * each]
    if own.address != src.address:
        copy(own, src, stream=stream)
    pipelined(len(cuts), offer, collect)
