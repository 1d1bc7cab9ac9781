"""Send and receive: pieces go through the sender's lane in the receiver's memory.

The sender writes the bytes once, the receiver copies them once; both work at the same time from the second piece on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlane.collectives.pieces import pieces
from peerlane.memory.copy import copy

if TYPE_CHECKING:
    from peerlane.collectives.workspace import Workspace
    from peerlane.memory.buffer import Buffer
    from peerlane.streams.stream import Stream


def send(work: Workspace, src: Buffer, peer: int, stream: Stream | None) -> None:
    """Send all of ``src``; bytes for which the lane has no room wait until the peer takes earlier ones."""
    for first, last in pieces(src.size, work.slot):
        work.lanes.send(peer, src[first:last], stream)


def receive(work: Workspace, dst: Buffer, peer: int, stream: Stream | None) -> None:
    """Receive all of ``dst``."""
    for first, last in pieces(dst.size, work.slot):
        copy(dst[first:last], work.lanes.take(peer, last - first, stream), stream=stream)
        work.lanes.let_go(peer, stream)
