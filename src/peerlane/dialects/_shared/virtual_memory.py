"""Physical memory, reserved addresses and mappings: the tables of every dialect with virtual memory.

A dialect makes a subclass of :class:`PhysicalMemory` for its handles and keeps one :class:`Reservations` of a node.
It checks arguments in its vendor's order, holds the machine's lock, and then calls::

    reservation = reservations.add(AddressRange(device, size))
    reservation.map(physical, address, access="none")   # whole, or the first bytes with size=
    reservation.unmap(address, size)                    # all mappings that begin in these bytes
    physical.release()                                  # True: the last reference, so drop its number
    reservations.remove(reservation)                    # when reservation.mapped is empty, else describe_mappings()

A mapping keeps its bytes, whatever becomes of the handle.  Errors of the neutral layer come as they are, before
anything is noted.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import Any, ClassVar

from peerlane import AddressRange, Physical
from peerlane.dialects._shared.machine import Context, Resource


class PhysicalMemory(Resource):
    """Physical memory, created by this process or imported, which a program holds by a handle."""

    __slots__ = ("mappings", "neutral", "references")

    name = "handle of physical memory"
    #: Whether a program can get a released handle again from a mapping: then the neutral memory stays open until the
    #: last mapping ends.
    outlives_handle: ClassVar[bool] = False

    def __init__(self, context: Context, neutral: Physical) -> None:
        super().__init__(context)
        self.neutral = neutral
        #: ``references``: how often the program got the handle and has not yet released it.
        #: ``mappings``: how many mappings it has now.
        self.references, self.mappings = 1, 0

    @property
    def nbytes(self) -> int:
        """Its bytes, mapped or not."""
        return self.neutral.size

    @property
    def is_over(self) -> bool:
        """Whether this process no longer holds the bytes, by a handle or a mapping."""
        return self.neutral.is_closed and not self.mappings

    def release(self) -> bool:
        """Drop a reference; True for the last one: then the caller drops the handle and calls :meth:`let_go`."""
        self.references -= 1
        return self.references <= 0

    def let_go(self) -> None:
        """Close the neutral memory, if no handle and no mapping needs it any more."""
        if self.references <= 0 and not (self.outlives_handle and self.mappings):
            self.neutral.close()

    def abandon(self) -> None:
        """Let go of the memory; mapped bytes live on."""
        self.references = 0
        self.neutral.close()


class Reservation:
    """The addresses that one call reserved."""

    __slots__ = ("addresses", "start", "mapped")

    def __init__(self, addresses: AddressRange, start: int) -> None:
        self.addresses, self.start = addresses, start  #: ``start``: its first address
        self.mapped: dict[int, Any] = {}  #: by first address: the physical memory of each mapping

    @property
    def end(self) -> int:
        """The first address behind it."""
        return self.start + self.addresses.size

    def map(self, physical: PhysicalMemory, address: int, **how: Any) -> None:
        """Map memory; ``how`` is what ``AddressRange.map`` takes besides, and its errors are raised."""
        self.addresses.map(physical.neutral, address - self.start, **how)
        self.mapped[address] = physical
        physical.mappings += 1

    def unmap(self, address: int, size: int | None = None) -> None:
        """End the mapping that begins at an address, or all in ``size`` bytes; errors as ``AddressRange.unmap``."""
        self.addresses.unmap(address - self.start, size)
        inside = [address] if size is None else [at for at in self.mapped if address <= at < address + size]
        for start in inside:
            self._ended(self.mapped.pop(start))

    def close(self) -> None:
        """Give the addresses back, with their mappings."""
        for physical in self.mapped.values():
            self._ended(physical)
        self.mapped.clear()
        self.addresses.close()

    @staticmethod
    def _ended(physical: PhysicalMemory) -> None:
        physical.mappings -= 1
        physical.let_go()

    def mapping_around(self, address: int) -> int | None:
        """Return the first address of the mapping that contains an address; None where nothing is mapped."""
        at = address - self.start
        for offset, nbytes in self.addresses.mappings:
            if offset <= at < offset + nbytes:
                return self.start + offset
        return None

    def describe_mappings(self) -> str:
        """Describe the mappings that are left: how many, and the address of the first."""
        return (
            f"{len(self.mapped):,} mappings are left in the {self.addresses.size:,} bytes at {self.start:#x}, the "
            f"first at {min(self.mapped):#x}"
        )


class Reservations:
    """All reservations of the process, by any address inside them."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._by_start: dict[int, Reservation] = {}

    def add(self, addresses: AddressRange) -> Reservation:
        """Enter the reservation of these addresses, and return it."""
        reservation = Reservation(addresses, addresses.address)
        self._by_start[reservation.start] = reservation
        insort(self._starts, reservation.start)
        return reservation

    def remove(self, reservation: Reservation) -> None:
        """Take a reservation out."""
        del self._by_start[reservation.start]
        self._starts.remove(reservation.start)

    def starting_at(self, address: int) -> Reservation | None:
        """Return the reservation that begins at an address."""
        return self._by_start.get(address)

    def around(self, address: int) -> Reservation | None:
        """Return the reservation that contains an address."""
        before = bisect_right(self._starts, address)
        reservation = self._by_start[self._starts[before - 1]] if before else None
        return reservation if reservation and address < reservation.end else None

    def is_hole(self, address: int) -> bool:
        """Tell whether this is a reserved address where nothing is mapped."""
        reservation = self.around(address)
        return reservation is not None and reservation.mapping_around(address) is None
