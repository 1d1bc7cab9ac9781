"""``hip``: copies of rows and boxes in pitched memory, also between named devices (facts/hip 1.4).

A box has ``depth`` slices of ``height`` rows of ``width`` bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from peerlane.dialects.gpu.copies import Copy, Side
from peerlane.dialects.hip.binding.checks import refuse_no_struct, required
from peerlane.dialects.hip.binding.convention import INVALID_DIRECTION, invalid, member, refusal
from peerlane.dialects.hip.binding.enums import enumeration
from peerlane.dialects.hip.copies.memcpy import with_device
from peerlane.dialects.hip.state import calls, gpu
from peerlane.dialects.hip.streams.stream import stream_of

_DEVICE, _HOST, _ANY = True, False, None
_ENDS = {  # by kind: whether the destination and the source must be memory that HIP knows
    "hipMemcpyHostToHost": (_HOST, _HOST),
    "hipMemcpyHostToDevice": (_DEVICE, _HOST),
    "hipMemcpyDeviceToHost": (_HOST, _DEVICE),
    "hipMemcpyDeviceToDevice": (_DEVICE, _DEVICE),
    "hipMemcpyDeviceToDeviceNoCU": (_DEVICE, _DEVICE),
    "hipMemcpyDefault": (_ANY, _ANY),
}


#: The copy of a box; None for an empty one.
Prepared = Copy | None


def must_be_known(kind: Any) -> tuple[bool, bool]:
    """Return whether a kind demands a destination and a source that HIP knows."""
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
        prepared = prepare(*args)
        if prepared is not None:
            gpu.copies.move_now(prepared, prepared.ends)

    calls.declare(name, now, doc, module)


def declare_queued(of: str, prepare: Callable[..., Prepared]) -> None:
    """Declare the call with Async behind its name."""

    def queued(*args: Any) -> None:
        prepared, on = prepare(*args[:-1]), stream_of(args[-1])
        if prepared is not None:
            gpu.copies.move_async(on, prepared)

    calls.declare_async(of, queued, last="; with ordinary host memory it is complete on return")


def _rows(dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: Any) -> Prepared:
    if not (width and height):
        return None
    for name, pitch in (("dpitch", dpitch), ("spitch", spitch)):
        if pitch < width:
            raise refusal(
                "hipErrorInvalidPitchValue",
                f"{name} is {pitch:,} bytes, less than the width of {width:,}",
                "pass the pitch that hipMallocPitch gave, or the width",
            )
    to_known, from_known = must_be_known(kind)
    to, source = Side(dst, dpitch, must_be_known=to_known), Side(src, spitch, must_be_known=from_known)
    return gpu.copies.box(to, source, (width, height, 1), with_device(kind))


declare(
    "hipMemcpy2D",
    _rows,
    """Copy ``height`` rows of ``width`` bytes, which begin a pitch apart; waits as hipMemcpy does.

    Refuses: hipErrorInvalidPitchValue a pitch below the width; hipErrorInvalidValue as `hipMemcpy`, an end that
        ``kind`` puts on a device in ordinary host memory
    Basis: S, D
    """,
    __name__,
)
declare_queued("hipMemcpy2D", _rows)
declare(
    "hipMemcpyParam2D",
    described,
    """Copy the rows that a hip_Memcpy2D describes; waits as hipMemcpy does.

    Refuses: hipErrorInvalidValue NULL, as `hipMemcpy`, a pitch below the width, device memory that HIP does not know;
        hipErrorNotSupported arrays
    Basis: D
    """,
    __name__,
)
calls.declare_alias("hipDrvMemcpy2DUnaligned", "hipMemcpyParam2D")
declare_queued("hipMemcpyParam2D", described)


_LONGEST_PITCH = (1 << 31) - 1
_DEFAULT = enumeration("hipMemcpyKind")["hipMemcpyDefault"]


def pitched(p: Any, kind: Any) -> Prepared:
    """Return how the box of a hipMemcpy3DParms or hipMemcpy3DPeerParms moves; None for an empty one."""
    to_known, from_known = must_be_known(kind)
    dst, src = _side(p, "dst", to_known), _side(p, "src", from_known)
    extent = p.extent
    width, height, depth = extent.width, extent.height, extent.depth
    for name, side in (("dst", dst), ("src", src)):
        if side.pitch and width + side.x > side.pitch:
            raise invalid(
                f"bytes {side.x:,} to {width + side.x:,} of {name}'s rows reach beyond the pitch of {side.pitch:,}",
                "copy fewer bytes of each row",
            )
    if not (width and height and depth):
        return None
    return gpu.copies.box(dst, src, (width, height, depth), with_device(kind))


def _side(p: Any, end: str, is_known: bool) -> Side:
    array, memory, begin = getattr(p, f"{end}Array"), getattr(p, f"{end}Ptr"), getattr(p, f"{end}Pos")
    if bool(int(array)) == bool(int(memory.ptr)):
        which = "both" if int(array) else "neither"
        raise invalid(f"{which} of {end}Array and {end}Ptr is given", f"give {end}Ptr")
    if int(array):
        refuse_arrays(array)
    if memory.pitch < memory.xsize:
        raise refusal(
            "hipErrorInvalidPitchValue",
            f"the pitch of {end}Ptr is {memory.pitch:,} bytes, less than its xsize of {memory.xsize:,}",
            "pass what hipMalloc3D gave",
        )
    if memory.pitch >= _LONGEST_PITCH:
        raise invalid(
            f"the pitch of {end}Ptr is {memory.pitch:,} bytes; it must be below {_LONGEST_PITCH:,}",
            "pass what hipMalloc3D gave",
        )
    return Side(int(memory.ptr), memory.pitch, memory.ysize, begin.x, begin.y, begin.z, is_known)


def _box(p: Any) -> Prepared:
    refuse_no_struct("hipMemcpy3DParms", "p", p)
    return pitched(p, member(p, "kind", INVALID_DIRECTION))


declare(
    "hipMemcpy3D",
    _box,
    """Copy the box that a hipMemcpy3DParms describes; waits as hipMemcpy does.

    Refuses: hipErrorInvalidValue NULL, a source or destination twice or not at all, rows beyond their pitch, as
        `hipMemcpy2D`; hipErrorInvalidPitchValue a pitch below ``xsize``; hipErrorInvalidMemcpyDirection no
        kind; hipErrorNotSupported arrays
    Basis: D
    """,
    __name__,
)
declare_queued("hipMemcpy3D", _box)
_PeerParms = Annotated[Any, required("hipMemcpy3DPeerParms")]


@calls.call("hipMemcpy3DPeer")
def hipMemcpy3DPeer(p: _PeerParms) -> None:
    """Queue the copy of a box between two devices, in the order of both as hipMemcpyPeer does.

    Refuses: hipErrorInvalidDevice an id; as `hipMemcpy3D`
    Basis: S; C for the order
    """
    devices = gpu.machine.device_of(p.dstDevice), gpu.machine.device_of(p.srcDevice)
    prepared = pitched(p, _DEFAULT)
    if prepared is not None:
        gpu.copies.move_peer(*devices, prepared)


@calls.call("hipMemcpy3DPeerAsync")
def hipMemcpy3DPeerAsync(p: _PeerParms, stream: int) -> None:
    """Queue the copy of a box between two devices on a stream of any device.

    Refuses: as `hipMemcpy3DPeer`; the stream
    Basis: S
    """
    gpu.machine.device_of(p.dstDevice)
    gpu.machine.device_of(p.srcDevice)
    prepared, on = pitched(p, _DEFAULT), stream_of(stream)
    if prepared is not None:
        gpu.copies.move_peer_async(on, prepared)


declare(
    "hipDrvMemcpy3D",
    described,
    """Copy the box that a HIP_MEMCPY3D describes; waits as hipMemcpy does.

    Refuses: as `hipMemcpyParam2D`
    Basis: D
    """,
    __name__,
)
declare_queued("hipDrvMemcpy3D", described)
