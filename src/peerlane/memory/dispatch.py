"""Copies that native code does not recognise: those of other back-ends, and between two back-ends.

Within a back-end its own verbs are called.  Between two back-ends, and to and from the host, bytes go through the
host in pieces.  On a stream such an operation is a host function: it runs in order, on the thread of the callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from peerlane.backend import host, registry
from peerlane.backend.base import check_reduction
from peerlane.backend.facts import Caps, Kind
from peerlane.backend.interface import Backend
from peerlane.diagnostics.memory import address_errors, allocations
from peerlane.errors import AccessDenied, BadAddress, Fault, InvalidValue, Refused, SizesDiffer, Unsupported
from peerlane.memory.buffer import Buffer
from peerlane.memory.far_buffer import FarBuffer
from peerlane.memory.plain_buffer import PlainBuffer, allocation_of
from peerlane.streams.callbacks import Operation
from peerlane.streams.stream import Stream
from peerlane.support import reductions

PIECE = 1 << 20  #: bytes that go through the host at a time


class End(Protocol):
    """One end of an operation."""

    backend: Backend | None  #: the back-end whose verbs reach it; None if the host or native code does

    def read(self, at: int, into: memoryview) -> None: ...
    def write(self, at: int, data: memoryview) -> None: ...
    def let_go(self) -> None: ...


class _Foreign:
    """Memory of a back-end, by its address; ``hold`` keeps it until ``let_go``."""

    def __init__(self, backend: Backend, address: int, hold: Any = None) -> None:
        self.backend: Backend | None = backend
        self._backend, self.address, self._hold = backend, address, hold

    def check_writable(self) -> None:
        pass

    def read(self, at: int, into: memoryview) -> None:
        self._backend.read(self.address + at, into)

    def write(self, at: int, data: memoryview) -> None:
        self._backend.write(self.address + at, data)

    def let_go(self) -> None:
        if self._hold is not None:
            self._hold.let_go()


class _Seen:
    """Memory that the host can read and write; the view keeps it."""

    backend: Backend | None = None

    def __init__(self, seen: object) -> None:
        self._view = memoryview(seen)  # type: ignore[arg-type]  # exports its bytes

    def read(self, at: int, into: memoryview) -> None:
        into[:] = self._view[at : at + into.nbytes]

    def check_writable(self) -> None:
        if self._view.readonly:
            raise AccessDenied(
                f"the destination of {self._view.nbytes:,} bytes is read-only memory; copy into a bytearray or a "
                "writable array",
                fault=Fault.READ_ONLY,
                detail=Refused(reason="read_only", role="dst", size=self._view.nbytes),
            )

    def write(self, at: int, data: memoryview) -> None:
        self._view[at : at + data.nbytes] = data

    def let_go(self) -> None:
        self._view.release()


class _Pageable:
    """Host memory by its address: the caller keeps it, and native code touches it under its fault guard."""

    backend: Backend | None = None

    def __init__(self, address: int) -> None:
        self._address = address

    def read(self, at: int, into: memoryview) -> None:
        host.copy(_address_of(into), self._address + at, into.nbytes)

    def check_writable(self) -> None:
        pass

    def write(self, at: int, data: memoryview) -> None:
        host.copy(self._address + at, _address_of(data), data.nbytes)

    def let_go(self) -> None:
        pass


def _address_of(view: memoryview) -> int:
    exported = host.buffer_of(view)
    assert exported is not None
    return exported[0]


_End: TypeAlias = "_Foreign | _Seen | _Pageable"


def _end(buffer: Buffer) -> _End:
    if isinstance(buffer, FarBuffer):
        buffer.refuse("copy")
    if isinstance(buffer, PlainBuffer):
        hold = buffer.hold()
        return _Foreign(buffer.backend, buffer.last_address, hold)
    return _Seen(buffer)


def _ends(dst: Callable[[], _End], src: Callable[[], _End]) -> tuple[_End, _End]:
    """Return both ends; neither is kept if one of them is refused."""
    to = dst()
    try:
        to.check_writable()
        return to, src()
    except BaseException:
        to.let_go()
        raise


def _ends_of(dst: Buffer, src: Buffer) -> tuple[_End, _End]:
    return _ends(lambda: _end(dst), lambda: _end(src))


def _run(stream: Stream | None, call: str, kind: str, ends: Sequence[End], work: Callable[[], None]) -> None:
    """Do the work now, or in the order of a stream; then let go of the ends."""

    def run() -> None:
        try:
            work()
        finally:
            for end in ends:
                end.let_go()

    if stream is None:
        run()
        return
    try:
        stream.launch_callback(Operation(call, kind, run))
    except BaseException:
        for end in ends:
            end.let_go()
        raise


def _move(dst: End, src: End, pieces: Iterable[tuple[int, int, int]]) -> None:
    """Move each (offset in ``dst``, offset in ``src``, bytes)."""
    if isinstance(dst, _Foreign) and isinstance(src, _Foreign) and dst.backend is src.backend:
        for to, origin, nbytes in pieces:
            dst._backend.copy(dst.address + to, src.address + origin, nbytes)
        return
    room = memoryview(bytearray(PIECE))
    for to, origin, nbytes in pieces:
        for at in range(0, nbytes, PIECE):
            piece = room[: min(PIECE, nbytes - at)]
            src.read(origin + at, piece)
            dst.write(to + at, piece)


def copy(dst: Buffer, src: Buffer, stream: Stream | None = None) -> None:
    """Copy all of a buffer; at least one end is not native."""
    _check_sizes("copy", dst, src)
    size = src.size
    to, origin = _ends_of(dst, src)
    _run(stream, "copy", "copy", (to, origin), lambda: _move(to, origin, [(0, 0, size)]))


def copy_batch(dsts: Sequence[Buffer], srcs: Sequence[Buffer], stream: Stream | None = None) -> None:
    """Copy each source to the destination with the same index; at least one end is not native."""
    pairs: list[tuple[End, End, int]] = []
    ends: list[End] = []
    try:
        for number, (dst, src) in enumerate(zip(dsts, srcs, strict=True)):
            _check_sizes("copy_batch", dst, src, number)
            to, origin = _ends_of(dst, src)
            pairs.append((to, origin, src.size))
            ends += (to, origin)
    except BaseException:
        for end in ends:
            end.let_go()
        raise

    def work() -> None:
        for to, origin, size in pairs:
            _move(to, origin, [(0, 0, size)])

    _run(stream, "copy_batch", "batch of copies", ends, work)


def copy_2d(
    dst: Buffer,
    dst_pitch: int,
    src: Buffer,
    src_pitch: int,
    width: int,
    height: int,
    stream: Stream | None = None,
) -> None:
    """Copy a rectangle that both ends have room for; at least one end is not native."""
    to, origin = _ends_of(dst, src)
    work = partial(_rectangle, to, dst_pitch, origin, src_pitch, width, height)
    _run(stream, "copy_2d", "2D copy", (to, origin), work)


def _rectangle(to: End, to_pitch: int, origin: End, from_pitch: int, width: int, height: int) -> None:
    if isinstance(to, _Foreign) and isinstance(origin, _Foreign) and to.backend is origin.backend:
        to._backend.copy_2d(to.address, to_pitch, origin.address, from_pitch, width, height)
    else:
        rows = range(height if width else 0)
        _move(to, origin, [(row * to_pitch, row * from_pitch, width) for row in rows])


def fill(dst: Buffer, value: int, width: int, stream: Stream | None = None) -> None:
    """Fill a buffer that is not native."""
    end, count = _end(dst), dst.size // width
    assert isinstance(end, _Foreign)
    if Caps.FILL not in end._backend.caps:
        end.let_go()
        raise lacks("fill", end._backend, Caps.FILL)
    work = partial(end._backend.fill, end.address, value, width, count)
    _run(stream, "fill", "fill", (end,), work)


def reduce(dst: Buffer, src: Buffer, number: int, stream: Stream | None = None) -> None:
    """Combine one buffer into another; at least one end is not native."""
    _check_sizes("reduce", dst, src)
    width, size = reductions.width_of(number), src.size
    if size % width:
        raise reductions.no_whole_elements(size, width)
    check_reduction(dst.address, src.address, size, width)
    to, origin = _ends_of(dst, src)
    work = partial(_combine, to, origin, size // width, number)
    _run(stream, "reduce", "reduction", (to, origin), work)


def _combine(to: End, origin: End, count: int, number: int) -> None:
    import numpy as np

    from peerlane.support.host_reductions import combined

    dtype, op = reductions.names_of(number)
    if isinstance(to, _Foreign) and isinstance(origin, _Foreign) and to.backend is origin.backend:
        to._backend.reduce(to.address, origin.address, count, dtype, op)
        return
    size = count * reductions.width_of(number)
    for at in range(0, size, PIECE):
        mine, other = (np.empty(min(PIECE, size - at), np.uint8) for _ in "ab")
        to.read(at, mine.data)
        origin.read(at, other.data)
        to.write(at, combined(mine, other, dtype, op).data)


def _check_sizes(call: str, dst: Buffer, src: Buffer, pair: int | None = None) -> None:
    if dst.size != src.size:
        which = "" if pair is None else f"pair {pair} of the batch: "
        raise InvalidValue(
            f"{call.removesuffix('_batch')}: {which}the source has {src.size:,} bytes, the destination {dst.size:,}; "
            f"take equal parts, for instance [:{min(src.size, dst.size)}]",
            call=call,
            detail=SizesDiffer(src.size, dst.size, pair),
        )


def backend_at(address: int) -> Backend | None:
    """Return the back-end, other than the native one, that an address belongs to; errors as ``locate``."""
    return next((each for each in registry.foreign if each.locate(address).kind is not Kind.PAGEABLE), None)


def _backend_of(role: str, address: int, nbytes: int) -> Backend | None:
    """Return as ``backend_at``; errors name the operand and its bytes."""
    try:
        return backend_at(address)
    except BadAddress as error:
        raise address_errors.of_operand(error, role, nbytes) from None


def _are_native(dst: int, to_bytes: int, src: int, source_bytes: int) -> bool:
    return not (_backend_of("dst", dst, to_bytes) or _backend_of("src", src, source_bytes))


def _end_at(role: str, address: int, nbytes: int) -> _End:
    """Return the end at an address, whose bytes it keeps; refuse a range that leaves its allocation."""
    backend = _backend_of(role, address, nbytes)
    if backend is not None:
        return _foreign_at(role, backend, address, nbytes)
    if not address:
        raise address_errors.null(role, nbytes)
    try:
        is_pageable = host.locate(address) is None
    except BadAddress:
        is_pageable = False  # memory_at raises it too, with the number of bytes
    try:
        return _Pageable(address) if is_pageable else _Seen(host.memory_at(address, nbytes))
    except BadAddress as error:
        raise address_errors.of_operand(error, role, nbytes) from None


def _foreign_at(role: str, backend: Backend, address: int, nbytes: int) -> _Foreign:
    location = backend.locate(address)
    allocation = allocation_of(location.allocation)
    if allocation is not None and not allocation.hold():  # closed; queued operations still keep its bytes
        dead = allocations.record_of(location.allocation)
        assert dead is not None
        raise address_errors.freed(role, address, nbytes, dead)
    end = _Foreign(backend, address, allocation)
    if nbytes > location.base + location.size - address:
        end.let_go()
        raise address_errors.out_of_bounds(
            role,
            address,
            nbytes,
            location.base,
            location.size,
            location.allocation,
            f"{backend.name}:{location.ordinal}",
        )
    return end


def _check_route(call: str, dst: int, src: int) -> None:
    """Refuse a direct operation between devices of two back-ends, or without peer access."""
    homes = [
        (backend, location.ordinal)
        for address in (dst, src)
        for backend in registry.entered()
        if (location := backend.locate(address)).kind is Kind.DEVICE
    ]
    if len(homes) < 2 or homes[0] == homes[1]:
        return
    (backend, ordinal), (other, source) = homes
    if backend is other and (ordinal in backend.peers(source) or source in backend.peers(ordinal)):
        return
    why = (
        "the bytes go through the host between back-ends"
        if backend is not other
        else "neither has peer access"
    )
    to, of = f"{backend.name}:{ordinal}", f"{other.name}:{source}"
    raise AccessDenied(
        f"{call}: no direct route from {of} to {to}: {why}; copy without direct=True",
        fault=Fault.PEER_NOT_ENABLED,
        call=call,
        device=to,
        detail=Refused(reason="no_route", source=of, destination=to),
    )


def _ends_at(dst: int, to_bytes: int, src: int, source_bytes: int) -> tuple[_End, _End]:
    return _ends(lambda: _end_at("dst", dst, to_bytes), lambda: _end_at("src", src, source_bytes))


def copy_at(dst: int, src: int, nbytes: int, stream: Stream | None, direct: bool) -> bool:
    """Copy between addresses; False if native code knows both."""
    if not nbytes or _are_native(dst, nbytes, src, nbytes):
        return False
    if direct:
        _check_route("raw.copy", dst, src)
    to, origin = _ends_at(dst, nbytes, src, nbytes)
    _run(stream, "raw.copy", "copy", (to, origin), lambda: _move(to, origin, [(0, 0, nbytes)]))
    return True


def copy_2d_at(
    dst: int,
    dst_pitch: int,
    src: int,
    src_pitch: int,
    width: int,
    height: int,
    stream: Stream | None,
    direct: bool,
) -> bool:
    """Copy a rectangle between addresses; False if native code knows both."""
    if not (width and height):
        return False
    to_bytes, source_bytes = ((height - 1) * pitch + width for pitch in (dst_pitch, src_pitch))
    if _are_native(dst, to_bytes, src, source_bytes):
        return False
    if direct:
        _check_route("raw.copy_2d", dst, src)
    to, origin = _ends_at(dst, to_bytes, src, source_bytes)
    work = partial(_rectangle, to, dst_pitch, origin, src_pitch, width, height)
    _run(stream, "raw.copy_2d", "2D copy", (to, origin), work)
    return True


def fill_at(address: int, value: int, width: int, count: int, stream: Stream | None) -> bool:
    """Fill at an address; False if native code knows it."""
    backend = _backend_of("dst", address, width * count) if count else None
    if backend is None:
        return False
    if Caps.FILL not in backend.caps:
        raise lacks("raw.fill", backend, Caps.FILL)
    end = _foreign_at("dst", backend, address, width * count)
    _run(stream, "raw.fill", "fill", (end,), lambda: backend.fill(address, value, width, count))
    return True


def reduce_at(dst: int, src: int, count: int, number: int, stream: Stream | None, direct: bool) -> bool:
    """Combine elements at addresses; False if native code knows both."""
    width = reductions.width_of(number)
    if not count or _are_native(dst, count * width, src, count * width):
        return False
    check_reduction(dst, src, count * width, width)
    if direct:
        _check_route("raw.reduce", dst, src)
    to, origin = _ends_at(dst, count * width, src, count * width)
    _run(stream, "raw.reduce", "reduction", (to, origin), lambda: _combine(to, origin, count, number))
    return True


def refuse_foreign(call: str, address: int, cap: Caps) -> None:
    """Raise ``Unsupported`` for an address of a back-end that lacks a capability."""
    backend = backend_at(address)
    if backend is not None:
        raise lacks(call, backend, cap)


def lacks(call: str, backend: Backend, cap: Caps) -> Unsupported:
    """Return the exception for a call whose capability the back-end lacks."""
    has = "|".join(str(each.name) for each in Caps if each in backend.caps) or "none"
    return Unsupported(
        f"{call}: needs {cap.name}; back-end {backend.name} has {has}",
        call=call,
        detail=Refused(reason="lacks", backend=backend.name, capability=cap.name),
    )
