"""Scatter: the root writes each rank's part into that rank's memory, which copies it out.

The root writes each part once, and its rank copies it once.
"""

from __future__ import annotations

from collections.abc import Iterator

from peerlane.collectives.pieces import pieces
from peerlane.collectives.schedules import operations as ops


def scatter(plan: ops.Plan) -> Iterator[ops.Operation]:
    """Give each rank its part of the root's source."""
    root, each = plan.root, plan.size
    for number, (first, last) in enumerate(pieces(each, plan.slot)):
        yield ops.Begin(number)
        if plan.rank == root:
            for peer in plan.others:
                yield ops.WriteAndNotify(number, peer, ops.Source(peer * each + first, peer * each + last))
            yield ops.Copy(ops.Result(first, last), ops.Source(root * each + first, root * each + last))
        else:
            yield ops.Await(number, root)
            yield ops.Copy(ops.Result(first, last), ops.Slot(number, root, 0, last - first))
        yield ops.End(number)
