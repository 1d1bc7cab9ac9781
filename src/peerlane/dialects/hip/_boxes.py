"""Boxes of bytes in pitched memory: ``depth`` slices of ``height`` rows of ``width`` bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peerlane.dialects.gpu.copies import Ends, Move, Side
from peerlane.dialects.hip._checks import refuse_no_struct
from peerlane.dialects.hip._convention import invalid, member, refusal
from peerlane.dialects.hip._state import calls, gpu
from peerlane.dialects.hip._stream import stream_of

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


def must_be_known(kind: Any) -> tuple[bool, bool]:
    """Return whether a kind says that destination and source are memory that HIP knows."""
    dst, src = _ENDS[kind.name]
    return bool(dst), bool(src)


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
    return gpu.copies.box(side_of_memory(copy, "dst"), side_of_memory(copy, "src"), (width, height, depth))


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
            gpu.copies.move_now(*found)

    calls.made(name, now, doc, module)


def declare_queued(of: str, prepare: Callable[..., Prepared]) -> None:
    """Declare the call with Async behind its name."""

    def queued(*args: Any) -> None:
        found, on = prepare(*args[:-1]), stream_of(args[-1])
        if found is not None:
            gpu.copies.move_on(on, *found)

    calls.queued(of, queued, last="; with ordinary host memory it is complete on return")
