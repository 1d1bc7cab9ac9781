"""Virtual memory: reserved addresses, physical memory and its descriptors, mappings and the access of devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from peerlane import AddressRange, Device, Host, Physical
from peerlane.dialects._shared.machine import Context, Resource
from peerlane.dialects._shared.virtual_memory import PhysicalMemory, Reservation, Reservations
from peerlane.dialects.gpu.locations import DEVICE, HOST_NUMA
from peerlane.dialects.gpu.machine import GpuMachine
from peerlane.dialects.gpu.memory import host_bytes
from peerlane.dialects.gpu.peers import Peers
from peerlane.dialects.gpu.pools import PINNED
from peerlane.dialects.gpu.regions import Region, Regions
from peerlane.dialects.gpu.reuse import Reuse
from peerlane.dialects.gpu.streams import Streams
from peerlane.dialects.gpu.vendor import Reason
from peerlane.errors import BadAddress, BadHandle, Busy, InvalidValue
from peerlane.support.records import dataclass

# Both vendors' numbers of the types of handles that Linux has.
NO_HANDLE, FILE_DESCRIPTOR = 0, 1


@dataclass(frozen=True, slots=True)
class PhysicalProperties:
    """What a program asks of physical memory."""

    device: Device | Host  #: that has the memory
    kind: int = PINNED  #: the vendor's number of the type of memory; nothing depends on it
    handle_type: int = FILE_DESCRIPTOR  #: the vendor's number of the type of handle that shares the memory
    location_type: int = DEVICE  #: the vendor's number of the type of its location


class GpuPhysical(PhysicalMemory):
    """Physical memory, allocated or imported; a mapping can give out its handle again."""

    __slots__ = ("properties",)

    outlives_handle = True

    def __init__(self, context: Context, neutral: Physical, properties: PhysicalProperties) -> None:
        super().__init__(context, neutral)
        self.properties = properties

    end = PhysicalMemory.abandon


class _Addresses(Resource):
    """A reservation, which ends with its device's reset."""

    __slots__ = ("machine", "reservation")

    name = "reserved addresses"
    is_counted = False
    is_owned = False  # the addresses are
    has_addresses = True

    def __init__(self, machine: GpuMachine, context: Context, reservation: Reservation) -> None:
        super().__init__(context)
        self.machine, self.reservation = machine, reservation

    def abandon(self) -> None:
        """Give the addresses back, with their mappings."""
        with self.machine.lock:
            ranges = self.machine.table(_Ranges)
            if ranges.by_start.pop(self.reservation.start, None) is not None:
                ranges.all.remove(self.reservation)
                self.reservation.close()

    end = abandon


class _Ranges:
    """All reservations of the process."""

    def __init__(self) -> None:
        self.all = Reservations()
        #: By first address: the object that ends a reservation with its device.
        self.by_start: dict[int, _Addresses] = {}


