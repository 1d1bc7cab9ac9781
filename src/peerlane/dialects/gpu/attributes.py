"""Attributes of addresses: of the memory around them, and those that a program set."""

from __future__ import annotations

import enum
from typing import NamedTuple

from peerlane import Host
from peerlane.backend import host
from peerlane.dialects.gpu.machine import GpuMachine
from peerlane.dialects.gpu.regions import Region, Regions
from peerlane.dialects.gpu.vendor import Reason
from peerlane.dialects.gpu.virtual_memory import VirtualMemory
from peerlane.errors import Error


class MemoryType(enum.Enum):
    """Where memory lies."""

    DEVICE = enum.auto()
    HOST = enum.auto()
    MANAGED = enum.auto()

    @classmethod
    def of(cls, region: Region) -> MemoryType:
        """Return the type of a region."""
        return cls.DEVICE if region.is_device else cls.MANAGED if region.is_managed else cls.HOST


class MemoryPointer(NamedTuple):
    """An address of memory that the vendor's calls know, with its attributes."""

    address: int  #: Devices and the host use the same
    region: Region
    #: The program's number of the device; of host memory the one that was current at its allocation.
    device: int
    is_synchronous: bool  #: whether copies and fills of the memory are over on return
    host_address: int | None  #: the address for the host; None if it has no access


class Attributes:
    """The attributes of addresses in a vendor's program."""

    def __init__(self, machine: GpuMachine, regions: Regions, virtual_memory: VirtualMemory) -> None:
        self._machine, self._regions, self._virtual_memory = machine, regions, virtual_memory

    def at(self, address: int) -> MemoryPointer | None:
        """Return an address with its attributes; None for ordinary memory of the host.

        Raises BadAddress: an address of a device where nothing is.
        """
        region = self._regions.at(address)
        if region is None:
            return None
        is_synchronous = region.allocation in self._machine.synchronous
        has_host = not region.is_device and self._virtual_memory.right(Host(), address) != "none"
        device = self._machine.id_of(region.ordinal)
        return MemoryPointer(address, region, device, is_synchronous, address if has_host else None)

    def allocation(self, address: int) -> Region:
        """Return the region around an address; ``NO_ALLOCATION`` where there is none."""
        try:
            region = self._regions.at(address) if address else None
        except Error:
            region = None
        if region is None:
            raise self._machine.vendor.refusal(
                Reason.NO_ALLOCATION,
                f"there is no allocation: {self._machine.describe(address)}",
                "pass an address inside what {malloc} or {malloc_host} returned",
            )
        return region

    def set_synchronous(self, address: int, *, is_set: bool) -> None:
        """Make fills, and copies whose ends both have this, complete on return; ``INVALID_POINTER`` for no memory."""
        region = self._regions.required_at("ptr", address, Reason.INVALID_POINTER)
        if is_set:
            self._machine.synchronous.add(region.allocation)
            self._machine.end_quick_frees(region.allocation)
        else:
            self._machine.synchronous.discard(region.allocation)
        host.forget_c_threads()  # which know the attribute
