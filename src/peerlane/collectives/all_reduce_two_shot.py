"""All-reduce in two shots: every rank combines one share of each piece, and all read the others' results.

First shot: a rank writes its bytes of share i into the memory of rank i, which combines them there.  Second shot: it
reads each result from the rank that made it.  The pieces are so short that they are still in the caches when they are
combined; memory is read once and written once.  Of the whole, each rank writes ``(n - 1) / n``, combines
``(n - 1) / n`` and reads 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlane.collectives.pieces import pieces, pipelined, shares
from peerlane.memory.copy import copy

if TYPE_CHECKING:
    from peerlane.collectives.folding import Operation
    from peerlane.collectives.workspace import Step, Workspace
    from peerlane.memory.buffer import Buffer
    from peerlane.streams.stream import Stream


def two_shot(work: Workspace, dst: Buffer, src: Buffer, operation: Operation, stream: Stream | None) -> None:
    """Combine the ``src`` of all ranks into ``dst``."""
    rank, size = work.rank, work.size
    cuts = [shares(first, last, size) for first, last in pieces(src.size, work.slot * size)]
    steps: list[Step] = []

    def hand_out(number: int) -> None:
        step = work.board.begin(stream)
        steps.append(step)
        for peer in work.others:
            first, last = cuts[number][peer]
            step.write(peer, src[first:last])

    def combine(number: int) -> None:
        step, (first, last) = steps[number], cuts[number][rank]
        for peer in work.others:
            step.await_data(peer)
        slots = [step.mine(each, last - first) for each in range(size)]
        result = operation.fold(rank, size, src[first:last], slots.__getitem__, stream)
        for peer in work.others:
            step.tell_result(peer)
        copy(dst[first:last], result, stream=stream)

    def collect(number: int) -> None:
        step = steps[number]
        for peer in work.others:
            first, last = cuts[number][peer]
            step.await_result(peer)
            step.read(peer, 0, dst[first:last])
        step.end()

    pipelined(len(cuts), hand_out, combine, collect)
