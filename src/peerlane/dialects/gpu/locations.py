"""Locations: a device or the host, as programs name where memory lies and who may use it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from peerlane import Device, Host
from peerlane.dialects.gpu.machine import GpuMachine
from peerlane.dialects.gpu.vendor import Reason

# Both vendors' numbers of the types of locations, and of rights.
DEVICE, HOST, HOST_NUMA = 1, 2, 3
RIGHTS: Mapping[int, str] = MappingProxyType({0: "none", 1: "r", 3: "rw"})
NUMBERS: Mapping[str, int] = MappingProxyType({right: number for number, right in RIGHTS.items()})


class Locations:
    """The locations that a vendor's program can name."""

    def __init__(self, machine: GpuMachine) -> None:
        self._machine = machine

    def device(self, kind: int, number: int, what: str, reason: Reason = Reason.INVALID_VALUE) -> Device:
        """Return the device of a location; ``INVALID_VALUE`` for another type, ``reason`` for no id."""
        devices = self._machine.shown()
        if kind == DEVICE and 0 <= number < len(devices):
            return devices[number]
        vendor = self._machine.vendor
        remedy = f"pass {{device_location}}, {DEVICE}, and an id below {{device_count}}()"
        if kind != DEVICE:
            raise vendor.invalid(f"location.type of {what} is {kind}", remedy)
        raise vendor.refusal(
            reason,
            f"the device of {what} is {number}; {len(devices)} are visible, numbered 0 to {len(devices) - 1}",
            remedy,
        )

    def id_of(self, home: Device | Host | int) -> int:
        """Return the id of a location: the program's number of a device, 0 of the host."""
        return self._machine.id_of(home.ordinal) if isinstance(home, Device) else 0

    def rights(
        self,
        read: Callable[[int], tuple[int, int, int]],
        count: int,
        *,
        reason: Reason = Reason.INVALID_VALUE,
        hosts: int = 0,
        host_types: Collection[int] = (HOST,),
    ) -> list[tuple[Device | Host, str]]:
        """Return the rights of devices and the host that descriptions of access name.

        ``read``: returns the type, the id and the flags of a description, by its index; an IndexError if there is
            none.
        ``reason``: for devices that there are not, and for too many.
        ``hosts``: how many descriptions may be of the host.
        ``host_types``: the types of locations that are the host.
        """
        vendor = self._machine.vendor
        remedy = "pass a {access_description} for each device, its location and flags set"
        if count > len(self._machine.shown()) + hosts:
            raise vendor.refusal(reason, f"count is {count:,}, more than there are devices", remedy)
        rights: list[tuple[Device | Host, str]] = []
        for index in range(count):
            try:
                kind, number, flags = read(index)
            except IndexError as error:
                raise vendor.invalid(f"count is {count:,}, and {error}", remedy) from None
            if flags not in RIGHTS:
                raise vendor.invalid(f"flags of description {index} are {flags}", remedy)
            is_host = hosts > 0 and kind in host_types
            home = Host() if is_host else self.device(kind, number, f"description {index}", reason)
            rights.append((home, RIGHTS[flags]))
        return rights
