"""Copies and fills between buffers.  No stream given: complete on return."""

from __future__ import annotations

from typing import Any

from peerlane import _core, raw
from peerlane import buffer as buffers
from peerlane.errors import InvalidValue

_copy_memory = _core.copy_memory


def copy(dst: Any, src: Any) -> None:
    """Copy all of ``src`` to ``dst``; complete on return.

    Parameters
    ----------
    dst, src : Buffer or host object
        Anything :func:`as_buffer` takes; both of the same size in bytes.  Overlapping parts of one buffer
        behave as ``memmove``.  Between devices without peer access the bytes are staged through the host;
        ``src.route_to(dst)`` says so.

    Raises
    ------
    InvalidValue
        The sizes differ.  Nothing was written.
    Closed, AccessDenied, BadAddress
        An end is closed, read-only, or no longer there.  Nothing was written.
    KeyboardInterrupt
        Ctrl-C during a long copy (seen within 0.1 s): the destination's bytes are unspecified.
    """
    if type(dst) is not buffers.Buffer:
        dst = buffers.as_buffer(dst)
    if type(src) is not buffers.Buffer:
        src = buffers.as_buffer(src)
    _copy_memory(dst, src)


def copy_2d(dst: Any, dst_pitch: int, src: Any, src_pitch: int, width: int, height: int) -> None:
    """Copy ``height`` rows of ``width`` bytes whose starts lie ``pitch`` bytes apart; complete on return.

    Parameters
    ----------
    dst, src : Buffer or host object
        Each must hold ``(height - 1) * pitch + width`` bytes.
    dst_pitch, src_pitch, width, height : int
        Bytes, bytes, bytes, rows.  A pitch is at least ``width``.  No rows or no bytes: nothing happens.
        Rows of rectangles that overlap with different pitches are unspecified.

    Raises
    ------
    InvalidValue, BadAddress, Closed, AccessDenied
        Nothing was written.
    """
    dst, src = buffers.as_buffer(dst), buffers.as_buffer(src)
    width, height = raw._checked("copy_2d", width=width, height=height)
    pitches = {"destination": raw._checked_pitch("destination", dst_pitch, width)}
    pitches["source"] = raw._checked_pitch("source", src_pitch, width)
    for (name, pitch), end in zip(pitches.items(), (dst, src), strict=True):
        need = (height - 1) * pitch + width if width and height else 0
        if need > end.size:
            raise InvalidValue(
                f"copy_2d: {height:,} rows of {width:,} bytes with pitch {pitch:,} need {need:,} bytes; the {name} "
                f"has {end.size:,}",
                call="copy_2d",
            )
    _core.copy_memory_2d(dst, pitches["destination"], src, pitches["source"], width, height)


def fill(dst: Any, value: int | bytes) -> None:
    """Fill all of ``dst`` with a repeated value; see :meth:`Buffer.fill`."""
    dst = buffers.as_buffer(dst)
    if isinstance(value, bytes):
        width, number = len(value), int.from_bytes(value, "little")
        if width not in (1, 2, 4):
            raise InvalidValue(f"fill: the pattern has {width} bytes; valid are 1, 2 and 4", call="fill")
    elif isinstance(value, int):
        width, number = 1, value
        if not 0 <= value <= 255:
            raise InvalidValue(
                f"fill: {value} is not a byte (0..255); give wider patterns as bytes", call="fill"
            )
    else:
        raise TypeError(f"fill: the value must be an int of 0..255 or bytes, not {type(value).__name__}")
    if dst.size % width:
        raise InvalidValue(
            f"fill: {dst.size:,} bytes are not a whole number of {width}-byte patterns; {dst.size % width} are left "
            "over",
            call="fill",
        )
    _core.fill_memory(dst, number, width)
