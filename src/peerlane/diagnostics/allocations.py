"""The allocations of this process, live and lately ended: what each is, and where the program made and freed it."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from peerlane import _core
from peerlane.diagnostics.call_site import Site, call_site
from peerlane.diagnostics.freed import Graves

_REMEMBERED = 4096
#: Who freed what lived when its node was left.
LEAVING = "leaving the node"


class Memory(Protocol):
    """What is told of memory that was made."""

    @property
    def id(self) -> int: ...
    @property
    def last_address(self) -> int: ...
    @property
    def size(self) -> int: ...


class Place(Protocol):
    """What is told of addresses that were reserved."""

    @property
    def id(self) -> int: ...
    @property
    def address(self) -> int: ...
    @property
    def size(self) -> int: ...


class Sort(enum.Enum):
    """What addresses are, and the words for it."""

    ALLOCATION = ("allocation", "allocated", "freed", "the buffer of {} was {}")
    RANGE = ("address range", "reserved", "closed", "the buffer is a part of {}, which was {}")
    IMPORTED = ("imported buffer", "opened", "closed", "{} was {}")

    def __init__(self, noun: str, made: str, ended: str, closed: str) -> None:
        self.noun, self.made, self.ended, self.closed = noun, made, ended, closed


@dataclass(slots=True, eq=False)
class Record:
    """What is known of one allocation, live or dead."""

    id: int
    address: int
    offset: int
    size: int
    device: str
    made_at: Site | None
    freed_at: Site | None = None
    freed_by: str = field(default="")
    sort: Sort = Sort.ALLOCATION
    before: int = 0  # bytes reserved around it, where nothing of it is
    behind: int = 0
    ended: int = 0  # the how-many-eth that ended

    def __str__(self) -> str:
        made = f", {self.sort.made} at {self.made_at}" if self.made_at else ""
        return f"{self.sort.noun} {self.id} ({self.size:,} bytes at {self.address:#x} on {self.device}{made})"

    @property
    def end(self) -> str:
        """How it ended, in words."""
        where = f" at {self.freed_at}" if self.freed_at else ""
        return f"{self.sort.ended} by {self.freed_by}{where}" if self.freed_by else self.sort.ended


_live: dict[int, Record] = {}
_spread: dict[int, Record] = {}  # those of the live that have holes
_dead: Graves[Record] = Graves(_REMEMBERED)


def remember(memory: Memory, device: str) -> None:
    """Note a new allocation and the caller's place."""
    _remember(memory.id, memory.last_address, memory.size, device, Sort.ALLOCATION)


def given_again(allocation: int, address: int, size: int, device: str) -> None:
    """Note that a dialect gives an allocation again that :func:`forget` was told of, and the caller's place."""
    _remember(allocation, address, size, device, Sort.ALLOCATION)


def remember_range(place: Place, device: str) -> None:
    """Note new reserved addresses and the caller's place."""
    _remember(place.id, place.address, place.size, device, Sort.RANGE)


def remember_import(memory: Memory, place: Place, device: str) -> None:
    """Note that all of a range is an imported buffer, and the caller's place."""
    record = _remember(place.id, memory.last_address, memory.size, device, Sort.IMPORTED)
    record.before = record.address - place.address
    record.behind = place.size - record.before - record.size


def _remember(identity: int, address: int, size: int, device: str, sort: Sort) -> Record:
    record = _live[identity] = Record(
        identity, address, _offset(address), size, device, call_site(), sort=sort
    )
    if sort is not Sort.ALLOCATION:
        _spread[identity] = record
    return record


def _offset(address: int) -> int:
    """Return the offset in its window; an address outside of the windows is its own."""
    offset = _core.window_offset(address)
    return address if offset is None else offset


def grown(place: Place) -> None:
    """Note that reserved addresses have become more; who holds the old record has what was true before."""
    _live[place.id] = _spread[place.id] = replace(_live[place.id], size=place.size)


def forget(allocation: int, freed_by: str) -> None:
    """Note that an allocation ended, by whom and where."""
    record = _live.pop(allocation, None)
    _spread.pop(allocation, None)
    if record is not None:
        record.freed_at = call_site()
        record.freed_by = freed_by
        _dead.add(record)


def forget_node(allocations: Iterable[int]) -> None:
    """Note that a node was left while these allocations lived."""
    for allocation in allocations:
        forget(allocation, LEAVING)


def live_records() -> tuple[Record, ...]:
    """Return what is known of every live allocation, oldest first."""
    return tuple(sorted(_live.copy().values(), key=lambda record: record.id))


def live_record(allocation: int) -> Record | None:
    """Return the record of a live allocation."""
    return _live.get(allocation)


def oldest_live(most: int) -> list[Record]:
    """Return up to ``most`` of the live allocations, in the order in which they were made."""
    while True:
        try:
            return list(itertools.islice(_live.values(), most))
        except RuntimeError:  # another thread, or the garbage collector, changed it meanwhile
            continue


def spread_records() -> tuple[Record, ...]:
    """Return the live address ranges and imported buffers: what may have holes."""
    return tuple(_spread.copy().values())


def record_of(allocation: int) -> Record | None:
    """Return the record of a live or lately freed allocation."""
    found = _live.get(allocation)
    if found is not None:
        return found
    return _dead.get(allocation)


def record_at(address: int, allocation: int) -> Record | None:
    """Return the record of an allocation, or of the reserved addresses that it is mapped in."""
    found = record_of(allocation)
    if found is not None:
        return found
    reserved = [each for each in _spread.copy().values() if each.sort is Sort.RANGE]
    return next((each for each in reserved if each.address <= address < each.address + each.size), None)


def freed_at(address: int) -> Record | None:
    """Return what ended last of all that was at a device address."""
    # By offset: the address of a host view lies in the other window.
    offset = _offset(address)
    window = address - offset
    return _dead.at(offset, lambda dead: dead.device != "host" or dead.address - dead.offset == window)


def settle() -> None:
    """Run what can run on all streams: it may hold memory that was closed."""
    _core.drain()
