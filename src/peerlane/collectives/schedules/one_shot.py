"""All-reduce for small sizes: each rank writes all its bytes to all others, and each combines for itself.

It takes one exchange; each rank makes ``n - 1`` writes, ``n - 1`` reductions and one copy of the whole.
"""

from __future__ import annotations

from collections.abc import Iterator

from peerlane.collectives.pieces import pieces
from peerlane.collectives.schedules import operations as ops


def one_shot(plan: ops.Plan) -> Iterator[ops.Operation]:
    """Combine the sources of all ranks in each of them."""
    others = plan.others
    for number, (first, last) in enumerate(pieces(plan.size, plan.slot)):
        own = ops.Source(first, last)
        yield ops.Begin(number)
        for peer in others:
            yield ops.WriteAndNotify(number, peer, own)
        for peer in others:
            yield ops.Await(number, peer)
        yield from ops.folded(plan, number, own)
        yield ops.Copy(ops.Result(first, last), ops.Slot(number, 0, 0, last - first))
        yield ops.End(number)
