"""Reduce: all ranks write to the root, which combines.

Each other rank writes the bytes once; the root makes ``n - 1`` reductions and one copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlane.collectives.pieces import pieces, pipelined
from peerlane.memory.copy import copy

if TYPE_CHECKING:
    from peerlane.collectives.folding import Operation
    from peerlane.collectives.workspace import Step, Workspace
    from peerlane.memory.buffer import Buffer
    from peerlane.streams.stream import Stream


def reduce_to_root(
    work: Workspace, dst: Buffer | None, src: Buffer, operation: Operation, root: int, stream: Stream | None
) -> None:
    """Combine the ``src`` of all ranks into the root's ``dst``."""
    cuts = pieces(src.size, work.slot)
    steps: list[Step] = []

    def hand_in(number: int) -> None:
        first, last = cuts[number]
        steps.append(work.board.begin(stream))
        if work.rank != root:
            steps[number].write(root, src[first:last])

    def combine(number: int) -> None:
        (first, last), step = cuts[number], steps[number]
        if dst is not None:
            for peer in work.others:
                step.await_data(peer)
            slots = [step.mine(rank, last - first) for rank in range(work.size)]
            result = operation.fold(root, work.size, src[first:last], slots.__getitem__, stream)
            copy(dst[first:last], result, stream=stream)
        step.end()

    pipelined(len(cuts), hand_in, combine)
