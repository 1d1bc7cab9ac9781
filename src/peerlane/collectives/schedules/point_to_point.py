"""Send and receive: pieces go through the sender's lane in the receiver's memory.

The sender writes the bytes once, the receiver copies them once; both work at the same time from the second piece on.
"""

from __future__ import annotations

from collections.abc import Iterator

from peerlane.collectives.pieces import pieces
from peerlane.collectives.schedules import operations as ops


def send(plan: ops.Plan) -> Iterator[ops.Operation]:
    """Send all of the source; bytes for which the lane has no room wait until the peer takes earlier ones."""
    for first, last in pieces(plan.size, plan.slot):
        yield ops.Send(plan.root, ops.Source(first, last))


def receive(plan: ops.Plan) -> Iterator[ops.Operation]:
    """Receive all of the destination."""
    for first, last in pieces(plan.size, plan.slot):
        yield ops.Take(plan.root, last - first)
        yield ops.Copy(ops.Result(first, last), ops.Arrived(plan.root, 0, last - first))
        yield ops.LetGo(plan.root)
