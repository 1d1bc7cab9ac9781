"""Registered memory: of an agent of this process, and of another process by its agent's metadata."""

from __future__ import annotations

import ctypes
import itertools
import operator
from bisect import bisect_left, insort
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from peerlane import Kind, devices
from peerlane.diagnostics import call_site
from peerlane.dialects._shared import environment
from peerlane.dialects._shared.lent_memory import BorrowedMemory, Lender, OwnMemory, Part
from peerlane.dialects.nixl._status import (
    Failure,
    nixl_mem_t,
    nixlBackendError,
    nixlNotAllowedError,
    nixlNotFoundError,
    nixlRemoteDisconnectError,
)
from peerlane.errors import Error, PeerLost
from peerlane.memory import raw

_POLICY = "PEERLANE_NIXL_POLICY"
_POLICIES = ("strict", "vendor")
REFUSED = f"the vendor lets this pass; {_POLICY}=vendor does too"
_MOST_NAMED = 8
_NEAR = 4  # regions that are looked at one by one
WORD = 1 << 64
_REACHING = frozenset(("UCX",))  # the back-ends that reach other agents
WHOLE = WORD - 1  #: the bytes of a file that was registered with 0


def is_strict() -> bool:
    """Return whether mistakes are refused that the vendor lets pass (facts/nixl 9)."""
    return environment.chosen(_POLICY, _POLICIES) == _POLICIES[0]


class Region:
    """Bytes that an agent has registered."""

    def __init__(
        self, mem: nixl_mem_t, device: int, start: int, size: int, slot: int, number: int, words: Any
    ) -> None:
        #: ``device``, ``start``, ``size``: as they were registered.
        self.mem, self.device, self.start, self.size = mem, device, start, size
        #: ``slot``, ``number``: the index of the registration's word on the agent's board, and its value while the
        #: registration lives.
        #: ``words``: the words of the board.
        self.slot, self.number, self.words = slot, number, words
        #: The back-ends that have it.
        self.backends = _REACHING

    @property
    def is_live(self) -> bool:
        """Whether it is still registered."""
        return bool(self.words[self.slot] == self.number)

    def covers(self, address: int, nbytes: int, device: int) -> bool:
        """Return whether it has all of the bytes."""
        return self.device == device and 0 <= address - self.start <= self.size - nbytes

    def base(self) -> int | None:
        """Return the address of its first byte in this process; None if this process cannot map it."""
        return self.start

    def __str__(self) -> str:
        return f"{self.size:,} bytes at {self.start:#x} of device {self.device} ({self.mem.name})"


_Kind = TypeVar("_Kind", bound=Region)


class OwnRegion(Region):
    """A registration of this process."""

    def __init__(self, *region: Any, backends: frozenset[str]) -> None:
        super().__init__(*region)
        self.backends = backends
        self.site = call_site.position()  #: the line of the program that registered it
        self._memory = OwnMemory(self.start, self.size)

    def part(self, ends: bool) -> Part | None:
        """Return what other processes open it by, None for host memory; ``ends`` as of :class:`Loan`."""
        try:
            return self._memory.offer(ends=ends)
        except Error as error:
            raise failure_of(error, f"{self} cannot be shared with other processes") from error

    def host_address(self, address: int) -> int:
        """Return the host's address of a byte."""
        try:
            return self._memory.host_address(address)
        except Error as error:
            raise failure_of(error, f"{self} cannot be used") from error

    def end(self) -> None:
        """Take it back: no process may use it any more."""
        self._memory.take_back()


class OtherRegion(Region):
    """A registration of another process, from its agent's metadata.

    ``lender``: the agent.
    ``part``: as of :meth:`OwnRegion.part`.
    """

    def __init__(self, *region: Any, lender: Lender, part: Part | None) -> None:
        super().__init__(*region)
        self._lender = lender
        self._memory = None if part is None else BorrowedMemory(lender, self.size, part)

    def base(self) -> int | None:
        if self._memory is None:
            return None
        try:
            return self._memory.address()
        except Error as error:
            raise failure_of(error, f"memory of {self._lender.owner} cannot be opened") from error

    def end(self) -> None:
        """Close its memory."""
        if self._memory is not None:
            self._memory.close()


