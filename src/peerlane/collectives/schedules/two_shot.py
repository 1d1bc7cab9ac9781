"""All-reduce in two shots: every rank combines one share of each piece, and all read the others' results.

First shot: a rank writes its bytes of share i into the memory of rank i, which combines them there.  Second shot: it
reads each result from the rank that combined it.  The pieces are so short that they are still in the caches when they
are combined; memory is read once and written once.  Of the whole, each rank writes ``(n - 1) / n``, combines
``(n - 1) / n`` and reads 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from peerlane.collectives.pieces import pieces, pipelined, shares
from peerlane.collectives.schedules.operations import (
    Await,
    Begin,
    Copy,
    End,
    Operation,
    Plan,
    Read,
    Result,
    Signal,
    Slot,
    Source,
    Tell,
    WriteAndTell,
    folded,
)


def two_shot(plan: Plan) -> Iterator[Operation]:
    """Combine the sources of all ranks in each of them."""
    rank, others = plan.rank, plan.others
    cuts = [shares(first, last, plan.ranks) for first, last in pieces(plan.size, plan.slot * plan.ranks)]

    def hand_out(number: int) -> Iterator[Operation]:
        yield Begin(number)
        for peer in others:
            yield WriteAndTell(number, peer, Source(*cuts[number][peer]))

    def combine(number: int) -> Iterator[Operation]:
        first, last = cuts[number][rank]
        for peer in others:
            yield Await(number, peer)
        yield from folded(plan, number, Source(first, last))
        for peer in others:
            yield Tell(number, peer, Signal.RESULT)
        yield Copy(Result(first, last), Slot(number, 0, 0, last - first))

    def collect(number: int) -> Iterator[Operation]:
        for peer in others:
            yield Await(number, peer, Signal.RESULT)
            yield Read(number, peer, 0, Result(*cuts[number][peer]))
        yield End(number)

    return pipelined(len(cuts), hand_out, combine, collect)
