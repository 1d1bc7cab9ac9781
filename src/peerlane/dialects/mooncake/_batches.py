"""Asynchronous transfers: each has a stream of its own, because the engine orders no two transfers."""

from __future__ import annotations

import contextlib
import time

from peerlane.diagnostics import call_site
from peerlane.diagnostics.log import event_log
from peerlane.dialects._shared.moves import End, Moves, Streams
from peerlane.dialects.mooncake._failures import refused
from peerlane.dialects.mooncake._peers import Peer
from peerlane.errors import Error, WaitTimeout


class Batch:
    """A transfer that has begun.

    ``streams``: where its stream is taken from.
    ``device``: the device of a new stream.
    ``is_eager``: whether the schedule is eager.
    ``size``: bytes.
    Raises Error: it was not begun.
    """

    def __init__(
        self, peer: Peer, moves: Moves, streams: Streams, device: int, *, is_eager: bool, size: int
    ) -> None:
        self.peer, self.size, self.site = peer, size, call_site.position()
        self.is_single = False  #: whether it is one of ``transfer_submit_write``
        self._moves, self._streams, self.start = moves, streams, time.monotonic()
        self._stream = stream = streams.take(device)
        try:
            moves.queue(stream)
            self._end = End(stream, is_eager)
        except BaseException:
            stream.abort(close=True)  # what was queued before the refusal
            raise

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it is under way any more."""
        with contextlib.suppress(Error):  # of a stream that has failed
            return self._end.event.is_done
        return True

    @property
    def is_over(self) -> bool:
        """Whether it is over; an ``Error`` or a ``Refusal`` if it has failed."""
        if not self._end.has_come():
            self.peer.check()
            return False
        self._finish()
        return True

    def wait(self, seconds: float) -> None:
        """Wait until it is over; an ``Error`` or a ``Refusal`` if it has failed, or is not over in time."""
        try:
            self._end.event.sync(max(self.start + seconds - time.monotonic(), 0.0))
        except WaitTimeout:
            raise refused(
                f"the transfer of {self.size:,} bytes with {self.peer.name!r} was not over in {seconds:g} s",
                "look what its process does, or set MC_TRANSFER_TIMEOUT to more seconds",
            ) from None
        except Error:  # the stream raises it
            pass
        self._finish()

    def _finish(self) -> None:
        self._moves.finish(self._stream)
        self.peer.check()

    def release(self) -> None:
        """End it, also if it is under way; a stream that is done serves later transfers."""
        if self._stream.is_closed:
            return
        # A later transfer on the same stream would come after this one in the log, which nothing promises.
        is_done = False
        with contextlib.suppress(Error):
            is_done = not event_log.active and self._end.is_known()
            if is_done:
                self._stream.sync()
        if is_done:
            self._streams.keep(self._stream)
        else:
            self._stream.abort(close=True)
