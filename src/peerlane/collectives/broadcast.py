"""Broadcast by reads: the root puts a piece into its own memory, and all others read it there at the same time.

The root passes over the bytes once, and so does each other rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlane.collectives.pieces import pieces
from peerlane.memory.copy import copy

if TYPE_CHECKING:
    from peerlane.collectives.workspace import Workspace
    from peerlane.memory.buffer import Buffer
    from peerlane.streams.stream import Stream


def broadcast(work: Workspace, buffer: Buffer, root: int, stream: Stream | None) -> None:
    """Copy the root's bytes into the buffers of all ranks."""
    for first, last in pieces(buffer.size, work.slot):
        step = work.board.begin(stream)
        if work.rank == root:
            copy(step.mine(root, last - first), buffer[first:last], stream=stream)
            for peer in work.others:
                step.tell_data(peer)
        else:
            step.await_data(root)
            step.read(root, root, buffer[first:last])
        step.end()
