"""``hip``: reserved addresses, mappings and the access of devices (facts/hip 3.6)."""

from __future__ import annotations

import struct as layout
from collections.abc import Mapping
from typing import Any

from peerlane import AddressRange, Device
from peerlane.dialects._shared.machine import Context, Thing
from peerlane.dialects._shared.virtual_memory import Reservation, Reservations
from peerlane.dialects.gpu.regions import Region
from peerlane.dialects.hip._checks import NotZero, Reserved
from peerlane.dialects.hip._convention import invalid, refusal
from peerlane.dialects.hip._physical import ON_HOST, HipPhysical, Location, device_at, physical_of, retained
from peerlane.dialects.hip._results import pointer
from peerlane.dialects.hip._state import calls, gpu, machine
from peerlane.dialects.hip._stream import streams
from peerlane.dialects.hip._types import Pointer
from peerlane.errors import BadAddress, Busy, InvalidValue

_RIGHTS = {0: "none", 1: "r", 3: "rw"}
_NUMBERS = {name: number for number, name in _RIGHTS.items()}
_DESC = layout.Struct("<iii")  # hipMemAccessDesc: location.type, location.id, flags


class _Addresses(Thing):
    """A reservation, which ends with its device's reset."""

    __slots__ = ("reservation",)

    name = "reserved addresses"
    is_counted = False
    is_given = False  # the addresses are
    has_addresses = True

    def __init__(self, context: Context, reservation: Reservation) -> None:
        super().__init__(context)
        self.reservation = reservation

    def abandon(self) -> None:
        """Give the addresses back, with their mappings."""
        with machine.lock:
            ranges = machine.table(Ranges)
            if ranges.things.pop(self.reservation.start, None) is not None:
                ranges.all.remove(self.reservation)
                self.reservation.close()

    end = abandon


class Ranges:
    """All reservations of the process.

    Attributes
    ----------
    all : Reservations
    things : dict
        By first address: the object that ends a reservation with its device.
    """

    def __init__(self) -> None:
        self.all = Reservations()
        self.things: dict[int, _Addresses] = {}

    def around(self, address: int, what: str) -> Reservation:
        """Return the reservation that an address is in: hipErrorInvalidValue for others."""
        found = self.all.around(address)
        if found is None:
            raise invalid(
                f"{what} is not a reserved address: {machine.describe(address)}",
                "pass an address that hipMemAddressReserve gave",
            )
        return found


@calls.call("hipMemAddressReserve")
def hipMemAddressReserve(size: int, alignment: int, addr: int, flags: Reserved) -> Pointer | None:
    """Reserve addresses, which take no memory (facts/hip 3.6, 3.8).

    ``addr`` is where they should begin: a wish.  They are every device's; the reset of the device that is current
    now gives them back.

    Gives: Pointer
    Refuses: hipErrorInvalidValue `flags`, size 0 or no multiple of the granularity, an alignment that is not a power
        of two; hipErrorOutOfMemory no addresses left
    Basis: S; C for the reset
    """
    context = machine.context()
    granularity = context.device.granularity
    if not size or size % granularity or alignment & (alignment - 1):
        raise invalid(
            f"size is {size:,} and alignment {alignment:,}; a size is a multiple of {granularity:,}, an alignment 0 "
            "or a power of two",
            "round the size up to what hipMemGetAllocationGranularity gives",
        )
    try:
        addresses = AddressRange(context.device, size, alignment=alignment, address=addr)
    except InvalidValue as error:
        raise refusal("hipErrorOutOfMemory", str(error), "ask for less") from None
    ranges = machine.table(Ranges)
    with machine.lock:
        made = _Addresses(context, ranges.all.add(addresses))
        ranges.things[made.reservation.start] = made
    machine.give(made)
    return pointer(made.reservation.start)


@calls.call("hipMemAddressFree")
def hipMemAddressFree(devPtr: NotZero, size: NotZero) -> None:
    """Give reserved addresses back; all mappings there must be unmapped first (facts/hip 3.6).

    Refuses: hipErrorInvalidValue NULL, size 0 or not that of the reservation, no start of one, mappings left
    Basis: S; C for mappings left, and for unknown addresses, where the vendor's code ends the process
    """
    ranges = machine.table(Ranges)
    with machine.lock:
        found = ranges.things.get(devPtr)
        if found is None or size != found.reservation.addresses.size:
            known = f"{found.reservation.addresses.size:,} bytes" if found else "no reservation"
            raise invalid(
                f"{known} begin at {machine.describe(devPtr)}, and size is {size:,}",
                "pass what hipMemAddressReserve returned and was given, once",
            )
        if found.reservation.mapped:
            raise invalid(
                found.reservation.told_left(),
                "call hipMemUnmap first",
            )
        machine.drop(found, "hipMemAddressFree")
    found.abandon()


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
    ranges = machine.table(Ranges)
    with machine.lock:
        found = physical_of(handle)
        granularity = found.neutral.device.granularity
        if size > found.neutral.size or size % granularity:
            raise invalid(
                f"size is {size:,}; the memory has {found.neutral.size:,} bytes, and a part is a multiple of "
                f"{granularity:,}",
                "pass the size that hipMemCreate was given, or less",
            )
        place = ranges.around(ptr, "ptr")
        try:
            place.map(found, ptr, access="none", size=size)
        except Busy as error:
            raise invalid(str(error), "call hipMemUnmap first") from None
        except BadAddress:
            reserved = place.addresses.size
            raise invalid(
                f"{size:,} bytes do not fit at byte {ptr - place.start:,} of the {reserved:,} reserved at "
                f"{place.start:#x}: they begin at a multiple of {granularity:,} and end inside",
                "pass an address that hipMemAddressReserve gave plus a multiple of the granularity, or reserve more",
            ) from None


