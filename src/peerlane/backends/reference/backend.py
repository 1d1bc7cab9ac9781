"""The verbs of the reference back-end, in the order of :mod:`peerlane.backend.interface`."""

from __future__ import annotations

import threading
import uuid
from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from peerlane.backend import host
from peerlane.backend.base import BackendBase
from peerlane.backend.facts import MAX_DEVICES, Caps, DeviceInfo, Kind, Location
from peerlane.backend.settings import integer, read, sizes
from peerlane.diagnostics.memory import address_errors, allocations
from peerlane.errors import BadAddress, BadArgument, Closed, Fault, InvalidValue, OutOfRange, Refused

# No host address is so high, and none is given out twice, so that an old address never points at new memory.
_FIRST, _LAST = 1 << 60, 1 << 61
_ALIGNMENT = 256

_lock = threading.RLock()  # one verb at a time, over all threads
_next_address = _FIRST + _ALIGNMENT


def _new_address(nbytes: int) -> int:
    """Return an address for ``nbytes``, with a gap behind them."""
    global _next_address
    address = _next_address
    _next_address += (nbytes // _ALIGNMENT + 2) * _ALIGNMENT
    return address


class ReferenceMemory:
    """One allocation: an array, and its address."""

    def __init__(self, backend: ReferenceBackend, ordinal: int, nbytes: int) -> None:
        self.bytes = np.zeros(nbytes, np.uint8)
        self.ordinal, self.size, self._backend = ordinal, nbytes, backend
        self.address, self.allocation = _new_address(nbytes), host.next_allocation()

    def close(self) -> None:
        self._backend.free(self)

    def host_view(self) -> memoryview:
        return self.bytes.data


@dataclass(frozen=True)
class Settings:
    """The settings of a node of this back-end."""

    devices: int
    memory: tuple[int, ...]  # of each device


class ReferenceBackend(BackendBase):
    """Devices whose memory lies in arrays; the verbs of :class:`~peerlane.backend.interface.Backend`."""

    name = "reference"
    caps = Caps.PEER | Caps.FILL | Caps.HOST_VIEW

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.is_closed = False
        self._uuids = [uuid.uuid4().bytes for _ in range(settings.devices)]
        self._live: dict[int, ReferenceMemory] = {}  # by address, lowest first: addresses only grow
        self._peers: list[set[int]] = [set() for _ in range(settings.devices)]
        self._announced: list[set[int]] = [set() for _ in range(settings.devices)]

    # Memory: devices, capacity, allocations

    def devices(self) -> tuple[DeviceInfo, ...]:
        return tuple(
            DeviceInfo(
                ordinal=ordinal,
                name="Reference",
                uuid=each,
                total_bytes=self.settings.memory[ordinal],
                switch=0,
                granularity=1,
                max_peers=self.settings.devices - 1,
                routes_peer_memory_only=False,
                is_host_mapped=False,
                max_streams=0,
                max_notifies=0,
            )
            for ordinal, each in enumerate(self._uuids)
        )

    def free_bytes(self, ordinal: int) -> int:
        self._check_open()
        with _lock:
            return self.settings.memory[ordinal] - sum(each.size for each in self._on(ordinal))

    def allocate(self, ordinal: int, nbytes: int, peer: bool = False) -> ReferenceMemory:
        if nbytes < 1:
            raise InvalidValue(
                f"{self.name}:{ordinal} cannot allocate {nbytes:,} bytes; the least is 1",
                detail=BadArgument("nbytes", nbytes, least=1),
            )
        with _lock:
            free = self.free_bytes(ordinal)
            if nbytes > free:
                device = f"{self.name}:{ordinal}"
                live = len(self._on(ordinal))
                raise address_errors.no_room(nbytes, free, self.settings.memory[ordinal], live, device)
            memory = ReferenceMemory(self, ordinal, nbytes)
            self._live[memory.address] = memory
            return memory

    def free(self, memory: ReferenceMemory) -> None:
        """Forget an allocation; views keep its bytes."""
        with _lock:
            self._live.pop(memory.address, None)

    def close(self) -> None:
        with _lock:
            self.is_closed = True
            self._live.clear()

    # Addresses

    def locate(self, address: int) -> Location:
        if not _FIRST <= address < _LAST:
            return Location(Kind.PAGEABLE, -1, address, 0, 0)
        memory = self._memory_at("address", address, 0)
        return Location(Kind.DEVICE, memory.ordinal, memory.address, memory.size, memory.allocation)

    # Peers: every device reaches every other one

    def can_access(self, ordinal: int, peer: int) -> bool:
        return ordinal != peer

    def why_not(self, ordinal: int, peer: int) -> str:
        return "it is the device itself" if ordinal == peer else ""

    def peers(self, ordinal: int) -> Collection[int]:
        return frozenset(self._peers[ordinal])

    def set_peer(self, ordinal: int, peer: int, enabled: bool) -> None:
        self._check_open()
        (self._peers[ordinal].add if enabled else self._peers[ordinal].discard)(peer)

    def announce_peer(self, ordinal: int, peer: int, enabled: bool) -> None:
        self._check_open()
        (self._announced[ordinal].add if enabled else self._announced[ordinal].discard)(peer)

    def is_announced(self, ordinal: int, peer: int) -> bool:
        return peer in self._peers[ordinal] or peer in self._announced[ordinal]

    # Copies

    def copy(self, dst: int, src: int, nbytes: int) -> None:
        if nbytes:
            with _lock:
                to, origin = self._span("dst", dst, nbytes), self._span("src", src, nbytes)
                to[:] = origin  # NumPy copies as memmove does

    def fill(self, address: int, value: int, width: int, count: int) -> None:
        if count:
            with _lock:
                rows = self._span("dst", address, width * count).reshape(count, width)
                rows[:] = np.frombuffer(value.to_bytes(width, "little"), np.uint8)

    def read(self, address: int, into: memoryview) -> None:
        if into.nbytes:
            with _lock:
                np.asarray(into.cast("B"))[:] = self._span("src", address, into.nbytes)

    def write(self, address: int, data: memoryview) -> None:
        if data.nbytes:
            with _lock:
                self._span("dst", address, data.nbytes)[:] = np.asarray(data.cast("B"))

    def reduce(self, dst: int, src: int, count: int, dtype: str, op: str) -> None:
        with _lock:  # no update is lost when two threads combine into the same elements
            super().reduce(dst, src, count, dtype, op)

    # Look-up of addresses

    def _span(self, role: str, address: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return the bytes at an address, all of which are in one allocation."""
        memory = self._memory_at(role, address, nbytes)
        first = address - memory.address
        if nbytes > memory.size - first:
            device = f"{self.name}:{memory.ordinal}"
            raise address_errors.out_of_bounds(
                role, address, nbytes, memory.address, memory.size, memory.allocation, device
            )
        return memory.bytes[first : first + nbytes]

    def _memory_at(self, role: str, address: int, nbytes: int) -> ReferenceMemory:
        self._check_open()
        with _lock:
            bases = list(self._live)
            below = bisect_right(bases, address) - 1
            if below >= 0 and address - bases[below] < self._live[bases[below]].size:
                return self._live[bases[below]]
        raise self._nothing_at(role, address, nbytes, bases, below)

    def _nothing_at(self, role: str, address: int, nbytes: int, bases: list[int], below: int) -> BadAddress:
        if not address:
            return address_errors.null(role, nbytes)
        if not _FIRST <= address < _LAST:
            return BadAddress(
                f"{address_errors.operand(role)}address {address:#x} (asked for {nbytes:,} bytes) is not one of "
                f"back-end {self.name}; its memory and that of the host are copied with read and write",
                fault=Fault.UNKNOWN_ADDRESS,
                detail=OutOfRange(role, address, nbytes, 0, 0, 0),
            )
        dead = allocations.freed_at(address)
        if dead is not None:
            return address_errors.freed(role, address, nbytes, dead)
        near = [self._live[base] for base in bases[max(below, 0) : below + 2] if base in self._live]
        if not near:
            return address_errors.unknown(role, address, nbytes, "there is no live allocation")
        nearest = min(near, key=lambda each: max(each.address - address, address - each.address - each.size))
        name = (
            allocations.live_record(nearest.allocation)
            or f"the {nearest.size:,} bytes at {nearest.address:#x}"
        )
        text = address_errors.distance(name, nearest.address - address, nearest.size)
        return address_errors.unknown(role, address, nbytes, text)

    def _on(self, ordinal: int) -> list[ReferenceMemory]:
        return [each for each in self._live.values() if each.ordinal == ordinal]

    def _check_open(self) -> None:
        if self.is_closed:
            raise Closed(
                f"this process has left its node of back-end {self.name}; ask for its devices again with devices()",
                detail=Refused(reason="left", backend=self.name),
            )


class ReferenceFactory:
    """The factory of back-end ``reference``; see :class:`~peerlane.backend.interface.Factory`."""

    def configure(self, settings: str, source: str) -> Settings:
        chosen, checks = read(settings, source, {"devices": integer, "memory": sizes})
        devices = checks.integer("devices", chosen.get("devices", 2), 1, MAX_DEVICES)
        return Settings(devices, checks.memory(chosen.get("memory", "16GiB"), devices, 1))

    def enter(self, config: Settings, present: ReferenceBackend | None) -> ReferenceBackend:
        if present is not None and not present.is_closed and present.settings == config:
            return present
        return ReferenceBackend(config)
