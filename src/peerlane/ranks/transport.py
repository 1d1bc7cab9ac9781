"""How the operations of a channel reach the peer's memory and notifies: in memory that both map, or by messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from peerlane.errors import InvalidValue, Refused
from peerlane.memory import copy
from peerlane.memory.far_buffer import FarBuffer
from peerlane.node.device import Host
from peerlane.support import reductions

if TYPE_CHECKING:
    import numpy.typing as npt

    from peerlane.backend.ranks import FarEnd, Ranks
    from peerlane.memory.buffer import Buffer
    from peerlane.streams.notify import Notify, NotifyKind
    from peerlane.streams.stream import Stream


class FarNotify(NamedTuple):
    """A notify that a peer on another machine waits for."""

    number: int
    kind: NotifyKind
    bank: int  #: what event logs call the notifies of the peer's end


class FarNotifies:
    """The notifies that a peer on another machine waits for: they are the peer's, and end with its channel.

    ``count``: how many.
    """

    first_id = 0  # they have no ids in this process

    def __init__(self, count: int, kind: NotifyKind, bank: int) -> None:
        self._count, self._kind, self._bank = count, kind, bank

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        return FarNotify(index, self._kind, self._bank)

    def unconsumed(self) -> list[int]:
        return []

    def abandon(self) -> None: ...

    def close(self) -> None: ...


class Transport(Protocol):
    """Operations between this rank's memory and the peer's: on a stream, or complete on return if it is None.

    ``notify``: a notify of the peer that is recorded behind the operation.
    """

    def put(
        self, stream: Stream | None, target: Buffer, at: int, source: Buffer, notify: Any = None
    ) -> None: ...
    def get(self, stream: Stream | None, target: Buffer, source: Buffer, at: int) -> None: ...
    def reduce(
        self,
        stream: Stream | None,
        target: Buffer,
        source: Buffer,
        dtype: npt.DTypeLike,
        op: str,
        notify: Any = None,
    ) -> None: ...
    def fetch_reduce(
        self, stream: Stream | None, target: Buffer, source: Buffer, dtype: npt.DTypeLike, op: str
    ) -> None: ...
    def put_blocks(
        self, stream: Stream | None, target: Buffer, source: Buffer, table: Any, notify: Any = None
    ) -> None: ...
    def get_blocks(self, stream: Stream | None, target: Buffer, source: Buffer, table: Any) -> None: ...
    def record(self, stream: Stream | None, notify: Any) -> None: ...


class MappedTransport:
    """The peer's memory is mapped in this process."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def put(
        self, stream: Stream | None, target: Buffer, at: int, source: Buffer, notify: Notify | None = None
    ) -> None:
        self._ranks.put(stream, target, at, source)
        if notify is not None:
            self.record(stream, notify)

    def get(self, stream: Stream | None, target: Buffer, source: Buffer, at: int) -> None:
        self._ranks.get(stream, target, source, at)

    def reduce(
        self,
        stream: Stream | None,
        target: Buffer,
        source: Buffer,
        dtype: npt.DTypeLike,
        op: str,
        notify: Notify | None = None,
    ) -> None:
        copy.reduce(target, source, dtype=dtype, op=op, stream=stream)
        if notify is not None:
            self.record(stream, notify)

    def fetch_reduce(
        self, stream: Stream | None, target: Buffer, source: Buffer, dtype: npt.DTypeLike, op: str
    ) -> None:
        copy.reduce(target, source, dtype=dtype, op=op, stream=stream)

    def put_blocks(
        self, stream: Stream | None, target: Buffer, source: Buffer, table: Any, notify: Notify | None = None
    ) -> None:
        self._ranks.copy_blocks(stream, target, source, table)
        if notify is not None:
            self.record(stream, notify)

    def get_blocks(self, stream: Stream | None, target: Buffer, source: Buffer, table: Any) -> None:
        self._ranks.copy_blocks(stream, target, source, table)

    def record(self, stream: Stream | None, notify: Notify) -> None:
        if stream is None:
            self._ranks.record(notify)
        else:
            self._ranks.record_on(stream, notify)


class MessageTransport:
    """The peer is on another machine: its process carries the operations out."""

    def __init__(self, end: FarEnd) -> None:
        self._end = end

    def _locate(self, memory: Buffer) -> tuple[int, int]:
        """Return the number of a memory of the peer, and the offset in it."""
        if isinstance(memory, FarBuffer) and memory.end is self._end:
            return memory.number, memory.first
        raise InvalidValue(
            f"Channel: {memory!r} is not memory that this channel's peer offers; the peer is on another machine, and "
            "only what its channel offers can be reached: give the tag",
            detail=Refused(reason="not_of_channel", memory=repr(memory)),
        )

    def put(
        self, stream: Stream | None, target: Buffer, at: int, source: Buffer, notify: FarNotify | None = None
    ) -> None:
        number, first = self._locate(target)
        self._end.write(stream, number, first + at, source, _plus_one(notify))

    def get(self, stream: Stream | None, target: Buffer, source: Buffer, at: int) -> None:
        number, first = self._locate(source)
        self._end.read(stream, target, number, first + at)

    def reduce(
        self,
        stream: Stream | None,
        target: Buffer,
        source: Buffer,
        dtype: npt.DTypeLike,
        op: str,
        notify: FarNotify | None = None,
    ) -> None:
        number, first = self._locate(target)
        reduction = reductions.number_of("reduce", dtype, op)
        self._end.reduce(stream, number, first, source, reduction, _plus_one(notify))

    def fetch_reduce(
        self, stream: Stream | None, target: Buffer, source: Buffer, dtype: npt.DTypeLike, op: str
    ) -> None:
        copy.reduce(target[:0], target[:0], dtype=dtype, op=op)  # refuses what is wrong
        fetched = Host().allocate(target.size)
        try:
            self.get(stream, fetched, source, 0)
            copy.reduce(target, fetched, dtype=dtype, op=op, stream=stream)
        finally:
            fetched.close(stream=stream)

    def put_blocks(
        self,
        stream: Stream | None,
        target: Buffer,
        source: Buffer,
        table: Any,
        notify: FarNotify | None = None,
    ) -> None:
        number, first = self._locate(target)
        self._end.write_blocks(stream, number, first, target.size, source, table, _plus_one(notify))

    def get_blocks(self, stream: Stream | None, target: Buffer, source: Buffer, table: Any) -> None:
        number, first = self._locate(source)
        self._end.read_blocks(stream, target, number, first, source.size, table)

    def record(self, stream: Stream | None, notify: FarNotify) -> None:
        self._end.notify(stream, notify.number)


def _plus_one(notify: FarNotify | None) -> int:
    return 0 if notify is None else notify.number + 1
