"""Registered memory that other processes of the machine use: its loan, its borrower, and both in bytes.

Registrations in one allocation share its loan, so thousands of them cost one handle, one lease and one mapping.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from peerlane import Buffer, Kind
from peerlane.backend.facts import Location
from peerlane.backend.ranks import Lent
from peerlane.errors import BadHandle, Fault, Refused
from peerlane.memory import raw
from peerlane.ranks.lending import Loan, Terms, borrow
from peerlane.sharing.handle import EVERYONE

if TYPE_CHECKING:
    from peerlane.backend.ranks import Bank

_OPEN_SECONDS = 5.0
_HANDLE = 64
_TERMS = struct.Struct("<64sIQ")
_COUNT, _KIND = struct.Struct("<I"), struct.Struct("<B64s")


#: What other processes open device memory by, as messages have it: a handle, and the terms of its lease.
Offer: TypeAlias = bytes


class Part(NamedTuple):
    """Registered device memory: the offer of the memory that it lies in, and where it begins there."""

    offer: Offer
    offset: int


class _LentMemory(Loan):
    """Device memory that is lent for the registrations in it; the loan ends with the last of them."""

    def __init__(self, start: int, size: int, ends: bool) -> None:
        super().__init__(raw.buffer(start, size), ends=ends)
        self.start, self.registrations = start, 0  #: ``registrations``: how many there are
        self._opened_by: Offer | None = None

    def opened_by(self) -> Offer:
        """Return what other processes open it by; an ``Error`` if it cannot be shared."""
        if self._opened_by is None:
            handle, terms = self.offer(EVERYONE)
            self._opened_by = _KIND.pack(terms is not None, bytes(handle))
            if terms is not None:
                self._opened_by += _TERMS.pack(terms.bank.encode(), terms.line, terms.number)
        return self._opened_by


_lock = threading.Lock()
_lent: dict[tuple[int, bool], _LentMemory] = {}  # whole allocations, by number and by whether their loans end
os.register_at_fork(after_in_child=_lent.clear)


class OwnMemory:
    """Registered memory of this process."""

    def __init__(self, start: int, size: int) -> None:
        self._start, self._size = start, size
        self._lent: _LentMemory | None = None
        self._key: tuple[int, bool] | None = None  # of memory that other registrations use, too
        self._view: memoryview | None = None

    @property
    def is_on_device(self) -> bool:
        """Whether peerlane has its bytes on a virtual device."""
        return bool(self._size) and raw.locate(self._start).kind is Kind.DEVICE

    def offer(self, *, ends: bool = True) -> Part | None:
        """Return what other processes open device memory by, None for host memory; ``ends`` as of :class:`Loan`."""
        whole = raw.locate(self._start) if self._size else None  # refuses memory that was freed
        lent = self._lent
        if lent is None:
            if whole is None or whole.kind is not Kind.DEVICE:
                return None
            lent = self._lent = self._lend(whole, ends)
        return Part(lent.opened_by(), self._start - lent.start)

    def _lend(self, whole: Location, ends: bool) -> _LentMemory:
        if not 0 <= self._start - whole.base <= whole.size - self._size:
            # Several mappings of an address range, or the host's addresses of device memory.
            return _LentMemory(self._start, self._size, ends)
        key = whole.allocation, ends
        with _lock:
            lent = _lent.get(key)
            if lent is None or lent.start != whole.base:
                lent = _lent[key] = _LentMemory(whole.base, whole.size, ends)
            lent.registrations += 1
            self._key = key
            return lent

    def host_address(self, address: int) -> int:
        """Return the host's address of a byte: the system does not know the device addresses of peerlane."""
        if not self.is_on_device:
            return address
        if self._view is None:
            self._view = raw.view(self._start, self._size)
        return ctypes.addressof(ctypes.c_char.from_buffer(self._view)) + address - self._start

    def take_back(self) -> None:
        """End the loan, unless other registrations use it: no process may use the memory any more."""
        self._view = None
        lent, key, self._lent, self._key = self._lent, self._key, None, None
        if lent is None:
            return
        if key is not None:
            with _lock:
                lent.registrations -= 1
                if lent.registrations:
                    return
                if _lent.get(key) is lent:
                    del _lent[key]
        lent.take_back()


