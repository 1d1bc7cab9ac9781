"""Late delivery: bytes of a channel arrive after their stream has run the operation.

Under ``seeded`` bytes and notifies arrive some time later, under ``lazy`` when the peer waits for a later notify.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from peerlane.diagnostics.log import event_log
from peerlane.errors import Closed, Error
from peerlane.memory import copy
from peerlane.memory.buffer import Buffer, as_buffer
from peerlane.node.device import Host
from peerlane.streams.notify import NotifyKind
from peerlane.support import reductions

if TYPE_CHECKING:
    import numpy.typing as npt

    from peerlane.backend.ranks import Bank, LateArea, Ranks
    from peerlane.node.device import Device
    from peerlane.ranks.transport import Transport
    from peerlane.streams.notify import Notify
    from peerlane.streams.stream import Stream

# Native code's numbers for the states and the kinds of entries.
_NONE, _TAKEN, _READY, _BEGUN = range(4)
_WRITE, _BLOCKS, _REDUCE, _NOTIFY = range(4)
_NUMBER, _SOURCE = 8, 32  # the bits of a kind above which the numbers of a reduction and of a source lie

_WORDS = 8  # words of an entry
_LINE = 64
_BANK_LINE = 128
_LARGEST = 16 << 20  # bytes: the largest write that `seeded` holds back as a whole
_LAST = 4096  # bytes: of a larger write, only this many at its end are late
_BYTES_KEPT = 1 << 20  # an area without deliveries gives the pages beyond them back


class Entry(NamedTuple):
    """An entry of the area."""

    number: int
    state: Buffer  #: the word with its state
    bytes: Buffer  #: ``bytes``, ``before``: the bytes of the write, and the spare bytes behind them
    before: Buffer


class LateEntries:
    """The entries of late writes of one end of a channel, in memory that both ends share.

    If this process ends, the other one delivers them, so that the writes of a synchronized stream always arrive.

    ``bank``: a bank of ``LATE_LINES`` lines.
    ``targets``: the memories that the other end offers, in its order.
    """

    def __init__(self, ranks: Ranks, bank: Bank, targets: Sequence[Buffer]) -> None:
        self._ranks, self._area = ranks, ranks.late_area(bank)
        self._view = memoryview(self._area)
        table = ranks.LATE_ENTRIES * _WORDS * 8
        self._first, self._last = table + ranks.LATE_HEADER, ranks.LATE_LINES * _BANK_LINE
        self._words = self._view[:table].cast("Q")
        self._targets = targets
        self._lock = threading.Lock()
        self._pending: deque[tuple[int, int]] = (
            deque()
        )  # the entries in order, with the offsets of their bytes
        self._sequence, self._end, self._most = 0, self._first, self._first

    def room(self, nbytes: int, largest: int = _LARGEST) -> int:
        """Return how many bytes of a write are late: all, or those at its end."""
        with self._lock:
            return nbytes if nbytes <= largest and self._begin(nbytes) is not None else min(nbytes, _LAST)

    def take(
        self, what: int, target: Buffer | int, at: int, nbytes: int, spare: int = 0, beside: int | None = None
    ) -> Entry | None:
        """Return a free entry; None if there is none, or if the other end did not offer that memory.

        ``what``: the kind, and the number of a reduction.
        ``target``: the other end's memory, or the number of its notify.
        ``at``, ``nbytes``: the first byte in that memory, and the number of bytes.
        ``spare``: bytes for ``before``.
        ``beside``: a number that the entry keeps instead of the first byte.
        """
        location = (target, 0) if isinstance(target, int) else self._locate(target)
        with self._lock:
            begin = self._begin(nbytes + spare) if location is not None else None
            if location is None or begin is None:
                return None
            number = self._sequence % self._ranks.LATE_ENTRIES
            middle = begin + _rounded(nbytes)
            first = number * _WORDS
            where = at + location[1] if beside is None else beside
            fields = (self._sequence, what, location[0], where, nbytes, begin, middle)
            for offset, field in enumerate(fields, 1):
                self._words[first + offset] = field
            self._words[first] = _TAKEN
            self._sequence += 1
            self._end = middle + _rounded(spare)
            self._most = max(self._most, self._end)
            self._pending.append((number, begin))
        return Entry(
            number,
            as_buffer(self._view[8 * first : 8 * first + 8]),
            as_buffer(self._view[begin : begin + nbytes]),
            as_buffer(self._view[middle : middle + spare]),
        )

    def drop(self, entry: Entry) -> None:
        """Free an entry that was passed to no stream."""
        self._words[entry.number * _WORDS] = _NONE

    @property
    def area(self) -> LateArea:
        """The back-end's area."""
        return self._area

    def set(self, stream: Stream, entry: Entry, state: int) -> None:
        """Set the state of an entry when the stream reaches the operation."""
        self._ranks.write_word(stream, entry.state, state)

    def notify(self, stream: Stream, record: Notify, entry: Entry) -> None:
        """Record a notify when the stream reaches it; of the two processes only one does so."""
        self._ranks.record_late(stream, record, self._area, entry.number)

    def _begin(self, nbytes: int) -> int | None:
        """Return the offset of ``nbytes`` of free room in the area; None if there is not so much."""
        while self._pending and self._words[self._pending[0][0] * _WORDS] == _NONE:
            self._pending.popleft()
        if not self._pending:
            self._end = self._first
            if self._most > self._first + _BYTES_KEPT:
                self._area.discard()
                self._most = self._first
        elif len(self._pending) == self._ranks.LATE_ENTRIES:
            return None
        needed, begin = _rounded(nbytes) + _LINE, self._end
        first = self._pending[0][1] if self._pending else self._first
        if begin >= first:
            if begin + needed <= self._last:
                return begin
            begin = self._first
        return begin if begin + needed < first else None

    def _locate(self, target: Buffer) -> tuple[int, int] | None:
        """Return the number of the offered memory that a buffer lies in, and its offset there."""
        for number, each in enumerate(self._targets):
            if each is target:
                return number, 0
            with contextlib.suppress(Closed):
                at = target.address - each.address
                if 0 <= at <= each.size - target.size:
                    return number, at
        return None


