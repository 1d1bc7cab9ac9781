"""Segments: what an engine has registered, and its description in bytes for other engines."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from peerlane.diagnostics import call_site
from peerlane.diagnostics.log import event_log
from peerlane.dialects._shared.boards import SLOTS, Board, Origin
from peerlane.dialects._shared.boards import OtherBoard as _OtherBoard
from peerlane.dialects._shared.boards import OwnBoard as _OwnBoard
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects._shared.lent_memory import Offers, OwnMemory, Part, decode_offers, part_of
from peerlane.dialects._shared.registrations import Registration, Registrations
from peerlane.dialects.mooncake._failures import INVALID_ARGUMENT, NOT_REGISTERED, OVERLAPPED, refused
from peerlane.dialects.mooncake._memory import allocation_of
from peerlane.errors import Error
from peerlane.support.machine_identity import own_machine

_HEAD = struct.Struct("<16sIQIHHI")
_ROW = struct.Struct("<QQIQBIQ")
_WORD = 1 << 64


class _Kind(Board):
    MAGIC, OWNER = b"plmoon01", "engine"
    refusal = refused


class OwnBoard(_Kind, _OwnBoard):
    """The board of an engine of this process."""


class OtherBoard(_Kind, _OtherBoard):
    """The board of another process's engine."""


class Row(NamedTuple):
    """A registration as other engines see it; ``is_shared``: whether they can open device memory."""

    start: int
    size: int
    slot: int
    number: int
    is_shared: bool
    part: Part | None


class Description(NamedTuple):
    """A segment as other engines see it."""

    machine: str
    origin: Origin
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Registered(Registration):
    """Registered memory: its word on the board, what others need of it, and the line that registered it.

    ``line`` is that line in the event log; ``allocation``: the number of the allocation, None of pageable memory.
    """

    slot: int
    number: int
    memory: OwnMemory
    site: call_site.Position | None
    line: int
    allocation: int | None

    @property
    def is_live(self) -> bool:
        """Whether the allocation that was registered has not ended."""
        return allocation_of(self.start) == self.allocation

    def __str__(self) -> str:
        return f"{self.size:,} bytes at {self.start:#x}"


def registration_key(ident: bytes, slot: int, number: int) -> event_log.Key:
    """Return the key under which the event log orders a registration before its uses."""
    return event_log.key_of("mooncake registration", ident, slot, number)


class Segment:
    """The registered memory of an engine."""

    def __init__(self) -> None:
        self.board = OwnBoard()
        self._lock = threading.RLock()
        self._regions: Registrations[Registered] = Registrations()

    def __iter__(self) -> Iterator[Registered]:
        with self._lock:
            return iter(
                [each for each in map(self._regions.around, self._regions.starts) if each is not None]
            )

    def add(self, pieces: Sequence[tuple[int, int]]) -> None:
        """Register memory; after a refusal nothing is registered."""
        with self._lock:
            self._check(pieces)
            self.board.check_room(len(pieces))
            for start, size in pieces:
                slot, number = self.board.begin()
                memory, line, site = OwnMemory(start, size), event_log.line(), call_site.position()
                allocation = allocation_of(start)
                self._regions.add(Registered(start, size, slot, number, memory, site, line, allocation))
                if event_log.active:
                    event_log.post(registration_key(self.board.ident, slot, number))
        if event_log.active and pieces:
            event_log.lends_host_memory()

    def _check(self, pieces: Sequence[tuple[int, int]]) -> None:
        ordered = sorted(pieces)
        for at, (start, size) in enumerate(ordered):
            if not size:
                raise refused(
                    f"0 bytes at {start:#x} are no memory", "register 1 byte or more", INVALID_ARGUMENT
                )
            if start + size > _WORD:
                raise refused(
                    f"{size:,} bytes at {start:#x} end beyond the last address",
                    "pass the bytes of one allocation",
                )
            if at and sum(ordered[at - 1]) > start:
                raise _overlapping(start, size, *ordered[at - 1])
        for start, size in ordered:
            other = self._regions.overlapping(start, size)
            if other is not None:
                raise _overlapping(start, size, other.start, other.size)

    def remove(self, starts: Sequence[int]) -> None:
        """Unregister memory; what is not registered is refused, when the rest has ended."""
        unknown = []
        for start in starts:
            with self._lock:
                region = self._regions.remove(start)
                if region is not None:
                    self.board.end(region.slot)
            if region is None:
                unknown.append(f"{start:#x}")
            else:
                region.memory.take_back()
        if unknown:
            raise refused(
                f"no registered memory begins at {', '.join(unknown)}; {self.shown}",
                "pass addresses that were registered, each once",
                NOT_REGISTERED,
            )

    def find(self, address: int, size: int) -> Registered | None:
        """Return the registration that has all of these bytes; a ``Refusal`` if its allocation has ended."""
        with self._lock:
            region = self._regions.around(address, size)
        if region is None or region.is_live:
            return region
        raise refused(
            f"{size:,} bytes at {address:#x} lie in registered memory ({region}) whose allocation has ended",
            "unregister memory before it is freed, and register the new allocation",
        )

    @property
    def shown(self) -> str:
        """What is registered, as text."""
        return shown(list(self))

    def describe(self) -> bytes:
        """Return the bytes by which other engines reach the memory."""
        rows = [_row_of(each) for each in self if each.is_live]
        return encode(Description(own_machine(), self.board.origin, rows))

    def close(self) -> None:
        """End all registrations."""
        self.remove([each.start for each in self])
        self.board.close()


