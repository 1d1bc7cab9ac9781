"""Reduce: all write to the root, which combines.

Passes over the bytes: one write at each other rank; at the root ``n - 1`` reductions and a copy.
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
    """Have the combination of all ranks' ``src`` in the root's ``dst``."""
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