def _rounded(nbytes: int) -> int:
    return (nbytes + _LINE - 1) // _LINE * _LINE


class Delivery:
    """The writes and records of one stream to one channel that may arrive late.

    The stream copies the bytes away, so that its later operations may change the source.  They arrive in the order of
    one channel and stream, and in no order with others.  Without room for it, a write is not late.

    ``device``: the channel's device.
    ``entries``: the area for the bytes; None if no other process delivers them when this one ends: the peer is in
        this process, or on another machine.
    ``transport``: how they reach the peer.
    """

    def __init__(self, device: Device, entries: LateEntries | None, transport: Transport) -> None:
        self.stream, self._ranks = device.create_stream(), device.backend.ranks
        self._entries, self._transport = entries, transport

    def write(self, stream: Stream, target: Buffer, at: int, source: Buffer) -> None:
        """Copy the bytes aside when the stream reaches the operation, and write them some time later."""
        late = self._entries.room(source.size) if self._entries is not None else source.size
        if late < source.size:
            at_once = source.size - late
            self.settle(stream)
            self._transport.put(stream, target, at, source[:at_once])
            source, at = source[at_once:], at + at_once
        entry = self._take(_WRITE, target, at, source.size)
        with self._carrier(stream, source, entry) as (on, payload):
            self._transport.put(on, target, at, payload)

    def reduce(self, stream: Stream, target: Buffer, source: Buffer, dtype: npt.DTypeLike, op: str) -> None:
        """Combine the bytes with those of the target; late, as :meth:`write`."""
        number = reductions.number_of("reduce", dtype, op)
        entry = self._take(_REDUCE | number << _NUMBER, target, 0, source.size, source.size)
        with self._carrier(stream, source, entry, 1 if entry is None else 3) as (on, payload):
            if (
                self._entries is not None and entry is not None
            ):  # so that the other process can repeat it from the beginning
                self._ranks.put(on, entry.before, 0, target)
                self._entries.set(on, entry, _BEGUN)
            self._transport.reduce(on, target, payload, dtype, op)

    def write_blocks(self, stream: Stream, target: Buffer, source: Buffer, table: Any) -> None:
        """Write blocks late, as :meth:`write` does."""
        if not len(table):
            self._transport.put_blocks(stream, target, source, table)
            return
        entry = self._take(_BLOCKS, target, 0, source.size, table.nbytes, len(table))
        if entry is not None:
            copy.copy(entry.before, table)
        with self._carrier(stream, source, entry) as (on, payload):
            self._transport.put_blocks(on, target, payload, table)

    def _take(self, what: int, target: Buffer, at: int, nbytes: int, *more: int) -> Entry | None:
        return (
            self._entries.take(what, target, at, nbytes, *more)
            if self._entries is not None and nbytes
            else None
        )

    @contextlib.contextmanager
    def _carrier(
        self, stream: Stream, source: Buffer, entry: Entry | None, operations: int = 1
    ) -> Iterator[tuple[Stream, Buffer]]:
        """Yield the stream whose next operations deliver the bytes, and the buffer that has them."""
        if self._entries is not None and entry is not None:
            with self._entry(stream, source, entry, operations):
                yield self.stream, entry.bytes
        elif self._entries is not None or not source.size:
            self.settle(stream)
            yield stream, source
        else:
            copy = Host().allocate(source.size)
            try:
                self._ranks.put(stream, copy, 0, source)
                self._follow(stream, operations)
                yield self.stream, copy
            finally:
                copy.close(stream=self.stream)

    @contextlib.contextmanager
    def _entry(self, stream: Stream, source: Buffer | None, entry: Entry, operations: int) -> Iterator[None]:
        assert self._entries is not None
        try:
            if source is not None:
                self._ranks.put(stream, entry.bytes, 0, source)
            self._entries.set(stream, entry, _READY)
        except BaseException:
            self._entries.drop(entry)
            raise
        try:
            self._follow(stream, operations)
            yield
        except BaseException:
            with contextlib.suppress(Error):
                self._entries.set(stream, entry, _NONE)
            raise
        self._entries.set(self.stream, entry, _NONE)

    def _follow(self, stream: Stream, operations: int) -> None:
        """Run the next ``operations`` of late delivery after all of a stream's, unless one of those fails."""
        self._ranks.follow(self.stream, stream, operations)

    def notify(self, stream: Stream, record: Notify, index: int) -> None:
        """Record a notify after all earlier writes have arrived."""
        with event_log.channel_notify(stream, record):
            self._notify(stream, record, index)

    def _notify(self, stream: Stream, record: Notify, index: int) -> None:
        if self._entries is None:
            self._follow(stream, 1)
            self._transport.record(self.stream, record)
            return
        entry = self._entries.take(_NOTIFY, index, 0, 0)
        if entry is None:
            self.settle(stream)
            self._transport.record(stream, record)
            return
        with self._entry(stream, None, entry, 1):
            self._entries.notify(self.stream, record, entry)

    def settle(self, stream: Stream) -> None:
        """Make the stream wait until all its writes and records have arrived."""
        with event_log.quiet():
            stream.wait(self.stream)


