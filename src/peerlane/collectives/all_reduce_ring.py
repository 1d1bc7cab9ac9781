"""All-reduce on a ring, in the order of ranks: partial results travel from rank 0 up, and the result once more round.

Each rank combines its own into what comes from the one before and sends it on; the last one has the result, which
goes to rank 0 and on from there.  Each rank talks to its two neighbours only.  The usual ring begins each share at
another rank, and so combines in as many orders; this one gives the bits of the other algorithms.  Passes at each
rank: 2 written, 1 combined, 1 copied; latency of ``2 n - 2`` exchanges.
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


def ring(work: Workspace, dst: Buffer, src: Buffer, operation: Operation, stream: Stream | None) -> None:
    """Have the combination of all ranks' ``src`` in ``dst``."""
    rank, end, lanes = work.rank, work.size - 1, work.lanes
    after, before = (rank + 1) % work.size, (rank - 1) % work.size
    cuts = pieces(src.size, work.slot)

    def up(number: int) -> None:
        first, last = cuts[number]
        if rank == 0:
            lanes.send(after, src[first:last], stream)
            return
        partial = lanes.take(before, last - first, stream)
        operation.combine(partial, src[first:last], stream)
        lanes.send(after, partial, stream)
        if rank == end:
            copy(dst[first:last], partial, stream=stream)
        lanes.let_go(before, stream)

    def round_again(number: int) -> None:
        first, last = cuts[number]
        if rank == end:
            return
        result = lanes.take(before, last - first, stream)
        if after != end:
            lanes.send(after, result, stream)
        copy(dst[first:last], result, stream=stream)
        lanes.let_go(before, stream)

    # As many pieces as there are lanes go ahead of the first result; many more would fill all lanes and stop.
    ahead = end
    for number in range(len(cuts) + ahead):
        if number < len(cuts):
            up(number)
        if number >= ahead:
            round_again(number - ahead)


def ring_pairs(rank: int, size: int, nbytes: int) -> tuple[list[int], list[int]]:
    """Return the bytes that come through the lane from each rank, and go to each: up, and round once more."""
    end = size - 1
    takes, gives = [0] * size, [0] * size
    takes[rank - 1] = nbytes * ((rank > 0) + (rank != end))
    gives[(rank + 1) % size] = nbytes * ((rank != end) + (rank != end - 1))
    return takes, gives
