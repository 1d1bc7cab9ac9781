"""Send and receive: pieces through the sender's lane in the receiver's memory.

Passes over the bytes: one write at the sender, one copy at the receiver, side by side from the second piece on.
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
    """Send all of ``src``; what is more than the lane has room for goes when the peer takes it."""
    for first, last in pieces(src.size, work.slot):
        work.lanes.send(peer, src[first:last], stream)


def receive(work: Workspace, dst: Buffer, peer: int, stream: Stream | None) -> None:
    """Receive all of ``dst``."""
    for first, last in pieces(dst.size, work.slot):
        copy(dst[first:last], work.lanes.take(peer, last - first, stream), stream=stream)
        work.lanes.let_go(peer, stream)
