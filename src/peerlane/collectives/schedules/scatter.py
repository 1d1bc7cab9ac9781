"""Scatter: the root writes each rank's part into that rank's memory, which copies it out.

The root writes each part once, and its rank copies it once.
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
)


def scatter(plan: Plan) -> Iterator[Operation]:
    """Give each rank its part of the root's source."""
    root, each = plan.root, plan.size
    for number, (first, last) in enumerate(pieces(each, plan.slot)):
        yield Begin(number)
        if plan.rank == root:
            for peer in plan.others:
                yield WriteAndTell(number, peer, Source(peer * each + first, peer * each + last))
            yield Copy(Result(first, last), Source(root * each + first, root * each + last))
        else:
            yield Await(number, root)
            yield Copy(Result(first, last), Slot(number, root, 0, last - first))
        yield End(number)
