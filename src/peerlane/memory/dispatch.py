"""Copies that native code does not recognise: those of other back-ends, and between two back-ends.

Within a back-end its own verbs are called.  Between two back-ends, and to and from the host, bytes go through the
host in pieces.  On a stream such an operation is a host function: it runs in order, on the thread of the callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from peerlane.backend import host, registry
from peerlane.backend.base import check_reduction
from peerlane.backend.facts import Caps, Kind
from peerlane.backend.interface import Backend
from peerlane.diagnostics import address_errors, allocations
from peerlane.errors import AccessDenied, Fault, InvalidValue, Unsupported
from peerlane.memory.buffer import Buffer
from peerlane.memory.plain_buffer import PlainBuffer
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

    def __init__(self, buffer: Buffer) -> None:
        self._view = memoryview(buffer)
        self._size = buffer.size

    def read(self, at: int, into: memoryview) -> None:
        into[:] = self._view[at : at + into.nbytes]

    def check_writable(self) -> None:
        if self._view.readonly:
            raise AccessDenied(
                f"the destination of {self._size:,} bytes is read-only memory; copy into a bytearray or a writable "
                "array",
                fault=Fault.READ_ONLY,
            )

    def write(self, at: int, data: memoryview) -> None:
        self._view[at : at + data.nbytes] = data

    def let_go(self) -> None:
        self._view.release()


class _Native:
    """Memory of the host, or of a virtual device, by its address."""

    backend: Backend | None = None

    def __init__(self, address: int) -> None:
        self._address = address

    def read(self, at: int, into: memoryview) -> None:
        host.copy(_address_of(into), self._address + at, into.nbytes)

    def write(self, at: int, data: memoryview) -> None:
        host.copy(self._address + at, _address_of(data), data.nbytes)

    def let_go(self) -> None:
        pass


def _address_of(view: memoryview) -> int:
    found = host.buffer_of(view)
    assert found is not None
    return found[0]


def _end(buffer: Buffer) -> _Foreign | _Seen:
    if isinstance(buffer, PlainBuffer):
        hold = buffer.hold()
        return _Foreign(buffer.device.backend, buffer.last_address, hold)
    return _Seen(buffer)


def _ends(dst: Buffer, src: Buffer) -> tuple[_Foreign | _Seen, _Foreign | _Seen]:
    to = _end(dst)
    try:
        to.check_writable()
        return to, _end(src)
    except BaseException:
        to.let_go()
        raise


def _run(stream: Stream | None, ends: Sequence[End], work: Callable[[], None]) -> None:
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
        stream.launch_callback(run)
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
    to, origin = _ends(dst, src)
    _run(stream, (to, origin), lambda: _move(to, origin, [(0, 0, size)]))


def copy_batch(dsts: Sequence[Buffer], srcs: Sequence[Buffer], stream: Stream | None = None) -> None:
    """Copy each source to the destination with the same index; at least one end is not native."""
    pairs: list[tuple[End, End, int]] = []
    ends: list[End] = []
    try:
        for number, (dst, src) in enumerate(zip(dsts, srcs, strict=True)):
            _check_sizes("copy_batch", dst, src, f"pair {number} of the batch: ")
            to, origin = _ends(dst, src)
            pairs.append((to, origin, src.size))
            ends += (to, origin)
    except BaseException:
        for end in ends:
            end.let_go()
        raise

    def work() -> None:
        for to, origin, size in pairs:
            _move(to, origin, [(0, 0, size)])

    _run(stream, ends, work)


def copy_2d(
    dst: Buffer,
    dst_pitch: int,
    src: Buffer,
    src_pitch: int,
    width: int,
    height: int,
    stream: Stream | None = None,
) -> None:
    """Copy a rectangle, for which both ends have room; at least one end is not native."""
    to, origin = _ends(dst, src)
    _run(stream, (to, origin), lambda: _rectangle(to, dst_pitch, origin, src_pitch, width, height))


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
    _run(stream, (end,), lambda: end._backend.fill(end.address, value, width, count))


def reduce(dst: Buffer, src: Buffer, number: int, stream: Stream | None = None) -> None:
    """Combine one buffer into another; at least one end is not native."""
    _check_sizes("reduce", dst, src)
    width, size = reductions.width_of(number), src.size
    if size % width:
        raise reductions.no_whole_elements(size, width)
    check_reduction(dst.address, src.address, size, width)
    to, origin = _ends(dst, src)
    _run(stream, (to, origin), lambda: _combine(to, origin, size // width, number))


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


def _check_sizes(call: str, dst: Buffer, src: Buffer, which: str = "") -> None:
    if dst.size != src.size:
        raise InvalidValue(
            f"{call.removesuffix('_batch')}: {which}the source has {src.size:,} bytes, the destination {dst.size:,}; "
            f"take equal parts, for instance [:{min(src.size, dst.size)}]",
            call=call,
        )


def backend_at(address: int) -> Backend | None:
    """Return the back-end, other than the native one, that an address belongs to; errors as ``locate``."""
    return next((each for each in registry.foreign if each.locate(address).kind is not Kind.PAGEABLE), None)


def _ends_at(*addresses: int) -> list[_Foreign | _Native] | None:
    """Return the ends at addresses; None if native code knows all of them."""
    found = [backend_at(address) for address in addresses]
    if not any(found):
        return None
    return [
        _Native(address) if backend is None else _Foreign(backend, address)
        for backend, address in zip(found, addresses, strict=True)
    ]


def copy_at(dst: int, src: int, nbytes: int, stream: Stream | None) -> bool:
    """Copy between addresses; False if native code knows both."""
    ends = _ends_at(dst, src) if nbytes else None
    if ends is not None:
        to, origin = ends
        _check_spans((to, nbytes), (origin, nbytes))
        _run(stream, (), lambda: _move(to, origin, [(0, 0, nbytes)]))
    return ends is not None


def copy_2d_at(
    dst: int, dst_pitch: int, src: int, src_pitch: int, width: int, height: int, stream: Stream | None
) -> bool:
    """Copy a rectangle between addresses; False if native code knows both."""
    ends = _ends_at(dst, src) if width and height else None
    if ends is not None:
        to, origin = ends
        _check_spans(
            (to, (height - 1) * dst_pitch + width),
            (origin, (height - 1) * src_pitch + width),
        )
        _run(stream, (), lambda: _rectangle(to, dst_pitch, origin, src_pitch, width, height))
    return ends is not None


def fill_at(address: int, value: int, width: int, count: int, stream: Stream | None) -> bool:
    """Fill at an address; False if native code knows it."""
    backend = backend_at(address) if count else None
    if backend is not None:
        _check_spans((_Foreign(backend, address), width * count))
        _run(stream, (), lambda: backend.fill(address, value, width, count))
    return backend is not None


def reduce_at(dst: int, src: int, count: int, number: int, stream: Stream | None) -> bool:
    """Combine elements at addresses; False if native code knows both."""
    ends = _ends_at(dst, src) if count else None
    if ends is not None:
        to, origin = ends
        width = reductions.width_of(number)
        check_reduction(dst, src, count * width, width)
        _check_spans((to, count * width), (origin, count * width))
        _run(stream, (), lambda: _combine(to, origin, count, number))
    return ends is not None


def _check_spans(*spans: tuple[_Foreign | _Native, int]) -> None:
    """Refuse a destination, then a source, that leaves its allocation."""
    for role, (end, nbytes) in zip(("dst", "src"), spans, strict=False):
        if isinstance(end, _Foreign):
            place = end._backend.locate(end.address)
            left = place.base + place.size - end.address
            if nbytes > left:
                raise address_errors.out_of_bounds(
                    role,
                    end.address,
                    nbytes,
                    place.base,
                    place.size,
                    allocations.record_of(place.allocation) or f"the {place.size:,} bytes at {place.base:#x}",
                    f"{end._backend.name}:{place.ordinal}",
                )


def refuse_foreign(call: str, address: int, cap: Caps) -> None:
    """Raise ``Unsupported`` for an address of a back-end that lacks a capability."""
    backend = backend_at(address)
    if backend is not None:
        raise lacks(call, backend, cap)


def lacks(call: str, backend: Backend, cap: Caps) -> Unsupported:
    """Return the exception for a call whose capability the back-end lacks."""
    has = "|".join(str(each.name) for each in Caps if each in backend.caps) or "none"
    return Unsupported(f"{call}: needs {cap.name}; back-end {backend.name} has {has}", call=call)
