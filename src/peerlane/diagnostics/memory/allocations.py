"""The live and the last freed allocations of this process, with the lines that allocated and freed them."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from peerlane import _core
from peerlane.diagnostics.call_site import Site, call_site
from peerlane.diagnostics.memory.freed_allocations import FreedAllocations

_REMEMBERED = 4096
#: ``freed_by`` of allocations that were live when their node was left.
LEAVING = "leaving the node"


class Memory(Protocol):
    """The facts of new memory."""

    @property
    def id(self) -> int: ...
    @property
    def last_address(self) -> int: ...
    @property
    def size(self) -> int: ...


class Reservation(Protocol):
    """The facts of reserved addresses."""

    @property
    def id(self) -> int: ...
    @property
    def address(self) -> int: ...
    @property
    def size(self) -> int: ...


class Sort(enum.Enum):
    """The kind of a record: a noun, verbs for its creation and its end, and a text for its closed buffer."""

    ALLOCATION = ("allocation", "allocated", "freed", "the buffer of {} was {}")
    RANGE = ("address range", "reserved", "closed", "the buffer is a part of {}, which was {}")
    IMPORTED = ("imported buffer", "opened", "closed", "{} was {}")

    def __init__(self, noun: str, created: str, ended: str, closed: str) -> None:
        self.noun, self.created, self.ended, self.closed = noun, created, ended, closed


@dataclass(slots=True, eq=False)
class Record:
    """The facts of one allocation, live or freed."""

    id: int
    address: int
    offset: int
    size: int
    device: str
    allocated_at: Site | None
    freed_at: Site | None = None
    freed_by: str = field(default="")
    sort: Sort = Sort.ALLOCATION
    before: int = 0  # bytes reserved in front of it and behind it that are not part of it
    behind: int = 0
    ended: int = 0  # its number in the order in which allocations ended; 0 while it lives

    def __str__(self) -> str:
        created = f", {self.sort.created} at {self.allocated_at}" if self.allocated_at else ""
        return (
            f"{self.sort.noun} {self.id} ({self.size:,} bytes at {self.address:#x} on {self.device}{created})"
        )

    @property
    def end(self) -> str:
        """In words, how it ended."""
        where = f" at {self.freed_at}" if self.freed_at else ""
        return f"{self.sort.ended} by {self.freed_by}{where}" if self.freed_by else self.sort.ended


#: Called before records are read: what was allocated and freed without Python is entered then.
before_reading: list[Callable[[], object]] = []
_live: dict[int, Record] = {}
_spread: dict[int, Record] = {}  # the live records that may have holes
_dead: FreedAllocations[Record] = FreedAllocations(_REMEMBERED)


def remember(memory: Memory, device: str) -> None:
    """Note a new allocation and the line of the call."""
    _remember(memory.id, memory.last_address, memory.size, device, Sort.ALLOCATION)


def reused(allocation: int, address: int, size: int, device: str, *, by_line: bool = True) -> None:
    """Note that a dialect allocates again what was passed to :func:`forget`, and the line of the call if known."""
    _remember(allocation, address, size, device, Sort.ALLOCATION, by_line=by_line)


def remember_range(reserved: Reservation, device: str) -> None:
    """Note new reserved addresses and the line of the call."""
    _remember(reserved.id, reserved.address, reserved.size, device, Sort.RANGE)


def remember_import(memory: Memory, reserved: Reservation, device: str) -> None:
    """Note an imported buffer, which has reserved addresses to itself, and the line of the call."""
    record = _remember(reserved.id, memory.last_address, memory.size, device, Sort.IMPORTED)
    record.before = record.address - reserved.address
    record.behind = reserved.size - record.before - record.size


def _remember(
    identity: int, address: int, size: int, device: str, sort: Sort, *, by_line: bool = True
) -> Record:
    site = call_site() if by_line else None
    record = _live[identity] = Record(identity, address, _offset(address), size, device, site, sort=sort)
    if sort is not Sort.ALLOCATION:
        _spread[identity] = record
    return record


def _offset(address: int) -> int:
    """Return the offset of an address in its window; outside of the windows, the address itself."""
    offset = _core.window_offset(address)
    return address if offset is None else offset


def grown(reserved: Reservation) -> None:
    """Note that a reservation has grown; holders of the old record keep it unchanged."""
    _live[reserved.id] = _spread[reserved.id] = replace(_live[reserved.id], size=reserved.size)


def forget(allocation: int, freed_by: str, *, by_line: bool = True) -> None:
    """Note that ``freed_by`` ended an allocation, and the line of the call if it is known."""
    record = _live.pop(allocation, None)
    _spread.pop(allocation, None)
    if record is not None:
        record.freed_at = call_site() if by_line else None
        record.freed_by = freed_by
        _dead.add(record)


def _read() -> None:
    for each in before_reading:
        each()


def forget_node(allocations: Iterable[int]) -> None:
    """Note that the process left a node in which these allocations were live."""
    for allocation in allocations:
        forget(allocation, LEAVING)


def live_records() -> tuple[Record, ...]:
    """Return the records of all live allocations, oldest first."""
    _read()
    return tuple(sorted(_live.copy().values(), key=lambda record: record.id))


def live_record(allocation: int) -> Record | None:
    """Return the record of a live allocation."""
    _read()
    return _live.get(allocation)


def oldest_live(most: int) -> list[Record]:
    """Return the records of the ``most`` oldest live allocations."""
    _read()
    while True:
        try:
            return list(itertools.islice(_live.values(), most))
        except RuntimeError:  # another thread, or the garbage collector, changed it meanwhile
            continue


def spread_records() -> tuple[Record, ...]:
    """Return the records of live address ranges and imported buffers, which may have holes."""
    return tuple(_spread.copy().values())


def record_of(allocation: int) -> Record | None:
    """Return the record of a live or recently freed allocation."""
    _read()
    record = _live.get(allocation)
    if record is not None:
        return record
    return _dead.get(allocation)


def record_at(address: int, allocation: int) -> Record | None:
    """Return the record of an allocation, or of the address range that maps it."""
    record = record_of(allocation)
    if record is not None:
        return record
    reserved = [each for each in _spread.copy().values() if each.sort is Sort.RANGE]
    return next((each for each in reserved if each.address <= address < each.address + each.size), None)


def freed_at(address: int) -> Record | None:
    """Return the record of the last allocation that was at a device address and was freed."""
    _read()
    # By offset: the host's views lie in another window than the device's addresses.
    offset = _offset(address)
    window = address - offset
    return _dead.at(offset, lambda dead: dead.device != "host" or dead.address - dead.offset == window)


def settle() -> None:
    """Run all operations that can run on any stream: they may hold closed memory."""
    _core.drain()
