"""Which device may use memory of another, where copies have to ask: ``peer_copies=strict`` (facts/hip 3.8)."""

from __future__ import annotations

from collections.abc import Callable

from peerlane import Device
from peerlane.dialects.hip._convention import refusal
from peerlane.dialects.hip._places import Place, place_of
from peerlane.dialects.hip._policy import policy
from peerlane.dialects.hip._state import machine

Grant = Callable[[Device, int, Place], str]
_grants: list[Grant] = []


def grants(told: Grant) -> Grant:
    """Add a function that tells which access a device was given to another's memory: "none", "r" or "rw"."""
    _grants.append(told)
    return told


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
    with machine.lock:
        can_read = any(each(reader, src, source) != "none" for each in _grants)
        can_write = any(each(writer, dst, to) == "rw" for each in _grants)
    if can_read or can_write:
        return
    a, b = machine.id_of(to.ordinal), machine.id_of(source.ordinal)
    raise refusal(
        "hipErrorPeerAccessNotEnabled",
        f"devices {a} and {b} have no peer access enabled, nor access to this memory of each other, and "
        "peer_copies=strict asks for it",
        f"call hipDeviceEnablePeerAccess({b}, 0) while device {a} is current, or the reverse; for mapped memory "
        "hipMemSetAccess, for pools hipMemPoolSetAccess",
    )
