"""All-reduce on a ring, in the order of ranks: partial results travel up from rank 0, then the result goes round.

Each rank combines its elements into the partial result of the rank before it, and sends that on.  The last rank has
the result; it goes to rank 0 and on from there.  Each rank talks only to its two neighbours.  The usual ring begins
each share at another rank and so combines in several orders; this one gives the same bits as the other algorithms.
Each rank writes 2 times the bytes, combines them once and copies them once; the latency is ``2 n - 2`` exchanges.
"""

from __future__ import annotations

from collections.abc import Iterator

from peerlane.collectives.pieces import pieces
from peerlane.collectives.schedules import operations as ops


def ring(plan: ops.Plan) -> Iterator[ops.Operation]:
    """Combine the sources of all ranks in each of them."""
    rank, end = plan.rank, plan.ranks - 1
    after, before = (rank + 1) % plan.ranks, (rank - 1) % plan.ranks
    cuts = pieces(plan.size, plan.slot)

    def up(first: int, last: int) -> Iterator[ops.Operation]:
        own = ops.Source(first, last)
        if rank == 0:
            yield ops.Send(after, own)
            return
        partial = ops.Arrived(before, 0, last - first)
        yield ops.Take(before, last - first)
        yield ops.Combine(partial, own)
        yield ops.Send(after, partial)
        if rank == end:
            yield ops.Copy(ops.Result(first, last), partial)
        yield ops.LetGo(before)

    def round_again(first: int, last: int) -> Iterator[ops.Operation]:
        if rank == end:
            return
        result = ops.Arrived(before, 0, last - first)
        yield ops.Take(before, last - first)
        if after != end:
            yield ops.Send(after, result)
        yield ops.Copy(ops.Result(first, last), result)
        yield ops.LetGo(before)

    # One piece for each lane of the ring goes ahead of the first result: many more would fill the lanes and deadlock.
    ahead = end
    for number in range(len(cuts) + ahead):
        if number < len(cuts):
            yield from up(*cuts[number])
        if number >= ahead:
            yield from round_again(*cuts[number - ahead])
