"""Registered memory: of an agent of this process, and as another agent's metadata tells it."""

from __future__ import annotations

import ctypes
import itertools
from bisect import bisect_left, insort
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from peerlane import Buffer, Kind, devices
from peerlane.backend.ranks import Lent
from peerlane.diagnostics import call_site
from peerlane.dialects.nixl._policy import REFUSED, is_strict
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
from peerlane.ranks.lending import Loan, Terms, borrow
from peerlane.sharing.handle import EVERYONE

_MOST_NAMED = 8
_WORD = 1 << 64
_OPEN_SECONDS = 5.0


class Region:
    """Bytes that an agent has registered.

    Attributes
    ----------
    mem : nixl_mem_t
    device, start, size : int
        As they were registered.
    line, number : int
        The registration's word on the agent's board, and the value that it has while the registration lives.
    words : memoryview
        Those of the board.
    """

    def __init__(
        self,
        mem: nixl_mem_t,
        device: int,
        start: int,
        size: int,
        line: int,
        number: int,
        words: Any,
    ) -> None:
        self.mem, self.device, self.start, self.size = mem, device, start, size
        self.line, self.number, self.words = line, number, words

    @property
    def is_live(self) -> bool:
        """Whether it is registered still."""
        return bool(self.words[self.line] == self.number)

    def covers(self, address: int, nbytes: int, device: int) -> bool:
        """Tell whether bytes lie in it as a whole."""
        return self.device == device and 0 <= address - self.start <= self.size - nbytes

    def base(self) -> int | None:
        """Return the address of its first byte in this process; None if this process cannot map it."""
        return self.start

    def __str__(self) -> str:
        return f"{self.size:,} bytes at {self.start:#x} of device {self.device} ({self.mem.name})"


_Kind = TypeVar("_Kind", bound=Region)


class OwnRegion(Region):
    """A registration of this process.

    Attributes
    ----------
    backends : set of str
        Where it is registered.
    made : Place
        The line that registered it.
    """

    def __init__(self, *region: Any, backends: Iterable[str]) -> None:
        super().__init__(*region)
        self.backends = set(backends)
        self.made = call_site.place()
        self._loan: Loan | None = None
        self._seen: memoryview | None = None

    @property
    def is_on_device(self) -> bool:
        """Whether peerlane has its bytes on a virtual device."""
        return bool(self.size) and raw.locate(self.start).kind is Kind.DEVICE

    def offered(self) -> tuple[bytes, Terms | None] | None:
        """Return how other processes open it: a handle, and the terms of its lease; None for host memory."""
        try:
            if not self.is_on_device:
                return None
            if self._loan is None:
                self._loan = Loan(raw.buffer(self.start, self.size), ends=is_strict())
            handle, terms = self._loan.offer(EVERYONE)
        except Error as error:
            raise failure_of(error, f"{self} cannot be shared with other processes") from error
        return bytes(handle), terms

    def host_address(self, address: int) -> int:
        """Return where the system finds a byte of it: device addresses are peerlane's own."""
        try:
            if not self.is_on_device:
                return address
            if self._seen is None:
                self._seen = raw.view(self.start, self.size)
        except Error as error:
            raise failure_of(error, f"{self} cannot be used") from error
        return ctypes.addressof(ctypes.c_char.from_buffer(self._seen)) + address - self.start

    def end(self) -> None:
        """Let no process use it any more."""
        self._seen = None
        if self._loan is not None:
            self._loan.take_back()
            self._loan = None


class OtherRegion(Region):
    """A registration of another process, as its agent's metadata tells it.

    Attributes
    ----------
    agent : str
    offer : tuple, optional
        As of :meth:`OwnRegion.offered`.
    """

    def __init__(self, *region: Any, agent: str, offer: tuple[bytes, Terms | None] | None) -> None:
        super().__init__(*region)
        self.agent, self.offer = agent, offer
        self._buffer: Buffer | None = None

    def base(self) -> int | None:
        if self.offer is None:
            return None
        if self._buffer is None:
            self._buffer = self._open(*self.offer)
        return self._buffer.last_address

    def _open(self, handle: bytes, terms: Terms | None) -> Buffer:
        try:
            found = Buffer.open(handle, timeout=_OPEN_SECONDS)
            if found.size != self.size:
                found.close()
                raise nixlBackendError(
                    f"agent {self.agent!r} offers {found.size:,} bytes as {self}", "load its metadata"
                )
            if terms is not None:
                lent = Lent(f"agent {self.agent!r}", "its registered memory", "it was deregistered")
                borrow("nixl", found, terms, _OPEN_SECONDS, name=lent)
        except Error as error:
            raise failure_of(error, f"memory of agent {self.agent!r} cannot be opened") from error
        return found

    def end(self) -> None:
        """Let go of it."""
        if self._buffer is not None:
            self._buffer.close()
            self._buffer = None