class LateDelivery(Protocol):
    """How a channel's writes and records arrive, if not when their stream reaches them."""

    def takes(self, stream: Stream | None) -> bool:
        """Tell whether operations of a stream, or of a call without one, may arrive late."""
        ...

    def write(self, stream: Stream | None, target: Buffer, at: int, source: Buffer) -> None: ...
    def reduce(
        self, stream: Stream | None, target: Buffer, source: Buffer, dtype: npt.DTypeLike, op: str
    ) -> None: ...
    def write_blocks(self, stream: Stream | None, target: Buffer, source: Buffer, table: Any) -> None: ...
    def notify(self, stream: Stream | None, record: Notify, index: int) -> None: ...

    def settle(self, stream: Stream | None) -> None:
        """Make a stream, or the caller, wait until its writes have arrived."""
        ...

    def streams(self) -> list[Stream]:
        """Return the streams that deliver."""
        ...

    def fence(self, stream: Stream | None) -> None:
        """Order the operations before this call ahead of the later notifies of all streams."""
        ...

    def close(self) -> list[Stream]:
        """Deliver all late operations; return the streams that still deliver, for the channel to close."""
        ...


class SeededDelivery:
    """The late delivery of ``seeded``: a stream for each stream of the program, and the seed draws when it runs.

    ``device``: the channel's device.
    ``transport``: as for :class:`Delivery`.
    """

    def __init__(self, device: Device, entries: LateEntries | None, transport: Transport) -> None:
        self._device, self._entries, self._transport, self._lock = (
            device,
            entries,
            transport,
            threading.Lock(),
        )
        self._deliveries: weakref.WeakKeyDictionary[Stream, Delivery] = weakref.WeakKeyDictionary()

    def takes(self, stream: Stream | None) -> bool:
        return stream is not None

    def _of(self, stream: Stream | None) -> Delivery:
        assert stream is not None
        with self._lock:
            delivery = self._deliveries.get(stream)
            if delivery is None:
                delivery = self._deliveries[stream] = Delivery(self._device, self._entries, self._transport)
            return delivery

    def write(self, stream: Stream | None, target: Buffer, at: int, source: Buffer) -> None:
        assert stream is not None
        self._of(stream).write(stream, target, at, source)

    def reduce(
        self, stream: Stream | None, target: Buffer, source: Buffer, dtype: npt.DTypeLike, op: str
    ) -> None:
        assert stream is not None
        self._of(stream).reduce(stream, target, source, dtype, op)

    def write_blocks(self, stream: Stream | None, target: Buffer, source: Buffer, table: Any) -> None:
        assert stream is not None
        self._of(stream).write_blocks(stream, target, source, table)

    def notify(self, stream: Stream | None, record: Notify, index: int) -> None:
        assert stream is not None
        if record.kind is NotifyKind.BINARY:
            self._of(stream).notify(stream, record, index)
            return
        self.settle(stream)  # notifies of other kinds may refuse a record
        self._transport.record(stream, record)

    def settle(self, stream: Stream | None) -> None:
        delivery = self._deliveries.get(stream) if stream is not None else None
        if delivery is not None and stream is not None:
            delivery.settle(stream)

    def streams(self) -> list[Stream]:
        with self._lock:
            return [each.stream for each in self._deliveries.values()]

    def fence(self, stream: Stream | None) -> None:
        self.settle(stream)

    def close(self) -> list[Stream]:
        left = self.streams()
        self._deliveries.clear()
        return left


