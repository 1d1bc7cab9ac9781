"""The addresses that a dialect reserved, and what is mapped there."""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from typing import Any

from peerlane import AddressRange


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

    def mapping_around(self, address: int) -> int | None:
        """Return where the mapping begins that this address is inside of; None where nothing is mapped."""
        at = address - self.start
        for offset, nbytes in self.addresses.mappings:
            if offset <= at < offset + nbytes:
                return self.start + offset
        return None


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
        return found if found and address < found.start + found.addresses.size else None

    def is_hole(self, address: int) -> bool:
        """Tell whether this is a reserved address where nothing is mapped."""
        found = self.around(address)
        return found is not None and found.mapping_around(address) is None
