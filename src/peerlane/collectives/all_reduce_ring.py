"""All-reduce on a ring, in the order of ranks: partial results travel up from rank 0, then the result goes round.

Each rank combines its elements into the partial result of the rank before it, and sends that on.  The last rank has
the result; it goes to rank 0 and on from there.  Each rank talks only to its two neighbours.  The usual ring begins
each share at another rank and so combines in several orders; this one gives the same bits as the other algorithms.
Each rank writes 2 times the bytes, combines them once and copies them once; the latency is ``2 n - 2`` exchanges.
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
    """Combine the ``src`` of all ranks into ``dst``."""
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

    # One piece for each lane of the ring goes ahead of the first result: many more would fill the lanes and deadlock.
    ahead = end
    for number in range(len(cuts) + ahead):
        if number < len(cuts):
            up(number)
        if number >= ahead:
            round_again(number - ahead)


def ring_pairs(rank: int, size: int, nbytes: int) -> tuple[list[int], list[int]]:
    """Return the bytes that come through the lane from each rank, and go to each, over both rounds."""
    end = size - 1
    takes, gives = [0] * size, [0] * size
    takes[rank - 1] = nbytes * ((rank > 0) + (rank != end))
    gives[(rank + 1) % size] = nbytes * ((rank != end) + (rank != end - 1))
    return takes, gives
