"""Which device may use memory of another, where copies have to ask: ``peer_copies=strict`` (spec hip 3.8)."""

from __future__ import annotations

from peerlane import Device
from peerlane.dialects.hip._convention import refusal
from peerlane.dialects.hip._ipc import Ipc
from peerlane.dialects.hip._places import Place, place_of
from peerlane.dialects.hip._policy import policy
from peerlane.dialects.hip._pool import Pools
from peerlane.dialects.hip._state import machine
from peerlane.dialects.hip._virtual import Ranges


def refuse_strict(dst: int, src: int, nbytes: int) -> None:
    """Refuse a copy between two devices of which none may use the other's memory, if ``peer_copies=strict``.

    Of mappings that lie side by side each is looked at.
    """
    if policy.peer_copies != "strict":
        return
    end = dst + nbytes
    while True:
        to, source = place_of(dst), place_of(src)
        if to is None or source is None:
            return
        if to.is_device and source.is_device and to.ordinal != source.ordinal:
            _refuse_without_access(dst, to, src, source)
        step = min(to.left(dst), source.left(src))
        dst, src = dst + step, src + step
        if dst >= end:
            return


def _refuse_without_access(dst: int, to: Place, src: int, source: Place) -> None:
    devices = machine.devices()
    reader, writer = devices[to.ordinal], devices[source.ordinal]
    if _granted(reader, src, source) != "none" or _granted(writer, dst, to) == "rw":
        return
    a, b = machine.id_of(to.ordinal), machine.id_of(source.ordinal)
    raise refusal(
        "hipErrorPeerAccessNotEnabled",
        f"devices {a} and {b} have no peer access enabled, nor access to this memory of each other, and "
        "peer_copies=strict asks for it",
        f"call hipDeviceEnablePeerAccess({b}, 0) while device {a} is current, or the reverse; for mapped memory "
        "hipMemSetAccess, for pools hipMemPoolSetAccess",
    )


def _granted(device: Device, address: int, place: Place) -> str:
    """Return what a device was given of memory of another: "none", "r" or "rw"."""
    if place.ordinal in machine.peers.get(device.ordinal, ()):
        return "rw"
    with machine.lock:
        reserved = machine.table(Ranges).all.around(address)
        if reserved is not None:
            return reserved.addresses.access(device, address - reserved.start)
        if machine.table(Ipc).has_opened(device, range(place.base, place.base + place.size)):
            return "rw"
        buffer = machine.owned(place.base, host=False)
        pool = None if buffer is None else machine.table(Pools).holding(buffer)
        return "none" if pool is None else pool.access.get(device, "none")