def _overlapping(start: int, size: int, other_start: int, other_size: int) -> Refusal:
    return refused(
        f"{size:,} bytes at {start:#x} overlap {other_size:,} bytes at {other_start:#x}",
        "register each byte once, or unregister the other memory first",
        OVERLAPPED,
    )


def shown(regions: Sequence[Registration]) -> str:
    """Return registered memory as text."""
    some = [f"{each.size:,} bytes at {each.start:#x}" for each in regions[:8]]
    more = ", ..." if len(regions) > len(some) else ""
    return f"registered are {', '.join(some) or 'none'}{more}"


def _row_of(region: Registered) -> Row:
    try:
        part = region.memory.offer()
    except Error:  # the engine that asks for the bytes learns it
        return Row(region.start, region.size, region.slot, region.number, False, None)
    return Row(region.start, region.size, region.slot, region.number, True, part)


def encode(description: Description) -> bytes:
    """Return the bytes of a description."""
    machine = description.machine.encode()
    head = _HEAD.pack(*description.origin, len(machine), 0, len(description.rows))
    offers = Offers()
    rows = [_ROW.pack(*row[:5], *offers.number(row.part)) for row in description.rows]
    return b"".join([head, machine, offers.encode(), *rows])


def decode(content: bytes) -> Description:
    """Return the description in bytes; ValueError if it is none."""
    try:
        ident, pid, started, fd, named, spare, count = _HEAD.unpack_from(content)
        at = _HEAD.size + named
        machine = content[_HEAD.size : at].decode("ascii")
        if len(machine) != named or spare or not 0 < pid < 1 << 31 or fd >= 1 << 31:
            raise ValueError("the process is impossible")
        offers, at = decode_offers(memoryview(content), at)
        if len(content) - at != count * _ROW.size:
            raise ValueError(f"{count:,} registrations are not {len(content) - at:,} bytes")
        rows = []
        for start, size, slot, number, is_shared, offer, offset in _ROW.iter_unpack(content[at:]):
            if slot >= SLOTS or not number or not size or start + size > _WORD or is_shared > 1:
                raise ValueError("a registration is impossible")
            rows.append(Row(start, size, slot, number, bool(is_shared), part_of(offers, offer, offset)))
    except struct.error:
        raise ValueError(f"some of the {len(content):,} bytes are missing") from None
    return Description(machine, Origin(ident, pid, started, fd), rows)
