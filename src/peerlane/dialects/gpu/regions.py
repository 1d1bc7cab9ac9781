"""What an address points at, as a vendor's program knows it: a region of allocated, mapped or registered memory."""

from __future__ import annotations

from typing import NamedTuple

from peerlane import Kind
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.gpu.machine import AllocationRecord, GpuMachine
from peerlane.dialects.gpu.vendor import Reason
from peerlane.errors import Error
from peerlane.memory import raw

CPU = -1  # HIP and CUDA both number the host -1
_PLAIN = AllocationRecord(0, 0)


class HostAddress(int):
    """The address of a host object whose size is known."""

    nbytes: int


class Region(NamedTuple):
    """Memory that the vendor's calls know: allocated, mapped, opened or registered."""

    is_device: bool  #: whether it lies on a device
    #: ``is_managed``, ``is_registered``: memory of the host that was allocated as managed, or that the program
    #: registered.
    is_managed: bool
    is_registered: bool
    ordinal: int  #: of its device; of host memory, the device that was current at its allocation
    base: int  #: ``base``, ``size``: all of it
    size: int
    allocation: int  #: its number; of registered memory its address, negative
    flags: int  #: the flags of its allocation

    @property
    def end(self) -> int:
        """The first address behind it."""
        return self.base + self.size

    def bytes_from(self, address: int) -> int:
        """Return how many bytes the region has from an address on."""
        return self.end - address


class Regions:
    """The regions of a vendor's program, by address."""

    def __init__(self, machine: GpuMachine) -> None:
        self._machine = machine
        self._records, self._ordinals = machine.records, machine.ordinals

    def at(self, address: int) -> Region | None:
        """Return the region at an address; None for ordinary memory of the host.

        Raises BadAddress: an address of a device where nothing is.
        """
        located = raw.find(address)
        if located is None:
            return self._of_host(address)
        number, base, size, allocation = located
        record = self._records.get(allocation, _PLAIN)
        ordinal = self._ordinals[number]
        is_device = ordinal >= 0
        if not is_device:
            ordinal = record.ordinal
        fields = is_device, record.is_managed, False, ordinal, base, size, allocation, record.flags
        return tuple.__new__(Region, fields)  # a copy makes two, and Region(...) takes five times as long

    def _of_host(self, address: int) -> Region | None:
        """Return registered memory, and that of a back-end which is not native; None for the host's own."""
        registered = self._machine.registrations.around(address)
        if registered is not None:
            record, start = registered.record, registered.start
            return Region(False, False, True, record.ordinal, start, registered.size, -start, record.flags)
        located = raw.locate(address)
        if located.kind is Kind.PAGEABLE:
            return None
        record = self._machine.records.get(located.allocation, _PLAIN)
        is_device = located.kind is Kind.DEVICE
        ordinal = located.ordinal if is_device else record.ordinal
        where = located.base, located.size, located.allocation
        return Region(is_device, record.is_managed, False, ordinal, *where, record.flags)

    def required_at(self, name: str, address: int, reason: Reason = Reason.UNKNOWN_MEMORY) -> Region:
        """Return the region at an address; refuse ordinary memory of the host, and an address where nothing is."""
        self.refuse_null(name, address)
        try:
            region = self.at(address)
        except Error:
            region = None
        if region is None:
            raise self.unknown(name, address, reason)
        return region

    def unknown(self, name: str, address: int, reason: Reason = Reason.UNKNOWN_MEMORY) -> Refusal:
        """Return the refusal of an address where no region is."""
        vendor = self._machine.vendor
        return vendor.refusal(
            reason,
            f"{name} is not memory of {vendor.name}: {self._machine.describe(address)}",
            "pass what {malloc}, {malloc_host} or {register} made known",
        )

    def refuse_null(self, name: str, address: int) -> None:
        """Refuse NULL."""
        if not address:
            raise self._machine.vendor.invalid(f"{name} is NULL", "pass memory")

    def refuse_beyond(self, name: str, address: int, nbytes: int) -> None:
        """Refuse more bytes than a host object has, or a registration, from an address on.

        Hardware would overwrite what lies behind.  A copy itself refuses it for allocations.
        """
        if isinstance(address, HostAddress) and nbytes > address.nbytes:
            raise self._machine.vendor.invalid(
                f"{name} is a host object of {address.nbytes:,} bytes, and {nbytes:,} are asked for",
                "ask for fewer bytes, or pass a larger object",
            )
        registered = self._machine.registrations.around(address)
        if registered is not None and address + nbytes > registered.end:
            raise self._too_short(name, address, registered.end - address, nbytes)

    def checked_end(self, name: str, address: int, nbytes: int) -> Region | None:
        """Return the region of one end of a copy, None for ordinary memory of the host.

        NULL is refused, and so are more bytes than a host object has, or a registration, from the address on.  A copy
        itself refuses it for allocations.
        """
        if not address:
            self.refuse_null(name, address)
        region = self.at(address)
        if region is None or region.is_registered or type(address) is HostAddress:
            self.refuse_beyond(name, address, nbytes)
        return region

    def inside(self, name: str, address: int, nbytes: int) -> Region | None:
        """Return what :meth:`checked_end` does; refuse more bytes than there are, of allocations too."""
        region = self.checked_end(name, address, nbytes)
        if region is not None and address + nbytes > region.base + region.size:
            self.refuse_outside(name, address, nbytes, region)
        return region

    def has(self, name: str, address: int, nbytes: int) -> bool:
        """Return whether an address is in a region; refuse what :meth:`inside` does."""
        located = raw.find(address) if type(address) is int else None
        if located is not None and address + nbytes <= located[1] + located[2]:
            return True  # most often, without the cost of a Region
        return self.inside(name, address, nbytes) is not None

    def refuse_outside(self, name: str, address: int, nbytes: int, region: Region) -> None:
        """Refuse more bytes than there are from an address in a region on: mappings may lie side by side."""
        end = region.end
        while end < address + nbytes:
            try:
                beyond = None if region.is_registered else self.at(end)
            except Error:
                beyond = None
            if beyond is None or beyond.is_registered:
                raise self._too_short(name, address, end - address, nbytes)
            end = beyond.end

    def _too_short(self, name: str, address: int, left: int, nbytes: int) -> Refusal:
        return self._machine.vendor.invalid(
            f"{name} has {left:,} bytes from {address:#x} on, and {nbytes:,} are asked for: "
            f"{self._machine.describe(address)}",
            "ask for fewer bytes, or allocate more",
        )