def failure_of(error: BaseException, what: str) -> Failure:
    """Return the vendor's exception for an error of peerlane."""
    if isinstance(error, PeerLost):
        return nixlRemoteDisconnectError(
            f"{what}: {error}", "remove the agent, and add it again when it is back"
        )
    return nixlBackendError(f"{what}: {error}")


class Regions(Generic[_Kind]):
    """The regions of an agent, of which the vendor looks at two for each descriptor (facts/nixl 4)."""

    def __init__(self) -> None:
        self._sorted: dict[nixl_mem_t, list[_Kind]] = {mem: [] for mem in nixl_mem_t}

    def __iter__(self) -> Iterator[_Kind]:
        return itertools.chain.from_iterable(map(tuple, self._sorted.values()))

    def add(self, region: _Kind) -> None:
        """Enter one."""
        insort(self._sorted[region.mem], region, key=_place)

    def remove(self, region: _Kind) -> None:
        """Take one out."""
        known = self._sorted[region.mem]
        del known[known.index(region, bisect_left(known, _place(region), key=_place))]

    def of(self, mem: nixl_mem_t, place: tuple[int, int, int]) -> Iterator[_Kind]:
        """Return those that were registered exactly so: device, address and bytes."""
        known = self._sorted[mem]
        for at in range(bisect_left(known, place, key=_place), len(known)):
            if _place(known[at]) != place:
                return
            yield known[at]

    def forget_ended(self, places: Container[tuple[nixl_mem_t, tuple[int, int, int]]]) -> None:
        """Forget those whose registration has ended; with the vendor's policy only those at these places.

        Else one of them could hide a later registration of the same bytes.
        """
        strict = is_strict()
        for mem, known in self._sorted.items():
            known[:] = [
                each for each in known if each.is_live or not (strict or (mem, _place(each)) in places)
            ]

    def find(self, row: Sequence[int], mem: nixl_mem_t, whose: str, at: int) -> _Kind:
        """Return the region that has all bytes of a descriptor; nixlNotFoundError if none does.

        Parameters
        ----------
        row : sequence of int
            Address, bytes and device.
        mem : nixl_mem_t
        whose : str
            The agent, for the text.
        at : int
            Which descriptor it is, for the text.
        """
        address, nbytes, device = row[:3]
        known = self._sorted[mem]
        after = bisect_left(known, (device, address, nbytes), key=_place)
        looked_at = known[after : after + 1] + known[max(after - 1, 0) : after]
        for each in looked_at:
            if each.covers(address, nbytes, device):
                return each
        if address + nbytes >= _WORD and not is_strict():  # the vendor's sum is one of 64 bits
            for each in looked_at:
                if each.covers(address, nbytes - _WORD, device):
                    return each
        shown = [str(each) for each in self][:_MOST_NAMED]
        more = ", ..." if len(known) > len(shown) else ""
        raise nixlNotFoundError(
            f"descriptor {at} ({nbytes:,} bytes at {address:#x} of device {device}, {mem.name}) lies in no "
            f"registered memory of {whose}, which has {', '.join(shown) or 'none'}{more}",
            "register it, and load the metadata that was made after that",
        )


def _place(region: Region) -> tuple[int, int, int]:
    return region.device, region.start, region.size


def check_live(regions: Iterable[Region], whose: str) -> None:
    """Refuse memory whose registration has ended, unless the policy is the vendor's."""
    for each in regions:
        if not each.is_live and is_strict():
            raise nixlNotAllowedError(
                f"{whose} has deregistered {each}, which the transfer uses", f"register it again ({REFUSED})"
            )


def check_memory(mem: nixl_mem_t, row: Sequence[int]) -> None:
    """Refuse to register what is not memory of its kind."""
    address, nbytes, device = row[:3]
    said, strict = f"{nbytes:,} bytes at {address:#x}", is_strict()
    try:
        place = raw.locate(address) if address else None
        if mem is nixl_mem_t.VRAM_SEG:
            if place is None or place.kind is not Kind.DEVICE:
                raise nixlBackendError(
                    f"{said} are not memory of a device", "allocate them on one, or register them as DRAM"
                )
            if device != place.ordinal:
                raise nixlBackendError(
                    f"{said} lie on device {place.ordinal}, not {device}; there are {len(devices())} devices",
                    f"pass {place.ordinal} as the device",
                )
            raw.buffer(address, nbytes)
        elif nbytes and strict:
            if address == 0:
                raise nixlBackendError(
                    f"{said}: the address is NULL", f"pass the address of memory ({REFUSED})"
                )
            spare = ctypes.create_string_buffer(1)
            for at in (address, address + nbytes - 1):
                raw.copy(ctypes.addressof(spare), at, 1)
    except Error as error:
        raise nixlBackendError(f"{said} cannot be registered: {error}") from error
