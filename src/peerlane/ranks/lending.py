"""Memory that is lent to other ranks: after its lease has ended, their uses are refused.

A lease is a word that owner and borrowers share.  It ends when the memory is freed, by whatever call, or when the
owner takes the memory back.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from peerlane.backend.ranks import Lent
from peerlane.errors import BadHandle, Fault, Refused
from peerlane.memory.buffer import Buffer
from peerlane.node.device import Device, before_leaving
from peerlane.ranks.bank import open_bank
from peerlane.sharing.handle import EVERYONE, Handle

if TYPE_CHECKING:
    from peerlane.backend.ranks import Bank, Lease
    from peerlane.sharing.handle import Allow

_LINES = 1024  # lines of a bank
_MOST_NUMBERS = 1 << 60
LONGEST_HANDLE = 64  #: characters of the text of a handle
WINDOW = "window"  #: the tag of a rank's window


class Terms(NamedTuple):
    """Where borrowers find a lease: a bank's handle, the line, and the lease's number there."""

    bank: str
    line: int
    number: int

    def encode(self) -> list[Any]:
        return [self.bank, self.line, self.number]

    @classmethod
    def decode(cls, fields: object) -> Terms | None:
        """Return the terms in a message, None if they are impossible."""
        match fields:
            case [str(bank), int(line), int(number)] if (
                not isinstance(line, bool)
                and not isinstance(number, bool)
                and bank.isascii()
                and len(bank) <= LONGEST_HANDLE
                and 0 <= line < _LINES
                and 0 < number < _MOST_NUMBERS
            ):
                return cls(bank, line, number)
        return None


class _Words:
    """A bank whose lines are words of leases."""

    def __init__(self, device: Device, allow: Allow) -> None:
        self._ranks = device.backend.ranks
        self._bank = self._ranks.create_bank(_LINES)
        # The line that was free longest is used next: borrowers can still read why the older lease ended.
        self.free = deque(range(_LINES))
        self._numbers = itertools.count(1)
        self.handle = device.backend.ranks.offer_bank(self, device, self._bank, _LINES, allow)
        self._text = bytes(self.handle).decode()

    def lease(self) -> tuple[Lease, Terms]:
        line, number = self.free.popleft(), next(self._numbers)
        lease = self._ranks.lease_in(self._bank, line, number)
        lease.begin()
        return lease, Terms(self._text, line, number)


#: Seconds in which peers must deliver what they hold back; a process that rests delivers after 1 s.
_DELIVERY_SECONDS = 3.0

_lock = threading.Lock()
_banks: dict[bool, list[_Words]] = {}  # by whether all processes of the user may open them


def _forget() -> None:
    with _lock:
        banks = [bank for some in _banks.values() for bank in some]
        _banks.clear()
    for bank in banks:
        bank.handle.close()


before_leaving.append(_forget)


def _words(device: Device, everyone: bool) -> _Words:
    with _lock:
        for bank in _banks.setdefault(everyone, []):
            if bank.free:
                return bank
        words = _Words(device, EVERYONE if everyone else ())
        _banks[everyone].append(words)
        return words


class Loan:
    """Memory of this process that other ranks may use until it is freed or taken back.

    ``buffer``: device memory.
    ``ends``: whether uses after the end are refused; else they see the bytes while the borrower holds the memory.
    ``is_fixed``: whether it is only freed, never taken back; borrowers of this process then use the buffer itself,
        which is faster.
    """

    def __init__(self, buffer: Buffer, *, ends: bool = True, is_fixed: bool = False) -> None:
        self.buffer, self._ends, self._is_fixed = buffer, ends, is_fixed
        self._handle: Handle | None = None
        self._terms: Terms | None = None
        self._words: _Words | None = None
        self._lease: Lease | None = None  # the other processes'
        self._part: tuple[Buffer, Lease] | None = None

    def for_own_process(self, name: Lent) -> Buffer:
        """Return the memory for a borrower in this process; ``name`` describes it in texts."""
        return self.buffer if self._is_fixed else self.part(name)

    def part(self, name: Lent) -> Buffer:
        """Return the memory for a use on behalf of a borrower in this process; ``name`` describes it in texts."""
        if not self._ends:
            return self.buffer
        if self._part is None:
            part, lease = self.buffer[:], _device(self.buffer).backend.ranks.lease()
            lease.begin()
            lease.end_with(self.buffer)
            lease.lend(part, False)
            _name(lease, part, name)
            self._part = part, lease
        return self._part[0]

    def offer(self, allow: Allow) -> tuple[Handle, Terms | None]:
        """Return the handle and the terms, and allow these processes besides those that were allowed before."""
        if self._handle is None:
            handle = self.buffer.export(allow=EVERYONE if allow == EVERYONE else ())
            if self._ends:
                try:
                    self._begin(allow == EVERYONE)
                except BaseException:
                    handle.close()
                    raise
            self._handle = handle
        if not isinstance(allow, str):
            for pid in allow:
                self._handle.allow.add(pid)
                if self._words is not None:
                    self._words.handle.allow.add(pid)
        return self._handle, self._terms

    def _begin(self, everyone: bool) -> None:
        words = _words(_device(self.buffer), everyone)
        lease, terms = words.lease()
        lease.end_with(self.buffer)
        self._lease, self._words, self._terms = lease, words, terms

    def __del__(self) -> None:
        if self._words is not None and self._terms is not None:
            self._words.free.append(self._terms.line)

    def take_back(self) -> None:
        """End the loan: refuse all further uses, when what streams have written has arrived; idempotent."""
        if self._part is not None and self._lease is not None and not self._lease.has_ended:
            part = self._part[0]
            if _device(part).backend.ranks.lateness == "seeded":
                _device(part).backend.ranks.await_all_to(part, _DELIVERY_SECONDS)
        if self._lease is not None:
            self._lease.take_back(self.buffer)
        if self._part is not None:
            part, lease = self._part
            _device(part).backend.ranks.deliver_to(part)
            lease.take_back(self.buffer)
            if _device(part).backend.ranks.lateness == "lazy":  # what another machine's rank wrote before
                _device(part).backend.ranks.far_deliver()
        self.withdraw()

    def withdraw(self) -> None:
        """Lend it to no more processes; present borrowers keep it."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.close()