@calls.call("hipMemUnmap")
def hipMemUnmap(ptr: NotZero, size: NotZero) -> None:
    """End the mappings in a range, which must cover them whole (facts/hip 3.6).

    It waits for all streams of the devices that the memory is on or that may use it [D: the code].

    Refuses: hipErrorInvalidValue NULL, size 0 or not that of whole mappings, nothing mapped there
    Basis: S, D for the waiting
    """
    ranges = machine.table(Ranges)
    # Not under the lock: host functions that are waited for may want it.
    for device in _users(ranges, ptr, size):
        streams.await_device(machine.context_of(device.ordinal))
    with machine.lock:
        ranges.around(ptr, "ptr").unmap(ptr, size)


def _users(ranges: Ranges, first: int, size: int) -> list[Device]:
    """Return the devices whose memory is mapped in a range, and the devices with access."""
    with machine.lock:
        place = ranges.around(first, "ptr")
        mapped = [(at, each) for at, each in place.mapped.items() if first <= at < first + size]
        return [
            device
            for device in machine.devices()
            if any(
                each.neutral.device is device or place.addresses.access(device, at - place.start) != "none"
                for at, each in mapped
            )
        ]


@calls.call("hipMemSetAccess")
def hipMemSetAccess(ptr: NotZero, size: NotZero, desc: Any, count: NotZero) -> None:
    """Say which devices may do what with mapped memory; the others keep their rights (facts/hip 3.6).

    A copy may do what one of the devices that take part in it may.  The host may be named, alone or among devices,
    also for imported memory, and that changes nothing: the node's `host_access` says whether it may touch device
    memory (facts/hip 3.11).

    Refuses: hipErrorInvalidValue NULL, size 0 or not that of whole mappings, count 0, a device or flags that there
        are not, a device that cannot reach the memory, nothing mapped there
    Basis: S; D for the host; C for reach
    """
    ranges = machine.table(Ranges)
    wanted = dict(descriptions(desc, count, hosts=1))
    with machine.lock:
        place = ranges.around(ptr, "ptr")
        for start, mapped in place.mapped.items():
            if ptr <= start < ptr + size:
                _refuse_out_of_reach(wanted, mapped.neutral.device)
        place.addresses.set_access(wanted, at=ptr - place.start, size=size)


def _refuse_out_of_reach(wanted: Mapping[Device, str], home: Device) -> None:
    for device, rights in wanted.items():
        why = "" if rights == "none" or device is home else device.why_not(home)
        if why:
            its, own = machine.ids(device, home)
            raise invalid(
                f"device {its} cannot have {rights!r} of memory of device {own}: {why}",
                "name devices for which hipDeviceCanAccessPeer gives 1",
            )


def descriptions(
    desc: Any, count: int, *, code: str = "hipErrorInvalidValue", hosts: int = 0
) -> list[tuple[Device, str]]:
    """Return what an array of hipMemAccessDesc says of devices.

    ``code`` is for devices that there are not, and for too many; ``hosts`` descriptions may be of the host.
    """
    remedy = "pass a hipMemAccessDesc for each device, its location and flags set"
    if desc is None:
        raise invalid("desc is NULL", remedy)
    if count > len(machine.shown()) + hosts:
        raise refusal(code, f"count is {count:,}, more than there are devices", remedy)
    found: list[tuple[Device, str]] = []
    for index in range(count):
        try:
            kind, number, flags = _DESC.unpack(desc._read(index, 0, _DESC.size))
        except IndexError as error:
            raise invalid(f"count is {count:,}, and {error}", remedy) from None
        if flags not in _RIGHTS:
            raise invalid(f"flags of description {index} are {flags}", remedy)
        if hosts and kind == ON_HOST:
            continue
        found.append((device_at(kind, number, f"description {index}", code), _RIGHTS[flags]))
    return found


def _mapped(device: Device, address: int, region: Region) -> str:
    reserved = machine.table(Ranges).all.around(address)
    return "none" if reserved is None else reserved.addresses.access(device, address - reserved.start)


gpu.peers.add_grant(_mapped)


@calls.call("hipMemGetAccess", first=("ptr",))
def hipMemGetAccess(location: Location, ptr: NotZero) -> int:
    """Return the access of a device at an address: 0 none, 1 read, 3 read and write (facts/hip 3.6).

    Gives: flags
    Refuses: hipErrorInvalidValue NULL, no device, nothing mapped there
    Basis: S
    """
    ranges = machine.table(Ranges)
    with machine.lock:
        place = ranges.around(ptr, "ptr")
        return _NUMBERS[place.addresses.access(location, ptr - place.start)]


@calls.call("hipMemRetainAllocationHandle")
def hipMemRetainAllocationHandle(addr: NotZero) -> Any:
    """Return the handle of the memory that is mapped around an address, to be released once more (facts/hip 3.6).

    If it was released meanwhile it is a new one.

    Gives: handle
    Refuses: hipErrorInvalidValue NULL, nothing mapped there
    Basis: S; C for a released one
    """
    ranges = machine.table(Ranges)
    with machine.lock:
        place = ranges.around(addr, "addr")
        start = place.mapping_around(addr)
        if start is not None:
            mapped: HipPhysical = place.mapped[start]
            return retained(mapped)
    raise invalid(f"nothing is mapped at {addr:#x}", "call hipMemMap before")
