"""``hip``: copies that name the devices of both ends (facts/hip 3.3, 3.8, 4)."""

from __future__ import annotations

from peerlane.dialects.gpu.copies import Copies
from peerlane.dialects.hip._peer import DeviceId
from peerlane.dialects.hip._state import calls, gpu

copies: Copies = gpu.copies


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
    copies.between(dstDeviceId, srcDeviceId, dst, src, sizeBytes)


@calls.call("hipMemcpyPeerAsync")
def hipMemcpyPeerAsync(
    dst: int, dstDeviceId: DeviceId, src: int, srcDevice: DeviceId, sizeBytes: int, stream: int
) -> None:
    """Queue a copy between devices on a stream of any device (facts/hip 3.3).

    Refuses: as `hipMemcpyPeer`; the stream
    Basis: S
    """
    copies.between_on(stream, dst, src, sizeBytes)
