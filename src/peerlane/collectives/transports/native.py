"""Calls of ranks on one machine, by native code: each is one operation of a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peerlane.collectives.call import Call
    from peerlane.collectives.workspace import Workspace
    from peerlane.streams.event import Event
    from peerlane.streams.stream import Stream


class _Native:
    def run_in_thread(self, work: Workspace, call: Call, before: Sequence[Event]) -> bool:
        """Return False: what did not begin at once waits better on a stream."""
        return False

    def lane_bytes(self, work: Workspace, call: Call) -> None:
        """Return None: no bytes go by lanes of the scratch memory."""


class InRounds(_Native):
    """Native code chooses a collective's schedule, and carries it out through memory that all ranks map."""

    def start(self, work: Workspace, call: Call, finish: Callable[[], None]) -> bool:
        """Make a call in this thread, or return False with nothing done, as :meth:`Rounds.run`."""
        is_begun: bool = work.rounds.run(*call.native, finish)
        return is_begun

    def queue(self, work: Workspace, call: Call, stream: Stream) -> None:
        """Queue a call."""
        work.rounds.queue(stream, work.timeout_ns, *call.native)


class ByMail(_Native):
    """Pieces of a message go through slots in the receiver's memory, or are read where they lie."""

    def start(self, work: Workspace, call: Call, finish: Callable[[], None]) -> bool:
        """Make a call in this thread, or return False with nothing done, as :meth:`Mails.run`."""
        is_begun: bool = work.mails.run(call.root, call.sends, call.buffer, finish)
        return is_begun

    def queue(self, work: Workspace, call: Call, stream: Stream) -> None:
        """Queue a call."""
        work.mails.queue(call.root, call.sends, stream, work.timeout_ns, call.buffer)
