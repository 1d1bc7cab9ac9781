"""Scatter: the root writes each rank's part into that rank's memory, which copies it out.

The root writes each part once, and its rank copies it once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlane.collectives.pieces import pieces
from peerlane.memory.copy import copy

if TYPE_CHECKING:
    from peerlane.collectives.workspace import Workspace
    from peerlane.memory.buffer import Buffer
    from peerlane.streams.stream import Stream


def scatter(work: Workspace, dst: Buffer, src: Buffer | None, root: int, stream: Stream | None) -> None:
    """Copy this rank's part of the root's ``src`` into ``dst``, which may be that part."""
    each = dst.size
    for first, last in pieces(each, work.slot):
        step = work.board.begin(stream)
        if src is None:
            step.await_data(root)
            copy(dst[first:last], step.mine(root, last - first), stream=stream)
        else:
            for peer in work.others:
                step.write(peer, src[peer * each + first : peer * each + last])
            own = src[root * each + first : root * each + last]
            if own.address != dst.address + first:
                copy(dst[first:last], own, stream=stream)
        step.end()
