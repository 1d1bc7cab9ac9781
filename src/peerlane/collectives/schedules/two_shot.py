"""All-reduce in two shots: every rank combines one share of each piece, and all read the others' results.

First shot: a rank writes its bytes of share i into the memory of rank i, which combines them there.  Second shot: it
reads each result from the rank that combined it.  The pieces are so short that they are still in the caches when they
are combined; memory is read once and written once.  Of the whole, each rank writes ``(n - 1) / n``, combines
``(n - 1) / n`` and reads 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from peerlane.collectives.pieces import pieces, pipelined, shares
from peerlane.collectives.schedules import operations as ops


def two_shot(plan: ops.Plan) -> Iterator[ops.Operation]:
    """Combine the sources of all ranks in each of them."""
    rank, others = plan.rank, plan.others
    cuts = [shares(first, last, plan.ranks) for first, last in pieces(plan.size, plan.slot * plan.ranks)]

    def hand_out(number: int) -> Iterator[ops.Operation]:
        yield ops.Begin(number)
        for peer in others:
            yield ops.WriteAndNotify(number, peer, ops.Source(*cuts[number][peer]))

    def combine(number: int) -> Iterator[ops.Operation]:
        first, last = cuts[number][rank]
        for peer in others:
            yield ops.Await(number, peer)
        yield from ops.folded(plan, number, ops.Source(first, last))
        for peer in others:
            yield ops.Notify(number, peer, ops.Signal.RESULT)
        yield ops.Copy(ops.Result(first, last), ops.Slot(number, 0, 0, last - first))

    def collect(number: int) -> Iterator[ops.Operation]:
        for peer in others:
            yield ops.Await(number, peer, ops.Signal.RESULT)
            yield ops.Read(number, peer, 0, ops.Result(*cuts[number][peer]))
        yield ops.End(number)

    return pipelined(len(cuts), hand_out, combine, collect)