def failure_of(error: BaseException, what: str) -> Failure:
    """Return the vendor's exception for an error of peerlane."""
    if isinstance(error, PeerLost):
        return nixlRemoteDisconnectError(
            f"{what}: {error}", "remove the agent, and add it again when it is back"
        )
    return nixlBackendError(f"{what}: {error}")


class Regions(Generic[_Kind]):
    """The regions of an agent, by back-end and sorted: the vendor looks at two neighbours alone (facts/nixl 4)."""

    def __init__(self) -> None:
        self._sorted: dict[tuple[str, nixl_mem_t], list[_Kind]] = {}

    def __iter__(self) -> Iterator[_Kind]:
        return iter(dict.fromkeys(itertools.chain.from_iterable(map(tuple, list(self._sorted.values())))))

    def add(self, regions: Iterable[_Kind]) -> None:
        """Add regions to their back-ends."""
        changed: dict[tuple[str, nixl_mem_t], list[_Kind]] = {}
        for region in regions:
            for backend in region.backends:
                changed.setdefault((backend, region.mem), []).append(region)
        for key, new in changed.items():
            known = self._sorted.setdefault(key, [])
            if len(new) == 1:
                insort(known, new[0], key=_sort_key)
            else:
                known += new
                known.sort(key=_sort_key)  # in linear time where both parts are in order

    def remove(self, region: _Kind, backend: str) -> None:
        """Remove a region from a back-end that has it."""
        known = self._sorted[backend, region.mem]
        del known[known.index(region, bisect_left(known, _sort_key(region), key=_sort_key))]
        region.backends -= {backend}

    def of(self, backend: str, mem: nixl_mem_t, key: tuple[int, int, int]) -> Iterator[_Kind]:
        """Return the regions of a back-end with exactly this device, address and size."""
        known = self._sorted.get((backend, mem), [])
        for at in range(bisect_left(known, key, key=_sort_key), len(known)):
            if _sort_key(known[at]) != key:
                return
            yield known[at]

    def forget_ended(self, reused: Container[tuple[nixl_mem_t, tuple[int, int, int]]]) -> None:
        """Forget regions whose registration has ended; under the vendor's policy only those that ``reused`` has.

        An ended region could hide a later registration of the same bytes.
        """
        strict = is_strict()
        for (_, mem), known in self._sorted.items():
            known[:] = [
                each for each in known if each.is_live or not (strict or (mem, _sort_key(each)) in reused)
            ]

    def has(self, backend: str, mem: nixl_mem_t) -> bool:
        """Return whether a back-end has memory of a kind."""
        return bool(self._sorted.get((backend, mem)))

    def find(
        self, backend: str, rows: Sequence[Sequence[int]], mem: nixl_mem_t, whose: str, *, stays: bool = False
    ) -> list[_Kind]:
        """Return for each descriptor the back-end's region that has all of its bytes; nixlNotFoundError if none does.

        As the vendor, go on from the region of the descriptor before, unless the descriptors go back.

        ``rows``: address, bytes and device.
        ``whose``: the agent, for the text.
        ``stays``: whether descriptors that go back may stay in the region of the one before.
        """
        known = self._sorted.get((backend, mem), [])
        ahead = _Ahead(known)
        regions: list[_Kind] = []
        at, before = 0, (0, 0, 0)
        for row in rows:
            address, nbytes, device = row[:3]
            key = device, address, nbytes
            match: int | None
            if stays and regions and _covers(known[at], *row[:3]):
                match = at
            elif not regions or key < before:
                after = bisect_left(known, key, key=_sort_key)
                near = (i for i in (after, after - 1) if 0 <= i < len(known))
                match = next((i for i in near if _covers(known[i], *row[:3])), None)
            else:
                match = ahead.first(at, *row[:3])
            if match is None:
                raise self._nowhere(known, len(regions), row, mem, whose, backend)
            at, before = match, key
            regions.append(known[at])
        return regions

    def _nowhere(
        self, known: Sequence[_Kind], at: int, row: Sequence[int], mem: nixl_mem_t, whose: str, backend: str
    ) -> nixlNotFoundError:
        address, nbytes, device = row[:3]
        shown = [str(each) for each in known[:_MOST_NAMED]]
        more = ", ..." if len(known) > len(shown) else ""
        return nixlNotFoundError(
            f"descriptor {at} ({nbytes:,} bytes at {address:#x} of device {device}, {mem.name}) lies in no "
            f"registered memory of {whose}, which has {', '.join(shown) or 'none'}{more} with {backend!r}",
            "register it, and load the metadata that was made after that",
        )