#: Buffers that peers may reach, by tag.
Memories: TypeAlias = dict[str, Loan]


def lent_by(rank: int, tag: str) -> Lent:
    """Return the description of a rank's memory for texts."""
    what = "the window" if tag == WINDOW else f"the memory {tag!r}"
    return Lent(f"rank {rank}", what, "it was deregistered, or the group was closed")


def borrow(
    call: str,
    buffer: Buffer,
    terms: Terms,
    seconds: float,
    *,
    name: Lent,
    banks: dict[str, Bank] | None = None,
) -> None:
    """Bind another process's memory, which was just opened, to its owner's lease.

    ``buffer``: closed if this fails.
    ``seconds``: the most seconds to wait for the owner's answer.
    ``name``: the description of the memory for texts.
    ``banks``: the opened banks, by the texts of their handles.
    """
    known = {} if banks is None else banks
    device = _device(buffer)

    def check(lines: int) -> None:
        if lines != _LINES:
            raise BadHandle(
                f"{call}: the message of {name.whose} is impossible: its leases have {lines:,} lines, not {_LINES:,}",
                fault=Fault.FALSE_CLAIM,
                call=call,
                detail=Refused(reason="false_claim", who=name.whose, lines=lines, valid=_LINES),
            )

    try:
        if terms.bank not in known:
            known[terms.bank] = open_bank(call, device, terms.bank, _LINES, seconds, check)
        lease = device.backend.ranks.lease_in(known[terms.bank], terms.line, terms.number)
        lease.lend(buffer, True)
    except BaseException:
        buffer.close()
        raise
    _name(lease, buffer, name)


def _name(lease: Lease, buffer: Buffer, name: Lent) -> None:
    ranks = _device(buffer).backend.ranks
    ranks.name_lease(lease, name._replace(what=f"{name.what} ({buffer.size:,} bytes)"))
    weakref.finalize(buffer, ranks.forget_lease, lease.id).atexit = False


def _device(buffer: Buffer) -> Device:
    assert isinstance(buffer.device, Device)  # host memory is not lent
    return buffer.device
