"""Messages between ranks of one machine, which native code makes: each is one operation of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peerlane.collectives.workspace import Workspace
    from peerlane.memory.buffer import Buffer
    from peerlane.streams.stream import Stream


class ByMail:
    """A message to a rank or from it, to be called like the other algorithms.

    Parameters
    ----------
    sends : bool
    """

    def __init__(self, *, sends: bool) -> None:
        self.sends = sends

    def __call__(self, work: Workspace, whole: Buffer, peer: int, stream: Stream) -> None:
        """Queue it on the stream."""
        work.mails.queue(peer, self.sends, stream, work.timeout_ns, whole)


send, receive = ByMail(sends=True), ByMail(sends=False)
