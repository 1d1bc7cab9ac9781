"""Copies, fills and reductions of buffers: complete on return, or asynchronous with ``stream=``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from peerlane.backend import host
from peerlane.errors import BadArgument, InvalidValue, Refused
from peerlane.memory import buffer as buffers
from peerlane.memory import dispatch
from peerlane.memory.plain_buffer import PlainBuffer
from peerlane.streams.stream import Stream, checked_stream
from peerlane.support import reductions
from peerlane.support.words import checked_pitch, checked_words

if TYPE_CHECKING:
    import numpy.typing as npt

    from peerlane.memory.buffer_like import BufferLike

_copy_memory = host.copy_memory
_submit_copy = host.submit_copy
_reduce_memory = host.reduce_memory
_submit_reduce = host.submit_reduce


def copy(dst: BufferLike, src: BufferLike, *, stream: Stream | None = None) -> None:
    """Copy all of ``src`` to ``dst``; complete on return, or queued on a stream.

    Parameters
    ----------
    dst, src : Buffer or host object
        Anything that :func:`as_buffer` takes, of any element type; both of the same size in bytes.  Overlapping parts
        of one buffer are copied as by ``memmove``.  Between devices without peer access the bytes are staged through
        the host; ``src.route_to(dst)`` tells the route.
    stream : Stream, optional
        The stream to queue it on.  Both ends are kept until the copy is over; do not change host memory before.

    Raises
    ------
    InvalidValue
        The sizes differ.  Nothing was written.
    Closed, AccessDenied, BadAddress
        An end or the stream is closed, the destination is read-only, or an end's memory is no longer mapped.  Nothing
        was written or queued.
    KeyboardInterrupt
        Ctrl-C during a long copy (seen within 0.1 s): the destination's bytes are unspecified.

    Examples
    --------
    >>> one, other = pl.device(0).allocate(4), pl.device(1).allocate(4)
    >>> pl.copy(one, b"abcd")
    >>> pl.copy(other, one)
    >>> bytes(other)
    b'abcd'
    """
    if stream is None:
        if not _copy_memory(dst, src):
            to, source = buffers.as_buffer(dst), buffers.as_buffer(src)
            if not _copy_memory(to, source):
                dispatch.copy(to, source)
        return
    try:
        if not _submit_copy(stream, dst, src):
            to, source = buffers.as_buffer(dst), buffers.as_buffer(src)
            if not _submit_copy(stream, to, source):
                dispatch.copy(to, source, stream)
    except TypeError:
        checked_stream("copy", stream)
        raise


def reduce(
    dst: BufferLike, src: BufferLike, *, dtype: npt.DTypeLike, op: str = "sum", stream: Stream | None = None
) -> None:
    """Combine all of ``src`` into ``dst``, element by element: ``dst[i] = dst[i] OP src[i]``.

    Parameters
    ----------
    dst, src : Buffer or host object
        Anything that :func:`as_buffer` takes; both of the same size in bytes, a whole number of elements, and at
        addresses that are multiples of an element's size.  They may be the same memory, and must not overlap in part.
    dtype : str, numpy dtype or torch dtype
        Type of the elements: ``"int8"`` to ``"int64"``, ``"uint8"`` to ``"uint64"``, ``"float16"``, ``"bfloat16"``,
        ``"float32"`` or ``"float64"``; anything that ``numpy.dtype()`` turns into one of these; or the type of torch
        of that name.
    op : {"sum", "prod", "max", "min"}
        Integers wrap.  float16 and bfloat16 are computed in float32 and rounded once, to the nearest even.  As with
        ``numpy.maximum``, a maximum or minimum with a NaN is NaN.  If both elements are NaN, the result is that of
        ``dst``.
    stream : Stream, optional
        The stream to queue it on; without one it is complete on return.  Both ends are kept until it is over; do not
        change host memory before.

    Raises
    ------
    InvalidValue
        The sizes differ or are not a whole number of elements, an address is misaligned, the ends overlap in part,
        or the type or operation is unknown.  Nothing was written or queued.
    Closed, AccessDenied, BadAddress
        As :func:`copy`.
    KeyboardInterrupt
        Ctrl-C during a long reduction (seen within 0.1 s): some elements have been combined, others not.

    Notes
    -----
    Reductions of one process into the same elements take turns, from whatever threads and streams: no update is lost,
    and only streams and events determine the order.  Reductions of several processes do not take turns.

    Examples
    --------
    >>> total = np.arange(4, dtype="int32")
    >>> pl.reduce(total, np.ones(4, "int32"), dtype="int32", op="sum")
    >>> total
    array([1, 2, 3, 4], dtype=int32)
    """
    number = reductions.number_of("reduce", dtype, op)
    if stream is None:
        if not _reduce_memory(dst, src, number):
            to, source = buffers.as_buffer(dst), buffers.as_buffer(src)
            if not _reduce_memory(to, source, number):
                dispatch.reduce(to, source, number)
        return
    try:
        if not _submit_reduce(stream, dst, src, number):
            to, source = buffers.as_buffer(dst), buffers.as_buffer(src)
            if not _submit_reduce(stream, to, source, number):
                dispatch.reduce(to, source, number, stream)
    except TypeError:
        checked_stream("reduce", stream)
        raise


def copy_batch(
    dsts: Iterable[BufferLike], srcs: Iterable[BufferLike], *, stream: Stream | None = None
) -> None:
    """Copy each source to the destination with the same index, as one operation.

    Parameters
    ----------
    dsts, srcs : iterable of Buffer or host object
        As many destinations as sources; both ends of a pair of the same size in bytes.  Pairs run in any order and
        must not overlap one another.
    stream : Stream, optional
        The stream to queue it on; without one it is complete on return.

    Raises
    ------
    InvalidValue
        The numbers of destinations and sources differ, or the sizes of a pair.
    Closed, AccessDenied, BadAddress
        As :func:`copy`; the text names the pair.  Nothing was written or queued.

    Examples
    --------
    >>> buffer = pl.device(0).allocate(4)
    >>> pl.copy_batch([buffer[:2], buffer[2:]], [b"ab", b"cd"])
    >>> bytes(buffer)
    b'abcd'
    """
    checked_stream("copy_batch", stream)
    if isinstance(dsts, buffers.Buffer) or isinstance(srcs, buffers.Buffer):
        raise TypeError(
            "copy_batch: dsts and srcs are lists, as in copy_batch([dst], [src]); one copy is copy(dst, src)"
        )
    targets, sources = list(dsts), list(srcs)
    if len(targets) != len(sources):
        raise InvalidValue(
            f"copy_batch: {len(targets):,} destinations and {len(sources):,} sources; give one source for each "
            "destination",
            call="copy_batch",
            detail=Refused(reason="counts_differ", destinations=len(targets), sources=len(sources)),
        )
    try:
        host.copy_batch(stream, targets, sources)
    except TypeError:
        writes, reads = [list(map(buffers.as_buffer, ends)) for ends in (targets, sources)]
        if any(isinstance(end, PlainBuffer) for end in (*writes, *reads)):
            dispatch.copy_batch(writes, reads, stream)
        else:
            host.copy_batch(stream, writes, reads)


def copy_2d(
    dst: BufferLike,
    dst_pitch: int,
    src: BufferLike,
    src_pitch: int,
    width: int,
    height: int,
    *,
    stream: Stream | None = None,
) -> None:
    """Copy ``height`` rows of ``width`` bytes whose starts lie ``pitch`` bytes apart.

    Parameters
    ----------
    dst, src : Buffer or host object
        Each must hold ``(height - 1) * pitch + width`` bytes.
    dst_pitch, src_pitch, width, height : int
        Bytes, bytes, bytes, rows.  A pitch is at least ``width``.  0 rows or 0 bytes are a no-op.  If the rectangles
        overlap and their pitches differ, the result is unspecified.
    stream : Stream, optional
        The stream to queue it on; without one it is complete on return.

    Raises
    ------
    InvalidValue, BadAddress, Closed, AccessDenied
        Nothing was written or queued.

    Examples
    --------
    >>> buffer = pl.device(0).allocate(8)
    >>> buffer.fill(b".")
    >>> pl.copy_2d(buffer, 4, b"abcd", 2, 2, 2)  # two rows of two bytes, which begin four bytes apart
    >>> bytes(buffer)
    b'ab..cd..'
    """
    checked_stream("copy_2d", stream)
    dst, src = buffers.as_buffer(dst), buffers.as_buffer(src)
    width, height = checked_words("copy_2d", width=width, height=height)
    pitches = {"destination": checked_pitch("destination", dst_pitch, width)}
    pitches["source"] = checked_pitch("source", src_pitch, width)
    for (name, pitch), end in zip(pitches.items(), (dst, src), strict=True):
        need = (height - 1) * pitch + width if width and height else 0
        if need > end.size:
            raise InvalidValue(
                f"copy_2d: {height:,} rows of {width:,} bytes with pitch {pitch:,} need {need:,} bytes; the {name} "
                f"has {end.size:,}",
                call="copy_2d",
                detail=Refused(
                    reason="too_large",
                    end=name,
                    rows=height,
                    width=width,
                    pitch=pitch,
                    needed=need,
                    size=end.size,
                ),
            )
    rectangle = (dst, pitches["destination"], src, pitches["source"], width, height)
    if isinstance(dst, PlainBuffer) or isinstance(src, PlainBuffer):
        dispatch.copy_2d(*rectangle, stream)
    elif stream is None:
        host.copy_memory_2d(*rectangle)
    else:
        host.submit_copy_2d(stream, *rectangle)


def fill(dst: BufferLike, value: int | bytes, *, stream: Stream | None = None) -> None:
    """Fill all of ``dst`` with a repeated value; see :meth:`Buffer.fill`.

    Examples
    --------
    >>> buffer = pl.device(0).allocate(4)
    >>> pl.fill(buffer, b"ab")
    >>> bytes(buffer)
    b'abab'
    """
    checked_stream("fill", stream)
    dst = buffers.as_buffer(dst)
    if isinstance(value, bytes):
        width, number = len(value), int.from_bytes(value, "little")
        if width not in (1, 2, 4):
            raise InvalidValue(
                f"fill: the pattern has {width} bytes; valid are 1, 2 and 4",
                call="fill",
                detail=BadArgument("width", width, choices=(1, 2, 4)),
            )
    elif isinstance(value, int):
        width, number = 1, value
        if not 0 <= value <= 255:
            raise InvalidValue(
                f"fill: {value} is not a byte (0..255); give wider patterns as bytes",
                call="fill",
                detail=BadArgument("value", value, least=0, most=255),
            )
    else:
        raise TypeError(f"fill: the value must be an int of 0..255 or bytes, not {type(value).__name__}")
    if dst.size % width:
        raise InvalidValue(
            f"fill: {dst.size:,} bytes are not a whole number of {width}-byte patterns; {dst.size % width} are left "
            "over",
            call="fill",
            detail=Refused(reason="no_whole_elements", size=dst.size, width=width),
        )
    if isinstance(dst, PlainBuffer):
        dispatch.fill(dst, number, width, stream)
    elif stream is None:
        host.fill_memory(dst, number, width)
    else:
        host.submit_fill(stream, dst, number, width)
