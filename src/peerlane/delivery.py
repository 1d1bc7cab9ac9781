"""What a channel may put off: under ``seeded``, bytes and notifies travel apart from the stream that sent them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from peerlane import _core, copies
from peerlane.device import Host

if TYPE_CHECKING:
    import numpy.typing as npt

    from peerlane.buffer import Buffer
    from peerlane.device import Device
    from peerlane.notify import Notify
    from peerlane.stream import Stream


class Delivery:
    """What one stream has given to one channel and the peer need not have yet.

    The stream gives the bytes away, into memory of this object, so that later operations may change the source; they
    reach the peer in the order of one channel and stream, and in none with others.

    Parameters
    ----------
    device : Device
        Of the channel.
    """

    def __init__(self, device: Device) -> None:
        self.stream = device.create_stream()

    def write(self, stream: Stream, target: Buffer, at: int, source: Buffer) -> None:
        """Take the bytes when the stream comes to it, and bring them some time later."""
        with self._given(stream, source) as given:
            _core.put(self.stream, target, at, given)

    def reduce(self, stream: Stream, target: Buffer, source: Buffer, dtype: npt.DTypeLike, op: str) -> None:
        """As :meth:`write`; the bytes are combined with those that are there."""
        with self._given(stream, source) as given:
            copies.reduce(target, given, dtype=dtype, op=op, stream=self.stream)

    def write_blocks(self, stream: Stream, target: Buffer, source: Buffer, table: Any) -> None:
        """As :meth:`write`, of blocks."""
        with self._given(stream, source) as given:
            _core.copy_blocks(self.stream, target, given, table)

    @contextlib.contextmanager
    def _given(self, stream: Stream, source: Buffer) -> Iterator[Buffer]:
        copy = Host().allocate(max(source.size, 1))
        try:
            given = copy[: source.size]
            _core.put(stream, given, 0, source)
            self.stream.wait(stream)
            yield given
        finally:
            copy.close(stream=self.stream)

    def notify(self, stream: Stream, line: Notify) -> None:
        """Record a notify behind all that was given before."""
        self.stream.wait(stream)
        self.stream._record_notify(line)

    def settle(self, stream: Stream) -> None:
        """Let the stream wait until all that it gave is there."""
        stream.wait(self.stream)
