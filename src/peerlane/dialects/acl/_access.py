"""``acl.rt``: which devices may use mapped memory (facts/acl 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peerlane import Device
from peerlane.dialects._shared.call import Address, Dict, Object, Word
from peerlane.dialects.acl._checks import null
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import acl, machine
from peerlane.dialects.acl._virtual import mapped_at

_DEVICE, _HOSTS = 1, (0, 4)
_RIGHTS = {0: "none", 1: "r", 3: "rw"}
_FLAGS = {rights: flags for flags, rights in _RIGHTS.items()}


@acl.call("aclrtMemSetAccess")
def set_access(vir_ptr: Address, size: Word, desc: Object) -> None:
    """Set the rights of devices to a mapping, by a list of dicts with ``flags`` and ``location``.

    The device of the memory may read and write the mapping from the start.  A dict for the host has no effect, as the
    host reaches memory by copies.

    Refuses: 107000 NULL, no description, flags, location, a device that there is not, `size` not that of the mapping;
        507899 no mapping begins there
    Basis: S; C for the codes and the host
    """
    if not vir_ptr or not desc:
        raise Code.RT_PARAM_INVALID.refusal(
            "virPtr is NULL" if not vir_ptr else "there is no description",
            "pass the address of a mapping, and at least one description",
        )
    wanted: dict[Device, str] = {}
    for each in desc:
        device, rights = _located(each.get("location") or {}), _RIGHTS.get(each.get("flags", -1))
        if rights is None:
            raise Code.RT_PARAM_INVALID.refusal(
                f"flags of a description is {each.get('flags')}",
                "pass 0 (none), 1 (read) or 3 (read and write)",
            )
        if device is not None:
            wanted[device] = rights
    with machine.lock:
        reservation = mapped_at(vir_ptr)
        has = reservation.mapped[vir_ptr].neutral.size
        if size != has:
            raise Code.RT_PARAM_INVALID.refusal(
                f"size is {size:,}, and the mapping at {vir_ptr:#x} has {has:,} bytes",
                "pass the address and the size that acl.rt.map_mem was given",
            )
        reservation.addresses.set_access(wanted, at=vir_ptr - reservation.start, size=size)


@acl.call("aclrtMemGetAccess", out=1, checks=[null("vir_ptr")])
def get_access(vir_ptr: Address, location: Dict) -> int:
    """Return the rights of a device at an address: 0 none, 1 read, 3 read and write; 0 for the host.

    Gives: flags
    Refuses: 100000 NULL; 107000 location, a device that there is not; 507899 nothing is mapped there
    Basis: S; C for the codes and the host
    """
    device = _located(location)
    with machine.lock:
        machine.devices()
        reservation = machine.reservations.around(vir_ptr)
        start = reservation.mapping_around(vir_ptr) if reservation is not None else None
        if reservation is None or start is None:
            raise Code.RT_DRV_INTERNAL_ERROR.refusal(
                f"nothing is mapped at {machine.describe(vir_ptr)}", "call acl.rt.map_mem before"
            )
        return (
            0 if device is None else _FLAGS[reservation.addresses.access(device, vir_ptr - reservation.start)]
        )


def _located(location: dict[Any, Any]) -> Device | None:
    """Return the device of a location, None for the host: 107000 for another kind or device."""
    kind, number = location.get("type"), location.get("id", 0)
    if kind in _HOSTS:
        return None
    shown: Sequence[Device] = machine.visible()
    if kind == _DEVICE and isinstance(number, int) and 0 <= number < len(shown):
        return shown[number]
    raise Code.RT_PARAM_INVALID.refusal(
        f"location is type {kind}, id {number}",
        f"pass type {_DEVICE} (device) with an id of 0 to {len(shown) - 1}, or type 0 (host)",
    )
