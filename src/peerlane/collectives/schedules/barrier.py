"""Barrier: each rank tells all others that it has come, and waits for all of them; one exchange."""

from __future__ import annotations

from collections.abc import Iterator

from peerlane.collectives.schedules import operations as ops


def barrier(plan: ops.Plan) -> Iterator[ops.Operation]:
    """End when all ranks have come."""
    for peer in plan.others:
        yield ops.Arrive(peer)
    for peer in plan.others:
        yield ops.AwaitArrival(peer)
