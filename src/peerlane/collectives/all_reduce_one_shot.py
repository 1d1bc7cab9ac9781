"""All-reduce for small sizes: each rank writes all its bytes to all others, and each combines for itself.

It takes one exchange; each rank makes ``n - 1`` writes, ``n - 1`` reductions and one copy of the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlane.collectives.pieces import pieces
from peerlane.memory.copy import copy

if TYPE_CHECKING:
    from peerlane.collectives.folding import Operation
    from peerlane.collectives.workspace import Workspace
    from peerlane.memory.buffer import Buffer
    from peerlane.streams.stream import Stream


def one_shot(work: Workspace, dst: Buffer, src: Buffer, operation: Operation, stream: Stream | None) -> None:
    """Combine the ``src`` of all ranks into ``dst``."""
    for first, last in pieces(src.size, work.slot):
        own, step = src[first:last], work.board.begin(stream)
        for peer in work.others:
            step.write(peer, own)
        for peer in work.others:
            step.await_data(peer)
        slots = [step.mine(rank, last - first) for rank in range(work.size)]
        result = operation.fold(work.rank, work.size, own, slots.__getitem__, stream)
        copy(dst[first:last], result, stream=stream)
        step.end()
