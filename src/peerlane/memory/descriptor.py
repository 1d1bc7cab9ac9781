"""Copy lists in device memory: the host or copies write them, a launch reads them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from peerlane.backend import host
from peerlane.backend.facts import Caps
from peerlane.errors import BadAddress, Error, Fault, InvalidValue, Refused, SizesDiffer
from peerlane.memory import dispatch, raw
from peerlane.memory.buffer import Buffer, as_buffer
from peerlane.memory.plain_buffer import PlainBuffer
from peerlane.streams.stream import Stream, checked_stream
from peerlane.support.words import checked_words

_HEADER = raw.LIST_HEADER
_ENTRY = struct.Struct("<QQQQ")
_MAGIC = b"PLCOPIES"
_VERSION = 1


class CopyDescriptor:
    """A list of copies in device memory.

    Layout, little-endian: a header of 32 bytes (the magic ``PLCOPIES``, u32 version 1, u32 entry size 32,
    u64 number of entries, u64 0), then 32 bytes an entry (u64 destination, u64 source, u64 bytes, u64 0).
    Addresses are those of device or pinned memory.  An entry of 0 bytes is skipped.

    The list is read, checked and resolved when a launch *starts*, so that a copy queued before may write it.
    Entries run in any order, and must not overlap one another.

    Parameters
    ----------
    table : Buffer
        Device memory that holds the list, or will hold it.

    Raises
    ------
    InvalidValue
        The table cannot hold a header, or its address is not a multiple of 8.

    Examples
    --------
    >>> device = pl.device(0)
    >>> table = device.allocate(pl.CopyDescriptor.size_for(1))
    >>> with device.allocate(4) as target, device.allocate(4) as source, device.create_stream() as stream:
    ...     source.copy_from(b"list")
    ...     pl.CopyDescriptor.build(table, [(target, source)]).launch(stream)
    ...     stream.sync()
    ...     print(target.view().tobytes())
    b'list'
    """

    __slots__ = ("_table",)

    def __init__(self, table: Buffer) -> None:
        if not isinstance(table, Buffer):
            raise TypeError(f"CopyDescriptor: the table must be a Buffer, not {type(table).__name__}")
        if isinstance(table, PlainBuffer):
            raise dispatch.lacks("CopyDescriptor", table.backend, Caps.DESCRIPTOR)
        if table.size < _HEADER.size:
            raise InvalidValue(
                f"CopyDescriptor: the table has {table.size:,} bytes; a header needs {_HEADER.size}",
                call="CopyDescriptor",
                detail=Refused(reason="table_too_small", size=table.size, needed=_HEADER.size),
            )
        if table.address % 8:
            raise InvalidValue(
                f"CopyDescriptor: the table starts at {table.address:#x}, which is not a multiple of 8",
                call="CopyDescriptor",
                detail=Refused(reason="misaligned", address=table.address, width=8),
            )
        self._table = table

    @staticmethod
    def size_for(entries: int) -> int:
        """Return the bytes of a table for that many entries.

        Raises
        ------
        InvalidValue, TypeError
            ``entries`` is negative, exceeds 64 bits, or is not an int.
        """
        (count,) = checked_words("CopyDescriptor.size_for", entries=entries)
        return _HEADER.size + count * _ENTRY.size

    @staticmethod
    def encode(pairs: Iterable[tuple[Buffer, Buffer]]) -> bytes:
        """Return the bytes of a list of (destination, source) pairs.

        Raises
        ------
        InvalidValue
            The sizes of a pair differ, or it does not have two ends.
        BadAddress
            An end is host memory that is not pinned.
        Closed
            An end is closed.
        TypeError
            An item is not a pair, or an end is not memory.

        Each text names the pair.
        """
        return _of_pairs("CopyDescriptor.encode", pairs)

    @staticmethod
    def encode_addresses(entries: Iterable[tuple[int, int, int]]) -> bytes:
        """Return the bytes of a list of (destination address, source address, bytes); a launch checks the addresses.

        Raises
        ------
        InvalidValue, TypeError
            A number is negative, exceeds 64 bits or is not an int, or an entry does not have three; the text names
            it.
        """
        call = "CopyDescriptor.encode_addresses"
        names = ("destination", "source", "bytes")
        return _packed(
            checked_words(
                call, **{f"{name} of entry {number}": value for name, value in zip(names, entry, strict=True)}
            )
            for number, entry in _entries(call, "entry", names, entries)
        )

    @classmethod
    def build(cls, table: Buffer, pairs: Iterable[tuple[Buffer, Buffer]]) -> CopyDescriptor:
        """Write a list of (destination, source) pairs into ``table``; complete on return.

        Parameters
        ----------
        table : Buffer
            At least ``size_for(number of pairs)`` bytes.
        pairs : iterable of (Buffer, Buffer)
            Both ends of a pair have the same size; on any devices of the node.

        Raises
        ------
        InvalidValue, BadAddress, Closed, TypeError
            As :meth:`encode`, or the table is too small.  Nothing was written; nor if ``pairs`` itself raises.
        """
        descriptor = cls(table)
        content = _of_pairs("CopyDescriptor.build", pairs)
        if len(content) > table.size:
            raise InvalidValue(
                f"CopyDescriptor.build: {(len(content) - _HEADER.size) // _ENTRY.size:,} entries need "
                f"{len(content):,} bytes; the table has {table.size:,}",
                call="CopyDescriptor.build",
                detail=Refused(
                    reason="table_too_small",
                    size=table.size,
                    needed=len(content),
                    entries=(len(content) - _HEADER.size) // _ENTRY.size,
                ),
            )
        table[: len(content)].copy_from(content)
        return descriptor

    @property
    def table(self) -> Buffer:
        """The memory that holds the list."""
        return self._table

    def launch(self, stream: Stream | None = None) -> None:
        """Run the list as it is when the launch starts.

        Parameters
        ----------
        stream : Stream, optional
            The stream to queue it on; without one it is complete on return.

        Raises
        ------
        Closed
            The table or the stream is closed.  Nothing was queued.
        InvalidValue, BadAddress
            ``BAD_DESCRIPTOR``, or an entry has a bad address; the text names the entry and the mistake.  Without a
            stream it is raised here, else by the synchronization.  No byte was copied.
        """
        host.launch_descriptor(
            checked_stream("launch", stream), self._table.address, self._table.size, False, 0
        )

    def __repr__(self) -> str:
        return f"<CopyDescriptor in {self._table!r}>"


def _packed(entries: Iterable[Iterable[int]]) -> bytes:
    packed = [_ENTRY.pack(*entry, 0) for entry in entries]
    return _HEADER.pack(_MAGIC, _VERSION, _ENTRY.size, len(packed), 0) + b"".join(packed)


def _of_pairs(call: str, pairs: Any) -> bytes:
    entries = _entries(call, "pair", ("destination", "source"), pairs)
    return _packed(_entry(call, number, *pair) for number, pair in entries)


def _entries(
    call: str, what: str, names: tuple[str, ...], entries: Any
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield each entry with its number; refuse one without an item for each of ``names``."""
    valid = f"({', '.join(names)})"
    for number, entry in enumerate(_iterator(f"{call}: needs an iterable of {valid}", entries)):
        ends = tuple(_iterator(f"{call}: {what} {number} must be {valid}", entry))
        if len(ends) != len(names):
            raise InvalidValue(
                f"{call}: {what} {number} must be {valid}; it has {len(ends)} items",
                call=call,
                detail=Refused(reason="wrong_length", what=what, entry=number, length=len(ends), valid=valid),
            )
        yield number, ends


