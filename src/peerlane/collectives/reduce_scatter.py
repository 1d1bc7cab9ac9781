"""Reduce-scatter: each rank writes the others' parts to them, and combines its own part.

Parts may have any sizes: nothing is written to a rank whose part has no more pieces.  Of a source of n equal parts,
each rank writes ``(n - 1) / n``, combines ``(n - 1) / n`` and copies ``1 / n``.
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


def reduce_scatter(
    work: Workspace,
    dst: Buffer,
    src: Buffer,
    at: list[int],
    sizes: list[int],
    operation: Operation,
    stream: Stream | None,
) -> None:
    """Combine this rank's part of all ranks' ``src`` into ``dst``; ``at`` has the offsets of the parts in ``src``."""
    rank, cuts = work.rank, [pieces(nbytes, work.slot) for nbytes in sizes]
    steps: list[Step] = []

    def hand_out(number: int) -> None:
        step = work.board.begin(stream)
        steps.append(step)
        for peer in work.others:
            if number < len(cuts[peer]):
                first, last = cuts[peer][number]
                step.write(peer, src[at[peer] + first : at[peer] + last])

    def combine(number: int) -> None:
        step = steps[number]
        if number < len(cuts[rank]):
            first, last = cuts[rank][number]
            for peer in work.others:
                step.await_data(peer)
            own = src[at[rank] + first : at[rank] + last]
            slots = [step.mine(one, last - first) for one in range(work.size)]
            result = operation.fold(rank, work.size, own, slots.__getitem__, stream)
            copy(dst[first:last], result, stream=stream)
        step.end()

    pipelined(max(map(len, cuts)), hand_out, combine)
