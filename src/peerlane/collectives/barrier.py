"""Barrier: each rank notifies all others that it has come, and waits for all of them; one exchange.

Two notifies take turns.  A rank that has left a barrier knows that all have come to it; so all have left the barrier
before it, and have consumed that one's records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peerlane.collectives.workspace import Workspace
    from peerlane.streams.stream import Stream


def barrier(work: Workspace, stream: Stream | None) -> None:
    """Return when all ranks have come; with a stream, let that wait instead."""
    notify, channels = work.turn_of_barrier(), work.channels.everyone()
    for channel in channels:
        channel.notify(notify, stream=stream)
    for channel in channels:
        channel.wait(notify, stream=stream, timeout=work.timeout)
