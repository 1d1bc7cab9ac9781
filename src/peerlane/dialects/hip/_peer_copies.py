"""``hip``: copies that name the devices of both ends (facts/hip 3.3, 3.8, 4)."""

from __future__ import annotations

from peerlane import Device
from peerlane.dialects.hip._checks import refuse_null
from peerlane.dialects.hip._copy import Ends, Move, behind_both, move_on, mover
from peerlane.dialects.hip._peer import DeviceId
from peerlane.dialects.hip._places import inside
from peerlane.dialects.hip._policy import policy
from peerlane.dialects.hip._state import calls, machine
from peerlane.dialects.hip._stream import null_stream, stream_of
from peerlane.dialects.hip._strict import refuse_strict
from peerlane.memory import raw


@calls.call("hipMemcpyPeer")
def hipMemcpyPeer(dst: int, dstDeviceId: DeviceId, src: int, srcDeviceId: DeviceId, sizeBytes: int) -> None:
    """Queue a copy between devices behind the earlier work of both; the host does not wait (facts/hip 3.3, 3.8).

    Ids are checked before pointers and need not match them; enabled access is not asked for (`peer_copies=strict`
    asks for that of the memory's devices).  It runs on the null
    stream of the destination's device; with ``memcpy_peer=current`` on the current device's, ordered by nothing else.
    With ordinary host memory it is complete on return.

    Refuses: hipErrorInvalidDevice an id; hipErrorInvalidValue NULL, more than an allocation has from there on
    Basis: S
    """
    if sizeBytes:
        ends = _ends(dst, src, sizeBytes)
        move_between(dstDeviceId, srcDeviceId, mover(dst, src, sizeBytes), ends)


@calls.call("hipMemcpyPeerAsync")
def hipMemcpyPeerAsync(
    dst: int, dstDeviceId: DeviceId, src: int, srcDevice: DeviceId, sizeBytes: int, stream: int
) -> None:
    """Queue a copy between devices on a stream of any device (facts/hip 3.3).

    Refuses: as `hipMemcpyPeer`; the stream
    Basis: S
    """
    if sizeBytes:
        move_on(mover(dst, src, sizeBytes), _ends(dst, src, sizeBytes), stream_of(stream))


def _ends(dst: int, src: int, nbytes: int) -> Ends:
    """Return what both ends are; refuse a NULL, more bytes than there are, and what ``peer_copies=strict`` does."""
    refuse_null("dst", dst)
    refuse_null("src", src)
    ends = _end("dst", dst, nbytes), _end("src", src, nbytes)
    refuse_strict(dst, src, nbytes)
    return ends


def _end(name: str, address: int, nbytes: int) -> object:
    """Return something of memory that HIP knows as `inside` does, having asked once what lies inside."""
    found = raw.find(address) if type(address) is int else None
    return found if found and address + nbytes <= found[1] + found[2] else inside(name, address, nbytes)


def move_between(to: Device, source: Device, move: Move, ends: Ends) -> None:
    """Move bytes in the order of two devices, or of the current one with ``memcpy_peer=current``."""
    if policy.memcpy_peer == "current":
        move_on(move, ends, null_stream(machine.context()))
        return
    here = null_stream(machine.context_of(to.ordinal))
    behind_both(here, null_stream(machine.context_of(source.ordinal)), lambda: move_on(move, ends, here))
