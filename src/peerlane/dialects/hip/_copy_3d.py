"""``hip``: copies of boxes, also between named devices (facts/hip 1.4)."""

from __future__ import annotations

from typing import Annotated, Any

from peerlane.dialects.gpu.copies import Side
from peerlane.dialects.hip._boxes import (
    Prepared,
    declare,
    declare_queued,
    described,
    must_be_known,
    refuse_arrays,
)
from peerlane.dialects.hip._checks import given, refuse_no_struct
from peerlane.dialects.hip._convention import INVALID_DIRECTION, invalid, member, refusal
from peerlane.dialects.hip._copy import with_device
from peerlane.dialects.hip._enums import enumeration
from peerlane.dialects.hip._state import calls, gpu
from peerlane.dialects.hip._stream import stream_of

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
_PeerParms = Annotated[Any, given("hipMemcpy3DPeerParms")]


@calls.call("hipMemcpy3DPeer")
def hipMemcpy3DPeer(p: _PeerParms) -> None:
    """Queue the copy of a box between two devices, in the order of both as hipMemcpyPeer does.

    Refuses: hipErrorInvalidDevice an id; as `hipMemcpy3D`
    Basis: S; C for the order
    """
    devices = gpu.machine.device_of(p.dstDevice), gpu.machine.device_of(p.srcDevice)
    found = pitched(p, _DEFAULT)
    if found is not None:
        gpu.copies.move_between(*devices, *found)


@calls.call("hipMemcpy3DPeerAsync")
def hipMemcpy3DPeerAsync(p: _PeerParms, stream: int) -> None:
    """Queue the copy of a box between two devices on a stream of any device.

    Refuses: as `hipMemcpy3DPeer`; the stream
    Basis: S
    """
    gpu.machine.device_of(p.dstDevice)
    gpu.machine.device_of(p.srcDevice)
    found, on = pitched(p, _DEFAULT), stream_of(stream)
    if found is not None:
        gpu.copies.move_on(on, *found)


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
