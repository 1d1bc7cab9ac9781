"""Peers: the engines of this process, of another one, and of another machine, that an engine transfers with."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from peerlane import Host
from peerlane.diagnostics.log import event_log
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects._shared.lent_memory import BorrowedMemory, Lender, OwnMemory
from peerlane.dialects._shared.moves import MemoryMoves, ProcessCall, ranks
from peerlane.dialects._shared.registrations import Registration, Registrations
from peerlane.dialects.mooncake._failures import refused
from peerlane.dialects.mooncake._memory import check, check_of
from peerlane.dialects.mooncake._segments import (
    Description,
    OtherBoard,
    Row,
    Segment,
    registration_key,
    shown,
)
from peerlane.dialects.mooncake._service import Client, FarCall, Inbox, Notice, Piece, post
from peerlane.support.machine_identity import own_machine

Copies = list[tuple[int, int, int]]


def _unregistered(name: str, piece: Piece, known: str) -> Refusal:
    _, address, size = piece
    return refused(
        f"{size:,} bytes at {address:#x} are not registered memory of {name!r}; {known}",
        "pass bytes inside one registration of that engine",
    )


class LocalPeer:
    """An engine of this process."""

    def __init__(self, name: str, segment: Segment, inbox: Inbox) -> None:
        self.name, self._inbox = name, inbox
        self._segment = weakref.ref(segment)
        self._first = next((each.start for each in segment), 0)

    @property
    def has_ended(self) -> bool:
        """Whether the engine has ended."""
        return self._segment() is None

    def moves(self, is_write: bool, pieces: Sequence[Piece]) -> MemoryMoves:
        """Return the copies of a transfer; refuse memory that is not registered."""
        segment = self._segment()
        if segment is None:
            raise refused(f"engine {self.name!r} has ended", "make it anew")
        copies = []
        for piece in pieces:
            near, far, size = piece
            if segment.find(far, size) is None:
                raise _unregistered(self.name, piece, segment.shown)
            copies.append((far, near, size) if is_write else (near, far, size))
        check(self.name, [(far, size) for _, far, size in pieces], writes=is_write)
        return MemoryMoves(copies)

    def check(self) -> None:
        """Do nothing: it ends with this process."""

    def notify(self, name: str, message: str) -> None:
        """Send a notify."""
        self._inbox.add(Notice(name, message, post()))

    def first_address(self) -> int:
        """Return where its first registration began when it was opened or last asked; 0 without one."""
        return self._first

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class _OtherRegion(Registration):
    """Registered memory of another process; ``memory``: how this process maps it, None if it does not."""

    row: Row
    memory: BorrowedMemory | None


class NearPeer:
    """An engine of another process on this machine: device memory is opened, ordinary memory copied by the system."""

    def __init__(self, client: Client, description: Description) -> None:
        self.name, self._client, self._origin = client.name, client, description.origin
        self._board = OtherBoard(description.origin)
        self._memory = ranks().process_memory(description.origin.pid)
        self._lock = threading.RLock()  # two threads may learn of the same registration
        self._regions: Registrations[_OtherRegion] = Registrations()
        self._first, self._lender = 0, Lender("mooncake", f"engine {self.name!r}")
        self._learn(description.rows)

    @property
    def has_ended(self) -> bool:
        """Whether its process has ended, or another engine listens there."""
        return self._board.is_closed or self._board.has_ended()

    def check(self) -> None:
        """Raise if its process has ended."""
        if self.has_ended:
            raise refused(
                f"engine {self.name!r} (process {self._origin.pid}) has ended",
                "transfer with the engine that takes its place",
            )

    def _learn(self, rows: Sequence[Row]) -> None:
        self._first = rows[0].start if rows else 0
        known = {row.start: row for row in rows}
        for start in list(self._regions.starts):
            region = self._regions.around(start)
            if region is not None and region.row != known.get(start):
                self._regions.remove(start)
                if region.memory is not None:
                    region.memory.close()
        for row in rows:
            if self._regions.begins(row.start):
                continue
            memory = None if row.part is None else BorrowedMemory(self._lender, row.size, row.part)
            self._regions.add(_OtherRegion(row.start, row.size, row, memory))
            if event_log.active:
                event_log.take(registration_key(self._origin.ident, row.slot, row.number), 1)

    def _region(self, piece: Piece, *, may_ask: bool = True) -> _OtherRegion:
        _, address, size = piece
        region = self._regions.around(address, size)
        is_live = region is not None and self._board.words[region.row.slot] == region.row.number
        if region is not None and is_live and region.row.is_shared:
            return region
        if may_ask:  # it may have registered more since
            description = self._client.describe()
            if description.origin != self._origin:
                self.close()
                self.check()
            self._learn(description.rows)
            return self._region(piece, may_ask=False)
        if region is not None and is_live:
            raise refused(
                f"{region.size:,} bytes at {region.start:#x} of {self.name!r} cannot be shared with other processes",
                "delete its views and tensors there, or allocate 2 MiB or more",
            )
        known = [each for each in map(self._regions.around, self._regions.starts) if each is not None]
        raise _unregistered(self.name, piece, shown(known))

    def moves(self, is_write: bool, pieces: Sequence[Piece]) -> MemoryMoves:
        """Return the copies of a transfer; refuse memory that is not registered."""
        with self._lock:
            self.check()
            return self._moves(is_write, pieces)

    def _moves(self, is_write: bool, pieces: Sequence[Piece]) -> MemoryMoves:
        copies: Copies = []
        calls: Copies = []
        viewed, on_device = [], []
        for piece in pieces:
            near, far, size = piece
            region = self._region(piece)
            if region.memory is None:
                own = OwnMemory(near, size)
                calls.append((own.host_address(near), far, size))
                viewed.append(own)
                if own.is_on_device:
                    on_device.append((near, size))
            else:
                at = region.memory.address() + far - region.start
                copies.append((at, near, size) if is_write else (near, at, size))
        if not calls:
            return MemoryMoves(copies)
        pid = self._origin.pid
        check_of(self._memory, self.name, [(far, size) for _, far, size in calls], writes=is_write)
        ended = partial(refused, f"process {pid} of engine {self.name!r} has ended", "use another engine")
        call = ProcessCall(pid, is_write, calls, on_device, ended, refused)
        return MemoryMoves(copies, call, holding=viewed)

    def notify(self, name: str, message: str) -> None:
        """Send a notify."""
        self._client.notify(name, message)

    def first_address(self) -> int:
        """Return where its first registration began when it was opened or last asked; 0 without one."""
        return self._first

    def close(self) -> None:
        """Close its memory and its board."""
        with self._lock:
            self._learn(())
            self._board.close()
        self._client.close()


class FarPeer:
    """An engine of another machine, which copies its memory itself.

    ``seconds``: the most to wait for an answer.
    """

    has_ended = False  # a request learns it

    def __init__(self, client: Client, description: Description, seconds: float) -> None:
        self.name, self._client, self._seconds = client.name, client, seconds
        self._first = description.rows[0].start if description.rows else 0

    def check(self) -> None:
        """Do nothing: each request was answered."""

    def moves(self, is_write: bool, pieces: Sequence[Piece]) -> MemoryMoves:
        """Return the copies of a transfer; refuse memory that is not registered."""
        if not pieces:
            return MemoryMoves(())
        self._client.look(pieces, is_write)
        staging = Host().allocate(sum(size for *_, size in pieces))
        copies: Copies = []
        parts = []
        content, at = memoryview(staging), 0
        for near, far, size in pieces:
            staged = staging.address + at
            copies.append((staged, near, size) if is_write else (near, staged, size))
            parts.append((content[at : at + size], far))
            at += size
        call = FarCall(self._client, is_write, parts, self._seconds)
        before, after = (copies, []) if is_write else ([], copies)
        return MemoryMoves(before, call, after, holding=[staging])

    def notify(self, name: str, message: str) -> None:
        """Send a notify."""
        self._client.notify(name, message)

    def first_address(self) -> int:
        """Return where its first registration began when it was opened or last asked; 0 without one."""
        return self._first

    def close(self) -> None:
        """End the connection."""
        self._client.close()


Peer = LocalPeer | NearPeer | FarPeer


def connect(name: str, seconds: float, of_process: Mapping[bytes, tuple[Segment, Inbox]]) -> Peer:
    """Return the engine that listens at an address; a ``Refusal`` if there is none.

    ``name``: ``host:port``.
    ``seconds``: the most to wait for an answer of another machine.
    ``of_process``: the engines of this process, by the identities of their boards.
    """
    client = Client(name)
    description = client.describe()
    own = of_process.get(description.origin.ident)
    if own is not None and description.origin.pid == os.getpid():
        client.close()
        return LocalPeer(name, *own)
    if description.machine == own_machine():
        return NearPeer(client, description)
    return FarPeer(client, description, seconds)
