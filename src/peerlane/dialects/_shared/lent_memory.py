"""Registered memory that other processes of the machine use: its loan, its borrower, and both in bytes."""

from __future__ import annotations

import ctypes
import struct
from typing import TypeAlias

from peerlane import Buffer, Kind
from peerlane.backend.ranks import Lent
from peerlane.errors import BadHandle, Fault, Refused
from peerlane.memory import raw
from peerlane.ranks.lending import Loan, Terms, borrow
from peerlane.sharing.handle import EVERYONE

Offer: TypeAlias = "tuple[bytes, Terms | None]"  #: a handle, and the terms of its lease

_OPEN_SECONDS = 5.0
_HANDLE = 64
_TERMS = struct.Struct("<64sIQ")


class OwnMemory:
    """Registered memory of this process.

    Parameters
    ----------
    start, size : int
    """

    def __init__(self, start: int, size: int) -> None:
        self._start, self._size = start, size
        self._loan: Loan | None = None
        self._view: memoryview | None = None

    @property
    def is_on_device(self) -> bool:
        """Whether peerlane has its bytes on a virtual device."""
        return bool(self._size) and raw.locate(self._start).kind is Kind.DEVICE

    def offer(self, *, ends: bool = True) -> Offer | None:
        """Return what other processes open device memory by, None for host memory; ``ends`` as of :class:`Loan`."""
        if not self.is_on_device:
            return None
        if self._loan is None:
            self._loan = Loan(raw.buffer(self._start, self._size), ends=ends)
        handle, terms = self._loan.offer(EVERYONE)
        return bytes(handle), terms

    def host_address(self, address: int) -> int:
        """Return the host's address of a byte: the system does not know the device addresses of peerlane."""
        if not self.is_on_device:
            return address
        if self._view is None:
            self._view = raw.view(self._start, self._size)
        return ctypes.addressof(ctypes.c_char.from_buffer(self._view)) + address - self._start

    def take_back(self) -> None:
        """End the loan: no process may use the memory any more."""
        self._view = None
        if self._loan is not None:
            self._loan.take_back()
            self._loan = None


class BorrowedMemory:
    """Device memory of another process, which is opened at its first use.

    Parameters
    ----------
    dialect, owner : str
        For texts: "nixl", "agent 'other'".
    size : int
        As the owner registered it.
    offer : Offer
    """

    def __init__(self, dialect: str, owner: str, size: int, offer: Offer) -> None:
        self._dialect, self._owner, self._size, self._offer = dialect, owner, size, offer
        self._buffer: Buffer | None = None

    def address(self) -> int:
        """Return where its first byte is mapped; an ``Error`` if it cannot be opened, or has another size."""
        if self._buffer is None:
            self._buffer = self._open(*self._offer)
        return self._buffer.last_address

    def _open(self, handle: bytes, terms: Terms | None) -> Buffer:
        buffer = Buffer.open(handle, timeout=_OPEN_SECONDS)
        if buffer.size != self._size:
            size = buffer.size
            buffer.close()
            raise BadHandle(
                f"{self._dialect}: {self._owner} offers {size:,} bytes as {self._size:,}",
                fault=Fault.FALSE_CLAIM,
                call=self._dialect,
                detail=Refused(reason="false_claim", who=self._owner, size=size, valid=self._size),
            )
        if terms is not None:
            lent = Lent(self._owner, "its registered memory", "it was deregistered")
            borrow(self._dialect, buffer, terms, _OPEN_SECONDS, name=lent)
        return buffer

    def close(self) -> None:
        """Unmap it; idempotent."""
        if self._buffer is not None:
            self._buffer.close()
            self._buffer = None


def encode_offer(offer: Offer | None) -> tuple[int, bytes]:
    """Return the kind of an offer, which a dialect's row holds, and the bytes that follow the row."""
    if offer is None:
        return 0, b""
    handle, terms = offer
    if terms is None:
        return 1, handle.ljust(_HANDLE, b"\0")
    return 2, handle.ljust(_HANDLE, b"\0") + _TERMS.pack(terms.bank.encode(), terms.line, terms.number)


def decode_offer(kind: int, content: memoryview, at: int) -> tuple[Offer | None, int]:
    """Return the offer at a position, and the position behind it; ValueError or struct.error if it is none."""
    if kind == 0:
        return None, at
    if kind > 2:
        raise ValueError(f"there is no offer of kind {kind}")
    handle, terms = bytes(content[at : at + _HANDLE]), None
    at += _HANDLE
    if kind == 2:
        bank, line, number = _TERMS.unpack_from(content, at)
        at += _TERMS.size
        terms = Terms.decode([bank.decode("ascii"), line, number])
    if len(handle) != _HANDLE or (kind == 2 and terms is None):
        raise ValueError("a handle is impossible")
    return (handle, terms), at
