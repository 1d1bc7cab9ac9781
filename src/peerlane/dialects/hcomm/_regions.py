"""Which memory has an address: this rank's, or a peer's that a channel reaches."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from peerlane import Buffer
from peerlane.backend import host
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.acl._state import machine
from peerlane.dialects.hcomm._codes import NOT_FOUND
from peerlane.errors import BadAddress, Closed
from peerlane.memory import raw

_MOST_KEPT = 4096
_NONE: Mapping[str, int] = MappingProxyType({})
#: Far addresses lie beyond all addresses of a process, so no other call takes them for memory of this process.
_numbers = itertools.count(1 << 60, 1 << 40)

FarAddresses: TypeAlias = "dict[tuple[int, str, int], int]"


def far_address(known: FarAddresses, rank: int, tag: str, nbytes: int) -> int:
    """Return the number that stands for the address of a rank's memory in another server, one for all channels."""
    return known.setdefault((rank, tag, nbytes), next(_numbers))


_MOST_NAMED = 8


class Regions:
    """Memory by address, with the parts that calls have looked up.

    Freed memory is not returned: other memory may have its address by now.

    ``memories``: by tag.
    ``starts``: by tag: the far address of memory in another server; other memory has its own address.
    """

    def __init__(self, memories: Mapping[str, Buffer], starts: Mapping[str, int] = _NONE) -> None:
        self._memories = [
            (starts.get(tag) or each.last_address, each.size, tag, each) for tag, each in memories.items()
        ]
        #: By address and bytes: what :meth:`part` has returned.
        self.parts: dict[tuple[int, int], Buffer] = {}
        #: By address and bytes: what :meth:`locate` has returned.
        self.locations: dict[tuple[int, int], tuple[Buffer, int]] = {}

    def add(self, tag: str, memory: Buffer) -> None:
        """Add memory."""
        self._memories.append((memory.last_address, memory.size, tag, memory))

    def remove(self, tag: str) -> None:
        """Remove the memory of a tag."""
        self._memories = [each for each in self._memories if each[2] != tag]
        self.parts.clear()
        self.locations.clear()
        host.forget_c_threads()

    def listed(self) -> dict[str, tuple[int, int]]:
        """Return address and bytes of each memory, by tag."""
        return {tag: (start, size) for start, size, tag, _ in self._memories}

    def has(self, tag: str, memory: Buffer) -> bool:
        """Tell whether this memory has this tag."""
        return any(each[2] == tag and each[3] is memory for each in self._memories)

    def around(self, address: int, nbytes: int) -> Buffer | None:
        """Return the memory that has all of the bytes; None for far addresses."""
        for start, size, _, memory in self._memories:
            if (
                0 <= address - start <= size - nbytes
                and start == memory.last_address
                and not memory.is_closed
            ):
                return memory
        return None

    def part(self, address: int, nbytes: int) -> Buffer | None:
        """Return the bytes as a buffer, if one of these memories has all of them."""
        known = self.parts.get((address, nbytes))
        if known is not None and not known.is_closed:
            return known
        for start, size, _, memory in self._memories:
            first = address - start
            if 0 <= first <= size - nbytes and not memory.is_closed:
                if len(self.parts) >= _MOST_KEPT:
                    self.parts.clear()
                part = self.parts[address, nbytes] = memory[first : first + nbytes]
                return part
        return None

    def locate(self, address: int, nbytes: int) -> tuple[Buffer, int] | None:
        """Return the memory that has all of the bytes, and their offset in it."""
        for start, size, _, memory in self._memories:
            first = address - start
            if 0 <= first <= size - nbytes and not memory.is_closed:
                if len(self.locations) >= _MOST_KEPT:
                    self.locations.clear()
                self.locations[address, nbytes] = memory, first
                return memory, first
        return None

    def why_ended(self, address: int, nbytes: int) -> str:
        """Return why the memory that had the bytes is closed; empty if none had them."""
        for start, size, _, memory in self._memories:
            if 0 <= address - start <= size - nbytes and memory.is_closed:
                try:
                    memory.address  # noqa: B018 - raises the error that names what ended the memory
                except Closed as error:
                    return str(error)
        return ""

    def __str__(self) -> str:
        shown = [
            f"{size:,} bytes at {start:#x} ({tag!r}{', freed' if memory.is_closed else ''})"
            for start, size, tag, memory in self._memories
        ]
        more = f" and {len(shown) - _MOST_NAMED} more" if len(shown) > _MOST_NAMED else ""
        return (", ".join(shown[:_MOST_NAMED]) + more) or "none"


def device_memory(name: str, address: int, nbytes: int) -> Buffer:
    """Return bytes of memory that acl has allocated, on a device or pinned: HCCL_E_NOT_FOUND for others."""
    remedy = "pass memory of acl.rt.malloc that is large enough, or of HcclGetHcclBuffer"
    machine.devices()
    try:
        block = raw.find(address)
    except BadAddress as error:
        raise NOT_FOUND.refusal(f"{name}: {error}", remedy) from None
    if block is None:
        raise NOT_FOUND.refusal(
            f"{name} {address:#x} is pageable host memory, which no engine reaches", remedy
        )
    owner = machine.allocations.get(block[1])
    if owner is not None:
        memory, start = owner.buffer, block[1]
    else:
        range_ = machine.reservations.around(address)
        if range_ is None:
            beyond = address + nbytes - block[1] - block[2]
            if beyond > 0:
                raise _too_long(name, address, nbytes, beyond, remedy)
            raise NOT_FOUND.refusal(f"{name} {address:#x} is memory that acl has not given out", remedy)
        if address + nbytes > range_.start + range_.addresses.size or machine.reservations.is_hole(address):
            raise NOT_FOUND.refusal(f"{name}: {nbytes:,} bytes at {address:#x} are not mapped", remedy)
        return range_.addresses[address - range_.start : address - range_.start + nbytes]
    first = address - start
    if first + nbytes > memory.size:
        raise _too_long(name, address, nbytes, first + nbytes - memory.size, remedy)
    return memory[first : first + nbytes]


def _too_long(name: str, address: int, nbytes: int, beyond: int, remedy: str) -> Refusal:
    return NOT_FOUND.refusal(
        f"{name}: {nbytes:,} bytes at {address:#x} end {beyond:,} bytes beyond {machine.describe(address)}",
        remedy,
    )


def unregistered(name: str, address: int, nbytes: int, known: Regions | Iterable[str], whose: str) -> Refusal:
    """Return the refusal of bytes that no registered memory has: HCCL_E_NOT_FOUND."""
    return NOT_FOUND.refusal(
        f"{name}: {nbytes:,} bytes at {address:#x} do not lie in one memory of {whose}; there is {known}",
        "pass addresses that HcclGetHcclBuffer, HcclChannelGetHcclBuffer or HcclChannelGetRemoteMems returned, or "
        "register the memory with HcclCommMemReg before the channel is acquired",
    )
