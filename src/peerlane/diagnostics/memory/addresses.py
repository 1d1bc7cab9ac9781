"""Descriptions of bare addresses for messages: looked up when a call fails, put into words when the text is read."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from peerlane import _core
from peerlane.diagnostics.memory import allocations
from peerlane.errors import Error, Fault


class AddressDescription(NamedTuple):
    """What an address pointed at when it was looked up; ``str()`` puts it into words.

    ``what`` is a text, or the record of an allocation, of which the address is byte ``offset``.  ``ended`` is how the
    allocation was freed; its memory lives on while a view, an operation or a pool of a dialect uses it.
    """

    address: int
    what: str | allocations.Record
    offset: int | None = None
    ended: str = ""

    def __str__(self) -> str:
        if not self.address:
            return str(self.what)
        where = "" if self.offset is None else f"byte {self.offset:,} of " if self.offset else "start of "
        ended = f", {self.ended}" if self.ended else ""
        return f"{self.address:#x} ({where}{self.what}{ended})" if self.what else f"{self.address:#x}"


def look(address: int) -> AddressDescription:
    """Return what an address points at now; not for use in a forked child."""
    if not address:
        return AddressDescription(address, "NULL")
    try:
        location = _core.locate(address)
    except Error as error:
        if error.fault is Fault.FREED_ADDRESS:
            return AddressDescription(address, "freed memory")
        if error.missing_address == address:
            return AddressDescription(address, "reserved, and nothing is mapped there")
        return AddressDescription(address, "nothing is allocated there")
    if location is None:
        return AddressDescription(
            address, "pageable host memory" if is_mapped(address) else "nothing is mapped there"
        )
    _, base, size, allocation = location
    record = allocations.record_at(address, allocation)
    if record is None:
        return AddressDescription(address, f"the {size:,} bytes at {base:#x}", address - base)
    return AddressDescription(
        address, record, address - record.address, record.end if record.freed_by else ""
    )


def is_mapped(address: int) -> bool:
    """Tell whether the host can read the byte at an address, without following a wild pointer."""
    return _core.is_readable(address)


def is_code(address: int) -> bool:
    """Tell whether a function may be at an address of the host."""
    return _core.is_code(address)


def rights(address: int, size: int = 1) -> list[str]:
    """Return the rights, such as ``"r-xp"``, of each host mapping that a range touches; none if they are unknown."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return []
    touched = []
    for line in lines:
        extent, right = line.split(maxsplit=2)[:2]
        first, _, last = extent.partition("-")
        if int(first, 16) < address + size and address < int(last, 16):
            touched.append(right)
    return touched
