"""Boxes of bytes in pitched memory: ``depth`` slices of ``height`` rows of ``width`` bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peerlane.dialects.hip._checks import refuse_no_struct
from peerlane.dialects.hip._convention import invalid, member, refusal
from peerlane.dialects.hip._copy import Ends, Move, check, move_now, move_on
from peerlane.dialects.hip._places import known, refuse_outside
from peerlane.dialects.hip._state import calls
from peerlane.dialects.hip._stream import stream_of
from peerlane.memory import raw
from peerlane.support.records import dataclass

_DEVICE, _HOST, _ANY = True, False, None
_ENDS = {  # by kind: whether the destination and the source must be memory that HIP knows
    "hipMemcpyHostToHost": (_HOST, _HOST),
    "hipMemcpyHostToDevice": (_DEVICE, _HOST),
    "hipMemcpyDeviceToHost": (_HOST, _DEVICE),
    "hipMemcpyDeviceToDevice": (_DEVICE, _DEVICE),
    "hipMemcpyDeviceToDeviceNoCU": (_DEVICE, _DEVICE),
    "hipMemcpyDefault": (_ANY, _ANY),
}


#: What moves a box and what its ends are; None for an empty one.
Prepared = tuple[Move, Ends] | None


@dataclass(frozen=True, slots=True)
class Side:
    """One end of a copy.

    Attributes
    ----------
    address : int
        Of the pitched memory.
    pitch : int
        Bytes from one row to the next; 0 where they lie side by side.
    rows : int
        From one slice to the next; 0 where they lie side by side.
    x, y, z : int
        Where the box begins: bytes, rows and slices.
    must_be_known : bool
        Whether ordinary memory of the host is refused.
    """

    address: int
    pitch: int = 0
    rows: int = 0
    x: int = 0
    y: int = 0
    z: int = 0
    must_be_known: bool = False


@dataclass(frozen=True, slots=True)
class _Laid:
    start: int
    pitch: int
    slice: int


def must_be_known(kind: Any) -> tuple[bool, bool]:
    """Return whether a kind says that destination and source are memory that HIP knows."""
    dst, src = _ENDS[kind.name]
    return bool(dst), bool(src)


def prepared(
    dst: Side, src: Side, width: int, height: int, depth: int, kind: Any = None
) -> tuple[Move, Ends]:
    """Return what moves a box, and what its ends are.

    Raises
    ------
    Refusal
        hipErrorInvalidValue: NULL, rows that overlap, ordinary memory of the host where HIP must know it, a copy that
        ends beyond its memory; as ``check``.
    """
    ends = check(dst.address, src.address, 0, kind)
    to = _checked("dst", dst, width, height, depth)
    source = _checked("src", src, width, height, depth)
    return _mover(to, source, width, height, depth), ends


def _checked(name: str, side: Side, width: int, height: int, depth: int) -> _Laid:
    if side.must_be_known:
        known(name, side.address)
    found = _laid(name, side, width, height, depth)
    last = found.start + (depth - 1) * found.slice + (height - 1) * found.pitch
    refuse_outside(last + width - side.address, **{name: side.address})
    return found


def _laid(name: str, side: Side, width: int, height: int, depth: int) -> _Laid:
    pitch = side.pitch or width
    if pitch < width and height * depth > 1:
        raise invalid(
            f"the rows of {name} lie {pitch:,} bytes apart and have {width:,}",
            "pass a pitch of at least the width",
        )
    per_slice = pitch * (side.rows or height)
    if per_slice < pitch * height and depth > 1:
        raise invalid(
            f"the slices of {name} lie {side.rows:,} rows apart and have {height:,}",
            "pass a height of at least that of the box",
        )
    return _Laid(side.address + side.z * per_slice + side.y * pitch + side.x, pitch, per_slice)


def _mover(to: _Laid, source: _Laid, width: int, height: int, depth: int) -> Move:
    if depth == 1 or (to.slice == to.pitch * height and source.slice == source.pitch * height):
        slices, rows = 1, height * depth
    else:
        slices, rows = depth, height

    def move(stream: Any) -> None:
        neutral = None if stream is None else stream.neutral
        for at in range(slices):
            raw.copy_2d(
                to.start + at * to.slice,
                max(to.pitch, width),
                source.start + at * source.slice,
                max(source.pitch, width),
                width,
                rows,
                stream=neutral,
            )

    return move


def side_of_memory(copy: Any, end: str) -> Side:
    """Return one end of a hip_Memcpy2D or a HIP_MEMCPY3D: ``end`` is "src" or "dst".

    Refuses: hipErrorInvalidValue a type that memory does not have; hipErrorNotSupported arrays
    """
    kind = member(copy, f"{end}MemoryType")
    if kind.name == "hipMemoryTypeArray":
        refuse_arrays(getattr(copy, f"{end}Array"))
    if kind.name == "hipMemoryTypeUnregistered":
        raise invalid(
            f"{end}MemoryType is {kind.name}",
            "pass hipMemoryTypeHost, hipMemoryTypeDevice or hipMemoryTypeUnified",
        )
    is_host = kind.name == "hipMemoryTypeHost"
    return Side(
        int(getattr(copy, f"{end}{'Host' if is_host else 'Device'}")),
        getattr(copy, f"{end}Pitch"),
        getattr(copy, f"{end}Height", 0),
        getattr(copy, f"{end}XInBytes"),
        getattr(copy, f"{end}Y"),
        getattr(copy, f"{end}Z", 0),
        must_be_known=kind.name == "hipMemoryTypeDevice",
    )


def described(copy: Any) -> Prepared:
    """Return the prepared copy of a hip_Memcpy2D or a HIP_MEMCPY3D; None if it has no bytes."""
    refuse_no_struct("hip_Memcpy2D or HIP_MEMCPY3D", "pCopy", copy)
    width, height, depth = copy.WidthInBytes, copy.Height, getattr(copy, "Depth", 1)
    if not (width and height and depth):
        return None
    return prepared(side_of_memory(copy, "dst"), side_of_memory(copy, "src"), width, height, depth)


def refuse_arrays(array: object) -> None:
    """Refuse an array: hipErrorInvalidValue for NULL, else hipErrorNotSupported."""
    if not int(array):  # type: ignore[call-overload]  # a handle
        raise invalid("the array is NULL", "pass pitched memory")
    raise refusal(
        "hipErrorNotSupported",
        f"arrays of textures are not part of peerlane: {int(array):#x}",  # type: ignore[call-overload]
        "copy pitched memory",
    )


def declare(name: str, prepare: Callable[..., Prepared], doc: str, module: str) -> None:
    """Declare a call that copies what ``prepare`` makes of its arguments, and waits as hipMemcpy does."""

    def now(*args: Any) -> None:
        found = prepare(*args)
        if found is not None:
            move_now(*found)

    calls.made(name, now, doc, module)


def declare_queued(of: str, prepare: Callable[..., Prepared]) -> None:
    """Declare the call with Async behind its name."""

    def queued(*args: Any) -> None:
        found, on = prepare(*args[:-1]), stream_of(args[-1])
        if found is not None:
            move_on(*found, on)

    calls.queued(of, queued, last="; with ordinary host memory it is complete on return")
