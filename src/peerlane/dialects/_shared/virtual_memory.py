"""Physical memory, reserved addresses and mappings: the tables of every dialect with virtual memory.

A dialect makes a subclass of :class:`PhysicalMemory` for its handles and keeps one :class:`Reservations` of a node.
It checks arguments in its vendor's order, holds the machine's lock, and then calls::

    reservation = reservations.add(AddressRange(device, size))
    reservation.map(physical, address, access="none")   # whole, or the first bytes with size=
    reservation.unmap(address, size)                    # all mappings that begin in these bytes
    physical.release()                                  # True: the last reference, so drop its number
    reservations.remove(reservation)                    # when reservation.mapped is empty, else told_left()

A mapping keeps its bytes, whatever becomes of the handle.  Errors of the neutral layer come as they are, before
anything is noted.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from typing import Any, ClassVar

from peerlane import AddressRange, Physical
from peerlane.dialects._shared.machine import Context, Thing


class PhysicalMemory(Thing):
    """Physical memory, made here or imported, which a program holds by a number.

    Attributes
    ----------
    outlives_handle : bool
        Whether a mapping can give out the handle again when it was released: then the neutral memory stays open
        until the last mapping ends.
    neutral : Physical
    references : int
        How often it was given out and not yet released.
    mappings : int
        Where it is mapped now.
    """

    __slots__ = ("mappings", "neutral", "references")

    name = "handle of physical memory"
    outlives_handle: ClassVar[bool] = False

    def __init__(self, context: Context, neutral: Physical) -> None:
        super().__init__(context)
        self.neutral = neutral
        self.references, self.mappings = 1, 0

    @property
    def nbytes(self) -> int:
        """Its bytes, mapped or not."""
        return self.neutral.size

    @property
    def is_over(self) -> bool:
        """Whether nothing of this process holds the bytes any more."""
        return self.neutral.is_closed and not self.mappings

    def release(self) -> bool:
        """Drop a reference; True for the last one: the caller drops the number then, and calls :meth:`let_go`."""
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


@dataclass(slots=True)
class Reservation:
    """Addresses that were reserved with one call.

    Attributes
    ----------
    addresses : AddressRange
    start : int
        Its first address.
    mapped : dict
        By address: the physical memory that is mapped there.
    """

    addresses: AddressRange
    start: int
    mapped: dict[int, Any] = field(default_factory=dict)

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
        """End the mapping that begins here, or all in ``size`` bytes; errors as ``AddressRange.unmap``."""
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
        """Return where the mapping begins that this address is inside of; None where nothing is mapped."""
        at = address - self.start
        for offset, nbytes in self.addresses.mappings:
            if offset <= at < offset + nbytes:
                return self.start + offset
        return None

    def told_left(self) -> str:
        """Say that mappings are left, how many, and where the first one begins."""
        return (
            f"{len(self.mapped):,} mappings are left in the {self.addresses.size:,} bytes at {self.start:#x}, the "
            f"first at {min(self.mapped):#x}"
        )


class Reservations:
    """All reservations of the process, found by any address inside."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._by_start: dict[int, Reservation] = {}

    def add(self, addresses: AddressRange) -> Reservation:
        """Enter a new one."""
        made = Reservation(addresses, addresses.address)
        self._by_start[made.start] = made
        insort(self._starts, made.start)
        return made

    def remove(self, reservation: Reservation) -> None:
        """Take one out."""
        del self._by_start[reservation.start]
        self._starts.remove(reservation.start)

    def starting_at(self, address: int) -> Reservation | None:
        """Return the one that begins here."""
        return self._by_start.get(address)

    def around(self, address: int) -> Reservation | None:
        """Return the one that this address is inside of."""
        before = bisect_right(self._starts, address)
        found = self._by_start[self._starts[before - 1]] if before else None
        return found if found and address < found.end else None

    def is_hole(self, address: int) -> bool:
        """Tell whether this is a reserved address where nothing is mapped."""
        found = self.around(address)
        return found is not None and found.mapping_around(address) is None