class LazyDelivery:
    """The late delivery of ``lazy`` between processes: bytes arrive when the peer waits for a later notify.

    They are staged in memory that both processes share.  A wait of the peer delivers what the same stream or thread
    had written before the record that the wait consumes.  Reading, closing the channel and rest deliver, too.

    ``memories``: the memories that the other end offers, in its order.
    """

    def __init__(self, ranks: Ranks, entries: LateEntries, memories: Sequence[Buffer]) -> None:
        self._ranks, self._entries = ranks, entries
        self._undelivered = ranks.undelivered(entries.area, memories, False)
        self._lock = threading.Lock()
        self._streams: weakref.WeakKeyDictionary[Stream, int] = weakref.WeakKeyDictionary()
        self._threads = threading.local()
        self._last = 0

    def takes(self, stream: Stream | None) -> bool:
        return True

    def _source(self, stream: Stream | None) -> int:
        """Return the number of a stream, or of the calling thread."""
        number = getattr(self._threads, "number", 0) if stream is None else self._streams.get(stream, 0)
        if number:
            return number
        with self._lock:
            self._last = number = self._last + 1
            if stream is not None:
                self._streams[stream] = number
            else:
                self._threads.number = number
        return number

    def _stage(self, stream: Stream | None, entry: Entry, source: Buffer) -> None:
        try:
            self._ranks.put(stream, entry.bytes, 0, source)
            self._ranks.stage(stream, self._undelivered, entry.number)
        except BaseException:
            self._entries.drop(entry)
            raise

    def _take(
        self, stream: Stream | None, what: int, target: Buffer, at: int, nbytes: int, *more: int
    ) -> Entry | None:
        if not nbytes:
            return None
        self._ranks.put(stream, target, at, target[:0])  # refuses what may not be written
        what |= self._source(stream) << _SOURCE
        entry = self._entries.take(what, target, at, nbytes, *more)
        if entry is None:  # what is written at once must not overtake earlier operations
            self.settle(stream)
            entry = self._entries.take(what, target, at, nbytes, *more)
        return entry

    def write(self, stream: Stream | None, target: Buffer, at: int, source: Buffer) -> None:
        late = self._entries.room(source.size, source.size)
        if late < source.size:
            at_once = source.size - late
            self.settle(stream)
            self._ranks.put(stream, target, at, source[:at_once])
            source, at = source[at_once:], at + at_once
        entry = self._take(stream, _WRITE, target, at, source.size)
        if entry is None:
            self._ranks.put(stream, target, at, source)
        else:
            self._stage(stream, entry, source)

    def reduce(
        self, stream: Stream | None, target: Buffer, source: Buffer, dtype: npt.DTypeLike, op: str
    ) -> None:
        number = reductions.number_of("reduce", dtype, op)
        copy.reduce(target[:0], source[:0], dtype=dtype, op=op, stream=stream)  # refuses what is wrong
        what = _REDUCE | number << _NUMBER
        entry = self._take(stream, what, target, 0, source.size, source.size)
        if entry is None:
            copy.reduce(target, source, dtype=dtype, op=op, stream=stream)
        else:
            self._stage(stream, entry, source)

    def write_blocks(self, stream: Stream | None, target: Buffer, source: Buffer, table: Any) -> None:
        self._ranks.copy_blocks(None, target, source, table[:0])
        entry = None
        if len(table):
            entry = self._take(stream, _BLOCKS, target, 0, source.size, table.nbytes, len(table))
        if entry is None:
            self._ranks.copy_blocks(stream, target, source, table)
            return
        copy.copy(entry.before, table)
        self._stage(stream, entry, source)

    def notify(self, stream: Stream | None, record: Notify, index: int) -> None:
        entry = self._entries.take(_NOTIFY | self._source(stream) << _SOURCE, index, 0, 0)
        if entry is None:
            self.settle(stream)
            if stream is None:
                self._ranks.record(record)
            else:
                self._ranks.record_on(stream, record)
            return
        try:
            self._ranks.record_staged(stream, record, self._entries.area, entry.number)
        except BaseException:
            self._entries.drop(entry)
            raise

    def settle(self, stream: Stream | None) -> None:
        with event_log.quiet():
            self._ranks.deliver_source(stream, self._undelivered, self._source(stream))

    def streams(self) -> list[Stream]:
        return []

    def fence(self, stream: Stream | None) -> None:
        with event_log.quiet():
            self._ranks.fence_staged(stream, self._undelivered)

    def close(self) -> list[Stream]:
        self._undelivered.deliver_all()
        return []
