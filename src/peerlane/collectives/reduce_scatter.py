"""Reduce-scatter: each rank writes to all others what is in their parts, and combines its own part.

Passes at each rank over a source of n parts: ``(n - 1) / n`` written, ``(n - 1) / n`` combined, ``1 / n`` copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlane.collectives.pieces import pieces, pipelined
from peerlane.copies import copy

if TYPE_CHECKING:
    from peerlane.buffer import Buffer
    from peerlane.collectives.folding import Operation
    from peerlane.collectives.workspace import Step, Workspace
    from peerlane.stream import Stream


def reduce_scatter(
    work: Workspace, dst: Buffer, src: Buffer, operation: Operation, stream: Stream | None
) -> None:
    """Have the combination of this rank's parts in ``dst``, which may be this rank's part of ``src``."""
    rank, each, cuts = work.rank, dst.size, pieces(dst.size, work.slot)
    steps: list[Step] = []

    def hand_out(number: int) -> None:
        first, last = cuts[number]
        step = work.board.begin(stream)
        steps.append(step)
        for peer in work.others:
            step.write(peer, src[peer * each + first : peer * each + last])

    def combine(number: int) -> None:
        (first, last), step = cuts[number], steps[number]
        for peer in work.others:
            step.await_data(peer)
        own = src[rank * each + first : rank * each + last]
        slots = [step.mine(one, last - first) for one in range(work.size)]
        copy(dst[first:last], operation.fold(rank, work.size, own, slots.__getitem__, stream), stream=stream)
        step.end()

    pipelined(len(cuts), hand_out, combine)