def _iterator(needs: str, obj: Any) -> Iterator[Any]:
    try:
        if not isinstance(obj, Buffer):  # a Buffer has slices, and no items
            return iter(obj)
    except TypeError:
        pass
    raise TypeError(f"{needs}, not {type(obj).__name__}")


def _entry(call: str, number: int, dst: Any, src: Any) -> tuple[int, int, int]:
    to, to_address = _end(call, f"destination of pair {number}", dst)
    source, from_address = _end(call, f"source of pair {number}", src)
    if to.size != source.size:
        raise InvalidValue(
            f"{call}: pair {number} copies {source.size:,} bytes to {to.size:,}; take equal parts",
            call=call,
            detail=SizesDiffer(source.size, to.size, number),
        )
    return to_address, from_address, to.size


def _end(call: str, name: str, end: Any) -> tuple[Buffer, int]:
    """Return an end of a pair and its address; an exception names the end."""
    try:
        buffer = as_buffer(end)
        if isinstance(buffer, PlainBuffer):
            raise dispatch.lacks(call, buffer.backend, Caps.DESCRIPTOR)
        if buffer.id:
            return buffer, buffer.address
    except TypeError as error:
        raise TypeError(f"{call}: the {name}: {error}") from error
    except Error as error:
        raise type(error)(
            f"{call}: the {name}: {error}", fault=error.fault, call=call, device=error.device
        ) from error
    raise BadAddress(
        f"{call}: the {name} is pageable host memory, which a device cannot reach by address; allocate it with "
        "Host().allocate",
        fault=Fault.UNKNOWN_ADDRESS,
        call=call,
        detail=Refused(reason="pageable", role=name),
    )