class VirtualMemory:
    """The virtual memory of a vendor's program."""

    def __init__(
        self, machine: GpuMachine, streams: Streams, regions: Regions, peers: Peers, reuse: Reuse
    ) -> None:
        self._machine, self._streams, self._regions, self._reuse = machine, streams, regions, reuse
        peers.add_grant(self._grant)

    def create(self, size: int, properties: PhysicalProperties) -> int:
        """Allocate physical memory, which has no address until it is mapped, and return its handle.

        The reset of its device releases it; memory of the host ends with this thread's device, or the first.

        Raises Refusal: ``UNSUPPORTED`` another type of handle than none and file descriptor; ``INVALID_VALUE`` a size
            that is not a multiple of the granularity; ``OUT_OF_MEMORY``; ``DEVICE_RESET``.
        """
        machine = self._machine
        home, vendor = properties.device, machine.vendor
        if properties.handle_type not in (NO_HANDLE, FILE_DESCRIPTOR):
            raise vendor.refusal(
                Reason.UNSUPPORTED,
                f"the requested handle type is {properties.handle_type}; memory is shared by file descriptors only",
                f"ask for {{file_descriptor}}, {FILE_DESCRIPTOR}, or none, {NO_HANDLE}",
            )
        granularity = self.granularity
        if size % granularity:
            raise vendor.invalid(
                f"size {size:,} is not a multiple of the granularity of {granularity:,}",
                "round up to what {granularity} gives",
            )
        if isinstance(home, Host):
            self._refuse_beyond("the host", host_bytes(), size)
            return self._give(Physical(home, size), properties)
        self._refuse_beyond(f"device {machine.id_of(home.ordinal)}", home.total_bytes, size)
        return self._give(self._reuse.with_room(home, lambda: Physical(home, size, peer=True)), properties)

    def _refuse_beyond(self, owner: str, most: int, size: int) -> None:
        if size > most:
            cause = f"{size:,} bytes are more than {owner} has, {most:,}"
            raise self._machine.vendor.refusal(Reason.OUT_OF_MEMORY, cause, "ask for less")

    @property
    def granularity(self) -> int:
        """Bytes of which sizes of memory, and of mappings, are multiples; the same for the host and all devices."""
        return self._machine.devices()[0].granularity

    def open_descriptor(self, fd: int) -> int:
        """Return a handle of the memory of a file descriptor, which stays the program's.

        Memory of the host is of a node.  ``INVALID_VALUE`` if it is not memory of this node.
        """
        self._machine.devices()
        try:
            neutral = Physical.open_fd(fd)
        except BadHandle as error:
            raise self._machine.vendor.invalid(
                str(error), "pass a descriptor that {export_physical} wrote"
            ) from None
        location_type = HOST_NUMA if isinstance(neutral.device, Host) else DEVICE
        return self._give(neutral, PhysicalProperties(neutral.device, location_type=location_type))

    def _give(self, neutral: Physical, properties: PhysicalProperties) -> int:
        machine, home = self._machine, properties.device
        try:
            context = (
                machine.context_or_first() if isinstance(home, Host) else machine.context_of(home.ordinal)
            )
            return machine.issue(GpuPhysical(context, neutral, properties))
        except BaseException:
            neutral.close()
            raise

    def physical(self, handle: int) -> GpuPhysical:
        """Return the memory of a handle; ``INVALID_VALUE`` for other numbers."""
        return self._machine.resource(handle, GpuPhysical, Reason.INVALID_VALUE)

    def release(self, handle: int, call: str) -> None:
        """Drop a reference; the last one ends the handle.  Mapped memory stays usable.

        ``call`` is the vendor's name of the call.
        """
        with self._machine.lock:
            physical = self.physical(handle)
            if physical.release():
                self._machine.drop(physical, call)
                physical.let_go()

    def retain(self, address: int) -> int:
        """Return the handle of the memory that is mapped around an address, with one more reference.

        It is a new handle if the old one was released.  ``INVALID_VALUE`` where nothing is mapped.
        """
        machine = self._machine
        with machine.lock:
            reservation = self._around("addr", address)
            start = reservation.mapping_around(address)
            if start is None:
                raise machine.vendor.invalid(f"nothing is mapped at {address:#x}", "call {map} before")
            physical: GpuPhysical = reservation.mapped[start]
            physical.references += 1
            return physical.handle if physical.references > 1 else machine.issue(physical)

    def reserve(self, size: int, alignment: int, address: int) -> int:
        """Reserve addresses, which take no memory, and return the first; ``address`` is a wish.

        They are every device's; the reset of the device that is current now gives them back.

        Raises Refusal: ``INVALID_VALUE`` size 0 or no multiple of the granularity, an alignment that is not a power
            of two; ``OUT_OF_MEMORY`` no addresses left; ``DEVICE_RESET``.
        """
        machine = self._machine
        context, granularity = machine.context_or_first(), self.granularity
        if not size or size % granularity or alignment & (alignment - 1):
            raise machine.vendor.invalid(
                f"size is {size:,} and alignment {alignment:,}; a size is a multiple of {granularity:,}, an "
                "alignment 0 or a power of two",
                "round the size up to what {granularity} gives",
            )
        try:
            addresses = AddressRange(context.device, size, alignment=alignment, address=address)
        except InvalidValue as error:
            raise machine.vendor.refusal(Reason.OUT_OF_MEMORY, str(error), "ask for less") from None
        ranges = machine.table(_Ranges)
        with machine.lock:
            reserved = _Addresses(machine, context, ranges.all.add(addresses))
            ranges.by_start[reserved.reservation.start] = reserved
        machine.issue(reserved)
        return reserved.reservation.start

    def free(self, address: int, size: int, call: str) -> None:
        """Give reserved addresses back; all mappings in them must have ended.

        ``call`` is the vendor's name of the call.  ``INVALID_VALUE`` for another size than that of the reservation,
        no start of one, mappings left.
        """
        machine = self._machine
        ranges = machine.table(_Ranges)
        with machine.lock:
            reserved = ranges.by_start.get(address)
            if reserved is None or size != reserved.reservation.addresses.size:
                known = f"{reserved.reservation.addresses.size:,} bytes" if reserved else "no reservation"
                raise machine.vendor.invalid(
                    f"{known} begin at {machine.describe(address)}, and size is {size:,}",
                    "pass what {reserve} returned and was given, once",
                )
            if reserved.reservation.mapped:
                raise machine.vendor.invalid(reserved.reservation.describe_mappings(), "call {unmap} first")
            machine.drop(reserved, call)
        reserved.abandon()

    def map(self, address: int, size: int, handle: int) -> None:
        """Map the first bytes of memory at reserved addresses; no device has access yet.

        The mapping holds the memory: the handle may be released.

        Raises Refusal: ``INVALID_VALUE`` no multiple of the granularity, more than the memory has, no handle, not
            reserved, no room, something mapped there.
        """
        invalid = self._machine.vendor.invalid
        with self._machine.lock:
            physical = self.physical(handle)
            granularity = self.granularity
            if size > physical.neutral.size or size % granularity:
                raise invalid(
                    f"size is {size:,}; the memory has {physical.neutral.size:,} bytes, and a part is a multiple of "
                    f"{granularity:,}",
                    "pass the size that {create_physical} was given, or less",
                )
            reservation = self._around("ptr", address)
            try:
                reservation.map(physical, address, access="none", size=size)
            except Busy as error:
                raise invalid(str(error), "call {unmap} first") from None
            except BadAddress:
                start, reserved = reservation.start, reservation.addresses.size
                raise invalid(
                    f"{size:,} bytes do not fit at byte {address - start:,} of the {reserved:,} reserved at "
                    f"{start:#x}: they begin at a multiple of {granularity:,} and end inside",
                    "pass an address that {reserve} gave plus a multiple of the granularity, or reserve more",
                ) from None

    def unmap(self, address: int, size: int) -> None:
        """End the mappings in a range, which must cover them whole.

        It waits for all streams of the devices that the memory is on or that may use it.
        """
        # Not under the lock: host functions that are waited for may want it.
        for device in self._users(address, size):
            self._streams.await_device(self._machine.context_of(device.ordinal))
        with self._machine.lock:
            self._around("ptr", address).unmap(address, size)

    def _users(self, first: int, size: int) -> list[Device]:
        """Return the devices whose memory is mapped in a range, and the devices with access."""
        with self._machine.lock:
            reservation = self._around("ptr", first)
            access, start = reservation.addresses.access, reservation.start
            mapped = [(at, each) for at, each in reservation.mapped.items() if first <= at < first + size]
            return [
                device
                for device in self._machine.devices()
                if any(
                    each.neutral.device is device or access(device, at - start) != "none"
                    for at, each in mapped
                )
            ]

    def set_access(self, address: int, size: int, rights: Mapping[Device | Host, str]) -> None:
        """Give devices rights to mapped memory, and the program itself, as the host; the others keep theirs.

        A copy may do what one of the devices that take part in it may.  ``INVALID_VALUE`` for a device that cannot
        reach the memory, for the host where it is a device's, and where nothing is mapped.
        """
        with self._machine.lock:
            reservation = self._around("ptr", address)
            for start, mapped in reservation.mapped.items():
                if address <= start < address + size:
                    self._refuse_out_of_reach(rights, mapped.neutral.device)
            reservation.addresses.set_access(rights, at=address - reservation.start, size=size)

    def _refuse_out_of_reach(self, rights: Mapping[Device | Host, str], home: Device | Host) -> None:
        machine = self._machine
        for device, right in rights.items():
            if isinstance(home, Host) or device is home:
                continue
            if isinstance(device, Host):
                raise machine.vendor.invalid(
                    f"the host cannot have {right!r} of memory of device {machine.id_of(home.ordinal)}",
                    "map memory of the host there, or leave the host out",
                )
            why = "" if right == "none" else device.why_not(home)
            if why:
                its, own = machine.ids(device, home)
                raise machine.vendor.invalid(
                    f"device {its} cannot have {right!r} of memory of device {own}: {why}",
                    "name devices for which {can_access_peer} gives 1",
                )

    def access(self, device: Device | Host, address: int) -> str:
        """Return the right of a device or the host at a reserved address; ``INVALID_VALUE`` for others.

        It is "none", "r" or "rw".
        """
        with self._machine.lock:
            reservation = self._around("ptr", address)
            return reservation.addresses.access(device, address - reservation.start)

    def mapped_at(self, address: int) -> GpuPhysical | None:
        """Return the physical memory that is mapped around an address; None where nothing is."""
        with self._machine.lock:
            reservation = self._machine.table(_Ranges).all.around(address)
            start = None if reservation is None else reservation.mapping_around(address)
            return None if reservation is None or start is None else reservation.mapped[start]

    def right(self, device: Device | Host, address: int) -> str | None:
        """Return what :meth:`access` does; None for an address that is not reserved."""
        reservation = self._machine.table(_Ranges).all.around(address)
        if reservation is None:
            return None
        return reservation.addresses.access(device, address - reservation.start)

    def _grant(self, device: Device, address: int, region: Region) -> str:
        return self.right(device, address) or "none"

    def _around(self, name: str, address: int) -> Reservation:
        """Return the reservation that an address is in; ``INVALID_VALUE`` for others."""
        reservation = self._machine.table(_Ranges).all.around(address)
        if reservation is None:
            raise self._machine.vendor.invalid(
                f"{name} is not a reserved address: {self._machine.describe(address)}",
                "pass an address that {reserve} gave",
            )
        return reservation

    def refuse_dma_buf(self, address: int, size: int) -> NoReturn:
        """Refuse a dma-buf: ``INVALID_VALUE`` if the memory is of the host or too short, else ``UNSUPPORTED``."""
        vendor = self._machine.vendor
        if not self._regions.required_at("dptr", address).is_device:
            cause = f"dptr is memory of the host: {self._machine.describe(address)}"
            raise vendor.invalid(cause, "pass memory of a device")
        self._regions.inside("dptr", address, size)
        raise vendor.refusal(
            Reason.UNSUPPORTED,
            "virtual devices have no dma-bufs, and their attribute for them is 0",
            "share memory of {create_physical} with {export_physical}",
        )
