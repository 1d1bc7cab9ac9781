"""What a channel may put off: under ``seeded``, bytes and notifies travel apart from the stream that sent them."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from peerlane.devices.device import Host
from peerlane.errors import Closed, Error
from peerlane.memory import copy
from peerlane.memory.buffer import Buffer, as_buffer
from peerlane.support import reductions

if TYPE_CHECKING:
    import numpy.typing as npt

    from peerlane.backend.ranks import Bank, Ranks
    from peerlane.devices.device import Device
    from peerlane.streams.notify import Notify
    from peerlane.streams.stream import Stream

# As native code reads them: what becomes of an entry, and what it is.
_NONE, _TAKEN, _GIVEN, _BEGUN = range(4)
_WRITE, _BLOCKS, _REDUCE, _NOTIFY = range(4)

_WORDS = 8  # of an entry
_LINE = 64
_BANK_LINE = 128
_LARGEST = 16 << 20  # bytes of a write that are held back whole
_LAST = 4096  # bytes of a larger one that are
_KEPT = 1 << 20  # bytes of the area that keep their pages


class Entry(NamedTuple):
    """A place in the area, and what lies there.

    Attributes
    ----------
    number : int
    state : Buffer
        A word.
    bytes, before : Buffer
        What travels, and as much room for something about it as was asked for.
    """

    number: int
    state: Buffer
    bytes: Buffer
    before: Buffer


class HeldBack:
    """What one end of a channel has given and not brought, in memory that the other end has too.

    If this process ends, the other one brings what is left, so a stream that was synchronized has not said too much.

    Parameters
    ----------
    ranks : Ranks
    bank : Bank
        Of ``HELD_LINES``.
    targets : sequence of Buffer
        What the other end offers, in its order.
    """

    def __init__(self, ranks: Ranks, bank: Bank, targets: Sequence[Buffer]) -> None:
        self._ranks, self._held = ranks, ranks.held_area(bank)
        self._area = memoryview(self._held)  # type: ignore[arg-type]  # exports its bytes
        self._first, self._last = ranks.HELD_ENTRIES * _WORDS * 8, ranks.HELD_LINES * _BANK_LINE
        self._words = self._area[: self._first].cast("Q")
        self._targets = targets
        self._lock = threading.Lock()
        self._pending: deque[tuple[int, int]] = deque()  # the entries in order, and where their bytes begin
        self._sequence, self._end, self._most = 0, self._first, self._first

    def room(self, nbytes: int) -> int:
        """Return how much of a write is held back: all of it, or its end."""
        with self._lock:
            return nbytes if nbytes <= _LARGEST and self._begin(nbytes) is not None else min(nbytes, _LAST)

    def take(
        self, what: int, target: Buffer | int, at: int, nbytes: int, spare: int = 0, beside: int | None = None
    ) -> Entry | None:
        """Return an entry that nobody uses; None if there is none, or the other end does not know that memory.

        Parameters
        ----------
        what : int
            A kind, and a reduction.
        target : Buffer or int
            The other end's memory, or the number of its notify.
        at, nbytes
            The first byte there, and how many.
        spare : int
            Bytes for ``before``.
        beside : int, optional
            What the entry says in place of the first byte.
        """
        place = (target, 0) if isinstance(target, int) else self._place(target)
        with self._lock:
            begin = self._begin(nbytes + spare) if place is not None else None
            if place is None or begin is None:
                return None
            number = self._sequence % self._ranks.HELD_ENTRIES
            middle = begin + _rounded(nbytes)
            first = number * _WORDS
            where = at + place[1] if beside is None else beside
            fields = (self._sequence, what, place[0], where, nbytes, begin, middle)
            for offset, field in enumerate(fields, 1):
                self._words[first + offset] = field
            self._words[first] = _TAKEN
            self._sequence += 1
            self._end = middle + _rounded(spare)
            self._most = max(self._most, self._end)
            self._pending.append((number, begin))
        return Entry(
            number,
            as_buffer(self._area[8 * first : 8 * first + 8]),
            as_buffer(self._area[begin : begin + nbytes]),
            as_buffer(self._area[middle : middle + spare]),
        )

    def drop(self, entry: Entry) -> None:
        """Let an entry go that no stream has come to know."""
        self._words[entry.number * _WORDS] = _NONE

    def set(self, stream: Stream, entry: Entry, state: int) -> None:
        """Change what has become of an entry when the stream comes to it."""
        self._ranks.write_word(stream, entry.state, state)

    def notify(self, stream: Stream, line: Notify, entry: Entry) -> None:
        """Record a notify once, whichever of the two processes does it."""
        self._ranks.record_held(stream, line, self._held, entry.number)

    def _begin(self, nbytes: int) -> int | None:
        """Return where so many bytes fit behind those that are there."""
        while self._pending and self._words[self._pending[0][0] * _WORDS] == _NONE:
            self._pending.popleft()
        if not self._pending:
            self._end = self._first
            if self._most > self._first + _KEPT:
                self._held.discard()
                self._most = self._first
        elif len(self._pending) == self._ranks.HELD_ENTRIES:
            return None
        needed, begin = _rounded(nbytes) + _LINE, self._end
        first = self._pending[0][1] if self._pending else self._first
        if begin >= first:
            if begin + needed <= self._last:
                return begin
            begin = self._first
        return begin if begin + needed < first else None

    def _place(self, target: Buffer) -> tuple[int, int] | None:
        """Return which of the offered memories a buffer lies in, and where."""
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
    """What one stream has given to one channel and the peer need not have yet.

    The stream gives the bytes away, so that later operations may change the source; they reach the peer in the order
    of one channel and stream, and in none with others.  What there is no room for is brought at once.

    Parameters
    ----------
    device : Device
        Of the channel.
    held : HeldBack or None
        Where the bytes lie meanwhile; None if the peer is of this process and cannot outlive it.
    """

    def __init__(self, device: Device, held: HeldBack | None) -> None:
        self.stream, self._ranks = device.create_stream(), device.backend.ranks
        self._held = held

    def write(self, stream: Stream, target: Buffer, at: int, source: Buffer) -> None:
        """Take the bytes when the stream comes to it, and bring them some time later."""
        late = self._held.room(source.size) if self._held is not None else source.size
        if late < source.size:
            at_once = source.size - late
            self.settle(stream)
            self._ranks.put(stream, target, at, source[:at_once])
            source, at = source[at_once:], at + at_once
        entry = self._take(_WRITE, target, at, source.size)
        with self._given(stream, source, entry) as (on, given):
            self._ranks.put(on, target, at, given)

    def reduce(self, stream: Stream, target: Buffer, source: Buffer, dtype: npt.DTypeLike, op: str) -> None:
        """As :meth:`write`; the bytes are combined with those that are there."""
        number = reductions.number_of("reduce", dtype, op)
        entry = self._take(_REDUCE | number << 8, target, 0, source.size, source.size)
        with self._given(stream, source, entry, 1 if entry is None else 3) as (on, given):
            if (
                self._held is not None and entry is not None
            ):  # so that it can be done again from the beginning
                self._ranks.put(on, entry.before, 0, target)
                self._held.set(on, entry, _BEGUN)
            copy.reduce(target, given, dtype=dtype, op=op, stream=on)

    def write_blocks(self, stream: Stream, target: Buffer, source: Buffer, table: Any) -> None:
        """As :meth:`write`, of blocks."""
        if not len(table):
            self._ranks.copy_blocks(stream, target, source, table)
            return
        entry = self._take(_BLOCKS, target, 0, source.size, table.nbytes, len(table))
        if entry is not None:
            copy.copy(entry.before, table)
        with self._given(stream, source, entry) as (on, given):
            self._ranks.copy_blocks(on, target, given, table)

    def _take(self, what: int, target: Buffer, at: int, nbytes: int, *more: int) -> Entry | None:
        return self._held.take(what, target, at, nbytes, *more) if self._held is not None and nbytes else None

    @contextlib.contextmanager
    def _given(
        self, stream: Stream, source: Buffer, entry: Entry | None, operations: int = 1
    ) -> Iterator[tuple[Stream, Buffer]]:
        """Yield on which stream so many operations bring the bytes, and from where."""
        if self._held is not None and entry is not None:
            with self._entry(stream, source, entry, operations):
                yield self.stream, entry.bytes
        elif self._held is not None or not source.size:
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
        assert self._held is not None
        try:
            if source is not None:
                self._ranks.put(stream, entry.bytes, 0, source)
            self._held.set(stream, entry, _GIVEN)
        except BaseException:
            self._held.drop(entry)
            raise
        try:
            self._follow(stream, operations)
            yield
        except BaseException:
            with contextlib.suppress(Error):
                self._held.set(stream, entry, _NONE)
            raise
        self._held.set(self.stream, entry, _NONE)

    def _follow(self, stream: Stream, operations: int) -> None:
        """Let so many operations come after all that a stream was given, and not at all if it has failed."""
        self._ranks.follow(self.stream, stream, operations)

    def notify(self, stream: Stream, line: Notify, index: int) -> None:
        """Record a notify behind all that was given before."""
        if self._held is None:
            self._follow(stream, 1)
            self._ranks.record_on(self.stream, line)
            return
        entry = self._held.take(_NOTIFY, index, 0, 0)
        if entry is None:
            self.settle(stream)
            self._ranks.record_on(stream, line)
            return
        with self._entry(stream, None, entry, 1):
            self._held.notify(self.stream, line, entry)

    def settle(self, stream: Stream) -> None:
        """Let the stream wait until all that it gave is there."""
        stream.wait(self.stream)
