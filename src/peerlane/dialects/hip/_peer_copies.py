"""``hip``: copies that name the devices of both ends (spec hip 3.3, 3.8; seed document 1)."""

from __future__ import annotations

from collections.abc import Callable

from peerlane import Device
from peerlane.dialects.hip._copy import Ends, Move, behind_both, copy_on, move_on
from peerlane.dialects.hip._peer import device_of
from peerlane.dialects.hip._places import refuse_null, refuse_outside
from peerlane.dialects.hip._policy import policy
from peerlane.dialects.hip._state import calls, machine
from peerlane.dialects.hip._stream import AnyStream, null_stream, stream_of
from peerlane.dialects.hip._strict import refuse_strict


@calls.call("hipMemcpyPeer")
def hipMemcpyPeer(dst: int, dstDeviceId: int, src: int, srcDeviceId: int, sizeBytes: int) -> None:
    """Queue a copy between devices behind the earlier work of both; the host does not wait (spec hip 3.3, 3.8).

    Ids are checked before pointers and need not match them; enabled access is not asked for (`peer_copies=strict`
    asks for that of the memory's devices).  It runs on the null
    stream of the destination's device; with ``memcpy_peer=current`` on the current device's, ordered by nothing else.
    With ordinary host memory it is complete on return.

    Refuses: hipErrorInvalidDevice an id; hipErrorInvalidValue NULL, more than an allocation has from there on
    Basis: S
    """
    ends = device_of(dstDeviceId), device_of(srcDeviceId)
    if sizeBytes:
        check_peer_copy(dst, src, sizeBytes)
        between(*ends, lambda stream: copy_on(dst, src, sizeBytes, stream))


@calls.call("hipMemcpyPeerAsync")
def hipMemcpyPeerAsync(
    dst: int, dstDeviceId: int, src: int, srcDevice: int, sizeBytes: int, stream: int
) -> None:
    """Queue a copy between devices on a stream of any device (spec hip 3.3).

    Refuses: as `hipMemcpyPeer`; the stream
    Basis: S
    """
    device_of(dstDeviceId)
    device_of(srcDevice)
    if sizeBytes:
        check_peer_copy(dst, src, sizeBytes)
        copy_on(dst, src, sizeBytes, stream_of(stream))


def check_peer_copy(dst: int, src: int, nbytes: int) -> None:
    """Refuse a NULL, more bytes than an allocation or a host object has, and what ``peer_copies=strict`` does.

    Bare host addresses have no bound.
    """
    refuse_null(dst=dst, src=src)
    refuse_outside(nbytes, dst=dst, src=src)
    refuse_strict(dst, src, nbytes)


def between(to: Device, source: Device, submit: Callable[[AnyStream], None]) -> None:
    """Submit a copy in the order of two devices, or of the current one with ``memcpy_peer=current``."""
    if policy.memcpy_peer == "current":
        submit(null_stream(machine.context()))
        return
    here = null_stream(machine.context_of(to.ordinal))
    behind_both(here, null_stream(machine.context_of(source.ordinal)), lambda: submit(here))


def move_between(to: Device, source: Device, move: Move, ends: Ends) -> None:
    """Move bytes in the order of two devices; see `between`."""
    between(to, source, lambda stream: move_on(move, ends, stream))
