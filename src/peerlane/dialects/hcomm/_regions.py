"""Whose an address is: this rank's memory, or a peer's as a channel reaches it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from peerlane import Buffer
from peerlane.backend import host
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.acl._state import machine
from peerlane.dialects.hcomm._codes import NOT_FOUND, PTR
from peerlane.errors import BadAddress, Closed
from peerlane.memory import raw

_MOST_KEPT = 4096
_NONE: Mapping[str, int] = MappingProxyType({})
#: Beyond all addresses of processes, so that no other call takes these numbers for memory of this one.
_numbers = itertools.count(1 << 60, 1 << 40)

FarPlaces: TypeAlias = "dict[tuple[int, str, int], int]"


def far_place(known: FarPlaces, rank: int, tag: str, nbytes: int) -> int:
    """Return the number of the first byte of a rank's memory in another server; the same for all its channels."""
    return known.setdefault((rank, tag, nbytes), next(_numbers))


_MOST_NAMED = 8


class Regions:
    """Memory by address, and the parts of it that were asked for.

    Memory that was freed is in it no more: what lies at its address now is another's.

    Parameters
    ----------
    memories : mapping of str to Buffer
        By tag.
    starts : mapping of str to int
        The numbers by which calls name memory of other servers, by tag; other memory has its address.

    Attributes
    ----------
    parts : dict
        By address and bytes, what :meth:`part` has returned.
    places : dict
        The same of :meth:`place`.
    """

    def __init__(self, memories: Mapping[str, Buffer], starts: Mapping[str, int] = _NONE) -> None:
        self._found = [
            (starts.get(tag) or each.last_address, each.size, tag, each) for tag, each in memories.items()
        ]
        self.parts: dict[tuple[int, int], Buffer] = {}
        self.places: dict[tuple[int, int], tuple[Buffer, int]] = {}

    def add(self, tag: str, memory: Buffer) -> None:
        """Enter another one."""
        self._found.append((memory.last_address, memory.size, tag, memory))

    def remove(self, tag: str) -> None:
        """Take one out."""
        self._found = [each for each in self._found if each[2] != tag]
        self.parts.clear()
        self.places.clear()
        host.forget_c_threads()

    def listed(self) -> dict[str, tuple[int, int]]:
        """Return the address and the bytes of these memories, by tag."""
        return {tag: (start, size) for start, size, tag, _ in self._found}

    def has(self, tag: str, memory: Buffer) -> bool:
        """Tell whether this memory has this tag."""
        return any(each[2] == tag and each[3] is memory for each in self._found)

    def around(self, address: int, nbytes: int) -> Buffer | None:
        """Return the memory in which the bytes lie as a whole, if its numbers are addresses."""
        for start, size, _, memory in self._found:
            if (
                0 <= address - start <= size - nbytes
                and start == memory.last_address
                and not memory.is_closed
            ):
                return memory
        return None

    def part(self, address: int, nbytes: int) -> Buffer | None:
        """Return the bytes at an address, if they lie in one of these memories as a whole."""
        known = self.parts.get((address, nbytes))
        if known is not None and not known.is_closed:
            return known
        for start, size, _, memory in self._found:
            first = address - start
            if 0 <= first <= size - nbytes and not memory.is_closed:
                if len(self.parts) >= _MOST_KEPT:
                    self.parts.clear()
                made = self.parts[address, nbytes] = memory[first : first + nbytes]
                return made
        return None

    def place(self, address: int, nbytes: int) -> tuple[Buffer, int] | None:
        """Return the memory in which the bytes lie as a whole, and their first byte there."""
        for start, size, _, memory in self._found:
            first = address - start
            if 0 <= first <= size - nbytes and not memory.is_closed:
                if len(self.places) >= _MOST_KEPT:
                    self.places.clear()
                self.places[address, nbytes] = memory, first
                return memory, first
        return None

    def why_ended(self, address: int, nbytes: int) -> str:
        """Say why a range may not be used any more that lay in one of these memories, nothing if none did."""
        for start, size, _, memory in self._found:
            if 0 <= address - start <= size - nbytes and memory.is_closed:
                try:
                    memory.address  # noqa: B018 - raises the error that names what ended the memory
                except Closed as error:
                    return str(error)
        return ""

    def __str__(self) -> str:
        shown = [
            f"{size:,} bytes at {start:#x} ({tag!r}{', freed' if memory.is_closed else ''})"
            for start, size, tag, memory in self._found
        ]
        more = f" and {len(shown) - _MOST_NAMED} more" if len(shown) > _MOST_NAMED else ""
        return (", ".join(shown[:_MOST_NAMED]) + more) or "none"


def refuse_null(**addresses: int) -> None:
    """Refuse NULL: HCCL_E_PTR."""
    for name, address in addresses.items():
        if not address:
            raise Refusal(PTR, f"{name} is NULL", f"pass an address as {name}")


def device_memory(name: str, address: int, nbytes: int) -> Buffer:
    """Return bytes of memory that acl has given out, on a device or pinned: HCCL_E_NOT_FOUND for others."""
    remedy = "pass memory of acl.rt.malloc that is large enough, or of HcclGetHcclBuffer"
    machine.devices()
    try:
        found = raw.find(address)
    except BadAddress as error:
        raise Refusal(NOT_FOUND, f"{name}: {error}", remedy) from None
    if found is None:
        raise Refusal(
            NOT_FOUND, f"{name} {address:#x} is pageable host memory, which no engine reaches", remedy
        )
    owner = machine.allocations.get(found[1])
    if owner is not None:
        memory, start = owner.buffer, found[1]
    else:
        range_ = machine.reservations.around(address)
        if range_ is None:
            beyond = address + nbytes - found[1] - found[2]
            if beyond > 0:
                raise _too_long(name, address, nbytes, beyond, remedy)
            raise Refusal(NOT_FOUND, f"{name} {address:#x} is memory that acl has not given out", remedy)
        if address + nbytes > range_.start + range_.addresses.size or machine.reservations.is_hole(address):
            raise Refusal(NOT_FOUND, f"{name}: {nbytes:,} bytes at {address:#x} are not mapped", remedy)
        return range_.addresses[address - range_.start : address - range_.start + nbytes]
    first = address - start
    if first + nbytes > memory.size:
        raise _too_long(name, address, nbytes, first + nbytes - memory.size, remedy)
    return memory[first : first + nbytes]


def _too_long(name: str, address: int, nbytes: int, beyond: int, remedy: str) -> Refusal:
    return Refusal(
        NOT_FOUND,
        f"{name}: {nbytes:,} bytes at {address:#x} end {beyond:,} bytes beyond {machine.describe(address)}",
        remedy,
    )


def unregistered(name: str, address: int, nbytes: int, known: Regions | Iterable[str], whose: str) -> Refusal:
    """Return the refusal of a range that lies in no registered memory: HCCL_E_NOT_FOUND."""
    return Refusal(
        NOT_FOUND,
        f"{name}: {nbytes:,} bytes at {address:#x} do not lie in one memory of {whose}; there is {known}",
        "pass addresses that HcclGetHcclBuffer, HcclChannelGetHcclBuffer or HcclChannelGetRemoteMems returned, or "
        "register the memory with HcclCommMemReg before the channel is acquired",
    )
