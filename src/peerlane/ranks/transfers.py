"""What moves bytes over a channel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from peerlane import _core
from peerlane.errors import BadAddress, Fault, InvalidValue
from peerlane.memory import buffer as buffers
from peerlane.memory import copy
from peerlane.memory.buffer import Buffer
from peerlane.ranks.arguments import as_number
from peerlane.ranks.signalling import Signalling, quickly
from peerlane.streams.stream import Stream, checked_stream

if TYPE_CHECKING:
    import numpy.typing as npt


class Transfers(Signalling):
    """The part of a :class:`peerlane.Channel` that moves bytes."""

    memories: Mapping[str, Buffer]
    window: Buffer
    _loose: list[Stream]  # of nonblocking operations
    _turn: int

    @quickly("write")
    def write(
        self,
        src: Any,
        *,
        at: int = 0,
        memory: str | Buffer | None = None,
        notify: int | None = None,
        stream: Stream | None = None,
        nonblocking: bool = False,
    ) -> None:
        """Write all of ``src`` into the peer's memory.

        Parameters
        ----------
        src : Buffer or host object
            What :func:`as_buffer` takes; kept until it was read.
        at : int
            The first byte there.
        memory : str or Buffer, optional
            The tag of the memory, by default the window; or memory of the peer that this process has opened.
        notify : int, optional
            A notify of the peer's that is recorded once these bytes are there.
        stream : Stream, optional
            Where it is queued.
        nonblocking : bool
            Queue it on the channel itself instead, in no order with anything but a :meth:`fence`; the source must
            not be changed before.

        Raises
        ------
        BadAddress
            ``OUT_OF_BOUNDS``: the bytes do not lie in that memory.
        InvalidValue
            Nothing has this tag, or there is no such notify.
        Closed, AccessDenied
            The channel, an end or the stream is closed; the peer freed the memory or took it back, and on a stream
            this may come at the synchronization; the memory may be read only.  Nothing was written or queued.
        PeerLost
            At the synchronization, where the route to the memory is gone.
        """
        call = "Channel.write"
        target = self.window if memory is None else self._memory("write", memory)
        if nonblocking:
            stream = self._loose_stream(call, stream)
        self._check_open(call)
        checked_stream(call, stream)
        source = buffers.as_buffer(src)
        first = self._checked_at(call, target, at, source.size)
        self._check_outgoing(call, notify)
        if stream is None or self._deliveries is None:
            _core.put(stream, target, first, source)
        else:
            self._delivery(stream).write(stream, target, first, source)
        if notify is not None:
            self.notify(notify, stream=stream)

    def read(
        self,
        dst: Any,
        *,
        at: int = 0,
        memory: str | Buffer | None = None,
        stream: Stream | None = None,
        nonblocking: bool = False,
    ) -> None:
        """Read bytes of the peer's memory into all of ``dst``.

        Parameters and errors are those of :meth:`write`; ``dst`` must be writable.
        """
        call = "Channel.read"
        source = self.window if memory is None else self._memory("read", memory)
        if nonblocking:
            stream = self._loose_stream(call, stream)
        self._check_open(call)
        checked_stream(call, stream)
        target = buffers.as_buffer(dst)
        self._settle(stream)
        _core.get(stream, target, source, self._checked_at(call, source, at, target.size))

    def write_reduce(
        self,
        src: Any,
        *,
        dtype: npt.DTypeLike,
        op: str = "sum",
        at: int = 0,
        memory: str | Buffer | None = None,
        notify: int | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Combine all of ``src`` into the peer's memory, element by element: what is there OP what is in ``src``.

        Nothing is promised of several ranks that combine into the same elements at a time (facts/hcomm 3.15).

        Parameters
        ----------
        src, at, memory, notify, stream
            As :meth:`write`.
        dtype, op
            As :func:`peerlane.reduce`.

        Raises
        ------
        Error
            As :meth:`write` and :func:`peerlane.reduce`.
        """
        call = "Channel.write_reduce"
        target, source = self._ends_of(call, memory, src, at, stream)
        self._check_outgoing(call, notify)
        if stream is None or self._deliveries is None:
            copy.reduce(target, source, dtype=dtype, op=op, stream=stream)
        else:
            self._delivery(stream).reduce(stream, target, source, dtype, op)
        if notify is not None:
            self.notify(notify, stream=stream)

    def read_reduce(
        self,
        dst: Any,
        *,
        dtype: npt.DTypeLike,
        op: str = "sum",
        at: int = 0,
        memory: str | Buffer | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Combine bytes of the peer's memory into all of ``dst``: what is in ``dst`` OP what is there.

        Parameters and errors are those of :meth:`read` and :func:`peerlane.reduce`.
        """
        source, target = self._ends_of("Channel.read_reduce", memory, dst, at, stream)
        self._settle(stream)
        copy.reduce(target, source, dtype=dtype, op=op, stream=stream)

    def write_blocks(
        self,
        src: Any,
        blocks: npt.ArrayLike,
        *,
        memory: str | Buffer | None = None,
        notify: int | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Write many parts of ``src`` to many places of the peer's memory, as one operation.

        Parameters
        ----------
        src : Buffer or host object
            What :func:`as_buffer` takes.
        blocks : array of int, shape (n, 3)
            Of each block its first byte in the peer's memory, its first byte in ``src``, and its size in bytes.  They
            are written in any order, and must not overlap there.
        memory, notify, stream
            As :meth:`write`.

        Raises
        ------
        BadAddress
            ``OUT_OF_BOUNDS``: a block is not inside; the text names it.  Nothing was written or queued.
        InvalidValue, Closed, AccessDenied
            As :meth:`write`; blocks of another shape.
        """
        call = "Channel.write_blocks"
        target, source = self._ends_of(call, memory, src, None, stream)
        self._check_outgoing(call, notify)
        table = _table(call, blocks)
        if stream is None or self._deliveries is None:
            _core.copy_blocks(stream, target, source, table)
        else:
            self._delivery(stream).write_blocks(stream, target, source, table)
        if notify is not None:
            self.notify(notify, stream=stream)

    def read_blocks(
        self,
        dst: Any,
        blocks: npt.ArrayLike,
        *,
        memory: str | Buffer | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Read many parts of the peer's memory into many places of ``dst``, as one operation.

        ``blocks``: of each its first byte in ``dst``, its first byte in the peer's memory, and its size in bytes.
        Otherwise as :meth:`write_blocks`.
        """
        call = "Channel.read_blocks"
        source, target = self._ends_of(call, memory, dst, None, stream)
        self._settle(stream)
        _core.copy_blocks(stream, target, source, _table(call, blocks))

    def _ends_of(
        self, call: str, memory: str | Buffer | None, mine: Any, at: int | None, stream: object
    ) -> tuple[Buffer, Buffer]:
        """Return the peer's memory, from ``at`` on as long as this rank's if it is given, and this rank's."""
        self._check_open(call)
        checked_stream(call, stream)
        theirs = self.window if memory is None else self._memory(call.rpartition(".")[2], memory)
        own = buffers.as_buffer(mine)
        if at is None:
            return theirs, own
        first = self._checked_at(call, theirs, at, own.size)
        return theirs[first : first + own.size], own

    def _loose_stream(self, call: str, stream: Stream | None) -> Stream:
        if stream is not None:
            raise InvalidValue(
                f"{call}: nonblocking operations are in no stream; leave one of the two out", call=call
            )
        self._check_open(call)
        with self._lock:
            if not self._loose:
                self._loose = [self.group.device.create_stream() for _ in range(2)]
            self._turn ^= 1
            return self._loose[self._turn]

    def _memory(self, verb: str, tag: object) -> Buffer:
        found = tag if isinstance(tag, Buffer) else self.memories.get(tag) if isinstance(tag, str) else None
        if found is None:
            raise InvalidValue(
                f"Channel.{verb}: rank {self.peer} offered no memory with the tag {tag!r}; it offered "
                f"{', '.join(map(repr, self.memories))}; what is registered later is for later channels",
                call=f"Channel.{verb}",
            )
        return found

    def _checked_at(self, call: str, memory: Buffer, at: object, nbytes: int) -> int:
        first = as_number(call, "at must be a byte", at)
        if not 0 <= first <= memory.size - nbytes:
            raise BadAddress(
                f"{call}: {nbytes:,} bytes at byte {first:,} do not lie in the {memory.size:,} bytes that rank "
                f"{self.peer} offers",
                fault=Fault.OUT_OF_BOUNDS,
                call=call,
                device=self.group.device.name,
            )
        return first


def _table(call: str, blocks: npt.ArrayLike) -> npt.NDArray[np.uint64]:
    """Return a list of blocks as native code reads it."""
    try:
        found = np.asarray(blocks)
    except (ValueError, OverflowError):
        found = np.asarray(blocks, object)  # entries of several lengths
    if found.shape == (0,):
        found = found.reshape(0, 3)
    if found.ndim != 2 or found.shape[1] != 3 or (found.size and found.dtype.kind not in "iu"):
        raise InvalidValue(
            f"{call}: blocks have shape {found.shape} and type {found.dtype}; valid is (n, 3), of integers: first "
            "byte of the destination, first byte of the source, bytes",
            call=call,
        )
    if found.dtype.kind == "i" and found.size and int(found.min()) < 0:
        entry = int(np.argmin(found.min(axis=1)))
        raise InvalidValue(
            f"{call}: block {entry} is {found[entry].tolist()}; no number may be negative", call=call
        )
    return np.ascontiguousarray(found, np.uint64)
