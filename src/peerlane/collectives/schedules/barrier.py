"""Barrier: each rank tells all others that it has come, and waits for all of them; one exchange."""

from __future__ import annotations

from collections.abc import Iterator

from peerlane.collectives.schedules.operations import Arrive, AwaitArrival, Operation, Plan


def barrier(plan: Plan) -> Iterator[Operation]:
    """End when all ranks have come."""
    for peer in plan.others:
        yield Arrive(peer)
    for peer in plan.others:
        yield AwaitArrival(peer)