class _Ahead:
    """Regions in order, of which the first behind a position is asked for that has some bytes."""

    def __init__(self, known: Sequence[Region]) -> None:
        self._known = known
        self._ends: list[tuple[int, int]] | None = None  # device and end of each, if they are in order too

    def first(self, at: int, address: int, nbytes: int, device: int) -> int | None:
        """Return the index of that region, ``at`` or more; None if there is none."""
        known, near = self._known, at + _NEAR
        for i in range(at, min(near, len(known))):
            if _covers(known[i], address, nbytes, device):
                return i
        if self._ends is None:
            ends = [(each.device, each.start + each.size) for each in known]
            self._ends = ends if all(map(operator.le, ends, ends[1:])) else []
        if self._ends and address + nbytes < WORD and known[0].mem is not nixl_mem_t.FILE_SEG:
            # The regions before this one end too early, and those behind it begin even later.
            candidate = bisect_left(self._ends, (device, address + nbytes), near)
            is_match = candidate < len(known) and _covers(known[candidate], address, nbytes, device)
            return candidate if is_match else None
        rest = range(near, len(known))
        return next((i for i in rest if _covers(known[i], address, nbytes, device)), None)


def _covers(region: Region, address: int, nbytes: int, device: int) -> bool:
    if region.covers(address, nbytes, device):
        return True
    wraps = address + nbytes >= WORD and not is_strict()  # the vendor's sum is one of 64 bits
    return wraps and region.covers(address, nbytes - WORD, device)


def _sort_key(region: Region) -> tuple[int, int, int]:
    return region.device, region.start, region.size


def check_live(regions: Iterable[Region], whose: str) -> None:
    """Refuse memory whose registration has ended, unless the policy is the vendor's."""
    for each in regions:
        if not each.is_live and is_strict():
            raise nixlNotAllowedError(
                f"{whose} has deregistered {each}, which the transfer uses", f"register it again ({REFUSED})"
            )


def check_memory(mem: nixl_mem_t, rows: Iterable[Sequence[Any]]) -> None:
    """Refuse rows (address, bytes, device and more) whose bytes are not memory of their kind."""
    strict = is_strict()
    for address, nbytes, device, *_ in rows:
        try:
            if mem is nixl_mem_t.VRAM_SEG:
                _check_device_memory(address, nbytes, device)
            elif nbytes and strict:
                _check_host_memory(address, nbytes)
        except Error as error:
            shown = f"{nbytes:,} bytes at {address:#x}"
            raise nixlBackendError(f"{shown} cannot be registered: {error}") from error


def _check_device_memory(address: int, nbytes: int, device: int) -> None:
    location = raw.locate(address) if address else None
    if location is None or location.kind is not Kind.DEVICE:
        raise nixlBackendError(
            f"{nbytes:,} bytes at {address:#x} are not memory of a device",
            "allocate them on one, or register them as DRAM",
        )
    if device != location.ordinal:
        raise nixlBackendError(
            f"{nbytes:,} bytes at {address:#x} lie on device {location.ordinal}, not {device}; there are "
            f"{len(devices())} devices",
            f"pass {location.ordinal} as the device",
        )
    if not nbytes or not 0 <= address - location.base <= location.size - nbytes:
        raw.buffer(address, nbytes)


def _check_host_memory(address: int, nbytes: int) -> None:
    if address == 0:
        raise nixlBackendError(
            f"{nbytes:,} bytes at {address:#x}: the address is NULL",
            f"pass the address of memory ({REFUSED})",
        )
    spare = ctypes.create_string_buffer(1)
    for at in (address, address + nbytes - 1):
        raw.copy(ctypes.addressof(spare), at, 1)
