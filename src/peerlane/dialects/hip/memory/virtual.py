"""``hip``: reserved addresses, mappings and the access of devices (facts/hip 3.6)."""

from __future__ import annotations

import struct as layout
from typing import Any

from peerlane import Device
from peerlane.dialects.gpu.locations import NUMBERS
from peerlane.dialects.gpu.vendor import Reason
from peerlane.dialects.hip.binding.checks import NotZero, Reserved
from peerlane.dialects.hip.binding.convention import invalid
from peerlane.dialects.hip.binding.results import pointer
from peerlane.dialects.hip.binding.types import Pointer
from peerlane.dialects.hip.memory.physical import Location, handle_object, virtual_memory
from peerlane.dialects.hip.state import calls, gpu

_DESC = layout.Struct("<iii")  # hipMemAccessDesc: location.type, location.id, flags


@calls.call("hipMemAddressReserve")
def hipMemAddressReserve(size: int, alignment: int, addr: int, flags: Reserved) -> Pointer | None:
    """Reserve addresses, which take no memory (facts/hip 3.6, 3.8).

    ``addr`` is a wish for the first address.  They are every device's; the reset of the device that is current
    now gives them back.

    Gives: Pointer
    Refuses: hipErrorInvalidValue `flags`, size 0 or no multiple of the granularity, an alignment that is not a power
        of two; hipErrorOutOfMemory no addresses left
    Basis: S; C for the reset
    """
    return pointer(virtual_memory.reserve(size, alignment, addr))


@calls.call("hipMemAddressFree")
def hipMemAddressFree(devPtr: NotZero, size: NotZero) -> None:
    """Give reserved addresses back; all mappings there must be unmapped first (facts/hip 3.6).

    Refuses: hipErrorInvalidValue NULL, size 0 or not that of the reservation, no start of one, mappings left
    Basis: S; C for mappings left, and for unknown addresses, where the vendor's code ends the process
    """
    virtual_memory.free(devPtr, size, "hipMemAddressFree")


@calls.call("hipMemMap")
def hipMemMap(ptr: NotZero, size: NotZero, offset: Reserved, handle: int, flags: Reserved) -> None:
    """Map memory at reserved addresses; no device has access before hipMemSetAccess (facts/hip 3.6).

    With a ``size`` below that of the memory its first bytes are mapped.  Memory of several devices may lie side by
    side, and one handle may be mapped several times, also in parts.  The mapping holds the memory: the handle may be
    released.

    Refuses: hipErrorInvalidValue NULL, size 0, no multiple of the granularity or more than the memory has, an
        `offset` other than 0, `flags`, no handle, not reserved, no room, something mapped there
    Basis: S; D for parts; C for more than the memory has
    """
    virtual_memory.map(ptr, size, handle)


@calls.call("hipMemUnmap")
def hipMemUnmap(ptr: NotZero, size: NotZero) -> None:
    """End the mappings in a range, which must cover them whole (facts/hip 3.6).

    It waits for all streams of the devices that the memory is on or that may use it [D: the code].

    Refuses: hipErrorInvalidValue NULL, size 0 or not that of whole mappings, nothing mapped there
    Basis: S, D for the waiting
    """
    virtual_memory.unmap(ptr, size)


@calls.call("hipMemSetAccess")
def hipMemSetAccess(ptr: NotZero, size: NotZero, desc: Any, count: NotZero) -> None:
    """Set the rights of devices to mapped memory; the others keep theirs (facts/hip 3.6).

    A copy may do what one of the devices that take part in it may.  The host may be named, alone or among devices,
    also for imported memory, and that changes nothing: the node's `host_access` says whether it may touch device
    memory (facts/hip 3.11).

    Refuses: hipErrorInvalidValue NULL, size 0 or not that of whole mappings, count 0, a device or flags that there
        are not, a device that cannot reach the memory, nothing mapped there
    Basis: S; D for the host; C for reach
    """
    virtual_memory.set_access(ptr, size, dict(descriptions(desc, count, hosts=1)))


def descriptions(
    desc: Any, count: int, *, reason: Reason = Reason.INVALID_VALUE, hosts: int = 0
) -> list[tuple[Device, str]]:
    """Return the rights that an array of hipMemAccessDesc gives to devices, as ``Locations.rights``."""
    if desc is None:
        raise invalid("desc is NULL", "pass a hipMemAccessDesc for each device, its location and flags set")

    def read(index: int) -> tuple[int, int, int]:
        kind, number, flags = _DESC.unpack(desc._read(index, 0, _DESC.size))
        return kind, number, flags

    rights = gpu.locations.rights(read, count, reason=reason, hosts=hosts)
    return [(device, right) for device, right in rights if isinstance(device, Device)]


@calls.call("hipMemGetAccess", first=("ptr",))
def hipMemGetAccess(location: Location, ptr: NotZero) -> int:
    """Return the access of a device at an address: 0 none, 1 read, 3 read and write (facts/hip 3.6).

    Gives: flags
    Refuses: hipErrorInvalidValue NULL, no device, nothing mapped there
    Basis: S
    """
    return NUMBERS[virtual_memory.access(location, ptr)]


@calls.call("hipMemRetainAllocationHandle")
def hipMemRetainAllocationHandle(addr: NotZero) -> Any:
    """Return the handle of the memory that is mapped around an address, to be released once more (facts/hip 3.6).

    It is a new handle if the old one was released.

    Gives: handle
    Refuses: hipErrorInvalidValue NULL, nothing mapped there
    Basis: S; C for a released one
    """
    return handle_object(virtual_memory.retain(addr))
