"""Send and receive: pieces go through the sender's lane in the receiver's memory.

The sender writes the bytes once, the receiver copies them once; both work at the same time from the second piece on.
"""

from __future__ import annotations

from collections.abc import Iterator

from peerlane.collectives.pieces import pieces
from peerlane.collectives.schedules.operations import (
    Arrived,
    Copy,
    LetGo,
    Operation,
    Plan,
    Result,
    Send,
    Source,
    Take,
)


def send(plan: Plan) -> Iterator[Operation]:
    """Send all of the source; bytes for which the lane has no room wait until the peer takes earlier ones."""
    for first, last in pieces(plan.size, plan.slot):
        yield Send(plan.root, Source(first, last))


def receive(plan: Plan) -> Iterator[Operation]:
    """Receive all of the destination."""
    for first, last in pieces(plan.size, plan.slot):
        yield Take(plan.root, last - first)
        yield Copy(Result(first, last), Arrived(plan.root, 0, last - first))
        yield LetGo(plan.root)
