"""All-reduce for small sizes: each rank writes all its bytes to all others, and each combines for itself.

It takes one exchange; each rank makes ``n - 1`` writes, ``n - 1`` reductions and one copy of the whole.
"""

from __future__ import annotations

from collections.abc import Iterator

from peerlane.collectives.pieces import pieces
from peerlane.collectives.schedules.operations import (
    Await,
    Begin,
    Copy,
    End,
    Operation,
    Plan,
    Result,
    Slot,
    Source,
    WriteAndTell,
    folded,
)


def one_shot(plan: Plan) -> Iterator[Operation]:
    """Combine the sources of all ranks in each of them."""
    for number, (first, last) in enumerate(pieces(plan.size, plan.slot)):
        own = Source(first, last)
        yield Begin(number)
        for peer in plan.others:
            yield WriteAndTell(number, peer, own)
        for peer in plan.others:
            yield Await(number, peer)
        yield from folded(plan, number, own)
        yield Copy(Result(first, last), Slot(number, 0, 0, last - first))
        yield End(number)
