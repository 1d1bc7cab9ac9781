"""The host memory that a program registered."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Generic, TypeVar

from peerlane.backend import host
from peerlane.support.records import dataclass


@dataclass(frozen=True, slots=True)
class Registration:
    """The bytes that one call registered; dialects add fields."""

    start: int
    size: int

    @property
    def end(self) -> int:
        """The first address behind it."""
        return self.start + self.size


_Kind = TypeVar("_Kind", bound=Registration)


class Registrations(Generic[_Kind]):
    """All registrations of the process.  Of those that overlap, the last that begins before an address counts."""

    def __init__(self) -> None:
        self.starts: list[int] = []  #: their first addresses, in order
        self._by_start: dict[int, _Kind] = {}

    def __bool__(self) -> bool:
        return bool(self.starts)

    def add(self, registration: _Kind) -> None:
        """Enter a registration."""
        self._by_start[registration.start] = registration
        insort(self.starts, registration.start)
        host.forget_c_threads()

    def remove(self, start: int) -> _Kind | None:
        """Take out the registration that begins at an address; None if there is none."""
        registration = self._by_start.pop(start, None)
        if registration is not None:
            del self.starts[bisect_left(self.starts, start)]
        return registration

    def clear(self) -> None:
        """Take out all registrations."""
        self.starts.clear()
        self._by_start.clear()

    def around(self, address: int, nbytes: int = 1) -> _Kind | None:
        """Return the registration that contains all of these bytes."""
        registration = self._before(address)
        return registration if registration is not None and address + nbytes <= registration.end else None

    def begins(self, start: int) -> bool:
        """Tell whether a registration begins at an address."""
        return start in self._by_start

    def overlapping(self, address: int, nbytes: int) -> _Kind | None:
        """Return a registration that contains some of these bytes."""
        last = self._before(address + nbytes - 1)
        return last if last is not None and address < last.end else None

    def _before(self, address: int) -> _Kind | None:
        at = bisect_right(self.starts, address)
        return self._by_start[self.starts[at - 1]] if at else None