class Lender:
    """Another process that lends device memory: what this process has opened of it.

    ``dialect``, ``owner``: for texts: "nixl", "agent 'other'".
    """

    def __init__(self, dialect: str, owner: str) -> None:
        self.dialect, self.owner = dialect, owner
        self._lock = threading.Lock()
        self._opened: dict[Offer, tuple[Buffer, int]] = {}  # with how many use it
        self._banks: dict[str, Bank] = {}

    def open(self, offer: Offer) -> Buffer:
        """Return the memory of an offer, for one use more; an ``Error`` if it cannot be opened."""
        with self._lock:
            buffer, uses = self._opened.get(offer) or (self._open(offer), 0)
            self._opened[offer] = buffer, uses + 1
            return buffer

    def _open(self, offer: Offer) -> Buffer:
        _, handle = _KIND.unpack_from(offer)
        terms = _terms_of(offer)
        buffer = Buffer.open(handle, timeout=_OPEN_SECONDS)
        if terms is not None:
            lent = Lent(self.owner, "its registered memory", "it was deregistered")
            borrow(self.dialect, buffer, terms, _OPEN_SECONDS, name=lent, banks=self._banks)
        return buffer

    def close(self, offer: Offer) -> None:
        """End a use of :meth:`open`; unmap the memory with the last one."""
        with self._lock:
            buffer, uses = self._opened.pop(offer)
            if uses > 1:
                self._opened[offer] = buffer, uses - 1
                return
        buffer.close()


class BorrowedMemory:
    """Registered device memory of another process, which is opened at its first use.

    ``size``: as the owner registered it.
    """

    def __init__(self, lender: Lender, size: int, part: Part) -> None:
        self._lender, self._size, self._part = lender, size, part
        self._buffer: Buffer | None = None

    def address(self) -> int:
        """Return where its first byte is mapped; an ``Error`` if it cannot be opened, or is not so large."""
        if self._buffer is None:
            buffer = self._lender.open(self._part.offer)
            if self._part.offset + self._size > buffer.size:
                size = buffer.size
                self._lender.close(self._part.offer)
                raise self._false_claim(size)
            self._buffer = buffer
        return self._buffer.last_address + self._part.offset

    def _false_claim(self, size: int) -> BadHandle:
        lender, offset = self._lender, self._part.offset
        return BadHandle(
            f"{lender.dialect}: {lender.owner} offers {self._size:,} bytes from {offset:,} on of {size:,} bytes",
            fault=Fault.FALSE_CLAIM,
            call=lender.dialect,
            detail=Refused(reason="false_claim", who=lender.owner, size=size, valid=offset + self._size),
        )

    def close(self) -> None:
        """End the use; idempotent."""
        if self._buffer is not None:
            self._buffer = None
            self._lender.close(self._part.offer)


class Offers:
    """The offers of a message, each once: its rows have their numbers."""

    def __init__(self) -> None:
        self._numbers: dict[Offer, int] = {}

    def number(self, part: Part | None) -> tuple[int, int]:
        """Return the number of a part's offer, and where it begins there; 0 and 0 of host memory."""
        return (
            (0, 0)
            if part is None
            else (self._numbers.setdefault(part.offer, len(self._numbers) + 1), part.offset)
        )

    def encode(self) -> bytes:
        """Return the bytes of all offers that have numbers."""
        return b"".join([_COUNT.pack(len(self._numbers)), *self._numbers])


def decode_offers(content: memoryview, at: int) -> tuple[list[Offer], int]:
    """Return the offers at a position, and the position behind them; ValueError or struct.error if they are none."""
    (count,) = _COUNT.unpack_from(content, at)
    at += _COUNT.size
    offers = []
    for _ in range(count):
        kind, _ = _KIND.unpack_from(content, at)
        if kind > 1:
            raise ValueError("an offer is impossible")
        end = at + _KIND.size + kind * _TERMS.size
        offer = bytes(content[at:end])
        _terms_of(offer)
        offers.append(offer)
        at = end
    return offers, at


def _terms_of(offer: Offer) -> Terms | None:
    """Return the terms in an offer, None if it has none; ValueError or struct.error if they are impossible."""
    if not offer[0]:
        return None
    bank, line, number = _TERMS.unpack_from(offer, _KIND.size)
    terms = Terms.decode([bank.decode("ascii"), line, number])
    if terms is None:
        raise ValueError("an offer is impossible")
    return terms


def part_of(offers: Sequence[Offer], number: int, offset: int) -> Part | None:
    """Return the part that a row of a message names; ValueError if there is no such offer."""
    if number > len(offers):
        raise ValueError(f"there is no offer {number}")
    return Part(offers[number - 1], offset) if number else None
