"""What an engine owns: its segment, its service, the peers that it knows, its batches and managed buffers."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import weakref
from collections.abc import Iterator, Sequence

from peerlane import Buffer, Host, devices
from peerlane.diagnostics import call_site, live_objects
from peerlane.diagnostics.live_objects import LiveObject
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects._shared.moves import MemoryMoves, Streams
from peerlane.dialects.mooncake._batches import Batch
from peerlane.dialects.mooncake._failures import FAILED, INVALID_ARGUMENT, refused
from peerlane.dialects.mooncake._memory import check
from peerlane.dialects.mooncake._peers import Peer, connect
from peerlane.dialects.mooncake._segments import Segment
from peerlane.dialects.mooncake._service import Client, Inbox, Piece, Service
from peerlane.memory import raw

_TIMEOUT, _LEAST_SECONDS, _SECONDS = "MC_TRANSFER_TIMEOUT", 5, 30
_numbers = itertools.count(0x1000, 0x10)
_LEAST_BUFFER = 8 << 10
_BIND = "MC_TCP_BIND_ADDRESS"

#: The engines of this process, by the identities of their boards.
local: weakref.WeakValueDictionary[bytes, InnerTransferEngine] = weakref.WeakValueDictionary()
os.register_at_fork(after_in_child=local.clear)


def timeout() -> float:
    """Return the seconds after which a transfer has failed (facts/mooncake 4)."""
    text = os.environ.get(_TIMEOUT, "")
    return float(max(int(text), _LEAST_SECONDS)) if text.isdecimal() else float(_SECONDS)


class InnerTransferEngine:
    """An initialized engine.

    ``host``: the name or address under which other engines reach it.
    ``needs_registration``: whether transfers are refused if this engine's own bytes are not registered.
    Raises Refusal: the host is none of this machine.
    """

    def __init__(self, host: str, *, needs_registration: bool) -> None:
        self.segment, self.inbox = Segment(), Inbox()
        service = self._service(host)
        self.port, self._needs_registration = service.port, needs_registration
        #: Of its segment, ``host:port``.
        self.name = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        self.seconds, self.pid, self.is_charged = timeout(), os.getpid(), True
        self._lock = threading.Lock()
        self._peers: dict[str, Peer] = {}
        self._streams, self.batches = Streams(), Batches()
        self.managed: dict[int, Buffer] = {}
        weakref.finalize(
            self, _close, self.pid, service, self.segment, self._peers, self.batches
        ).atexit = False
        local[self.segment.board.ident] = self

    def _service(self, host: str) -> Service:
        """Listen at the host's address alone if it is one of this machine, else as the vendor at all of them."""
        chosen = os.environ.get(_BIND)
        for address in (chosen,) if chosen else (host, "0.0.0.0"):
            try:
                return Service(address, self.segment, self.inbox)
            except (OSError, UnicodeError) as error:
                failure = error
        self.segment.close()
        raise refused(
            f"this machine cannot listen at {chosen or host!r}: {failure}",
            f"let {_BIND} be an address of this machine",
        )

    def of_this_process(self) -> InnerTransferEngine:
        """Return the engine; refuse one that the parent of a fork has made."""
        if self.pid != os.getpid():
            raise refused(
                f"engine {self.name!r} was made before this process was forked, and is its parent's",
                "make the engines of a process in that process; or start it by 'spawn'",
            )
        return self

    @property
    def _is_eager(self) -> bool:
        return not devices()[0].backend.ranks.lateness

    def peer(self, target: str) -> Peer:
        """Return the engine of a segment's name; a ``Refusal`` if it cannot be reached."""
        name = target.lstrip("/")
        if not name:
            raise refused("the segment's name is empty", "pass host:port of an engine", INVALID_ARGUMENT)
        with self._lock:
            known = self._peers.get(name)
            if known is not None and not known.has_ended:
                return known
            self._peers.pop(name, None)
        if known is not None:
            known.close()
        own = {ident: (engine.segment, engine.inbox) for ident, engine in list(local.items())}
        new = connect(name, self.seconds, own)  # without the lock: a silent peer would stop all transfers
        with self._lock:
            peer = self._peers.setdefault(name, new)
        if peer is not new:
            new.close()
        return peer

    def moves(self, peer: Peer, is_write: bool, pieces: Sequence[Piece]) -> MemoryMoves:
        """Return what a transfer does, all of whose pieces were checked; empty pieces move nothing."""
        some = [piece for piece in pieces if piece[2]]
        for near, _, size in some:
            self._check_own(near, size)
        check(self.name, [(near, size) for near, _, size in some], writes=not is_write)
        return peer.moves(is_write, some)

    def _check_own(self, address: int, size: int) -> None:
        if self._needs_registration and self.segment.find(address, size) is None:
            raise refused(
                f"{size:,} bytes at {address:#x} of this engine are not registered; {self.segment.shown}",
                "register them; only the protocol tcp sends memory that is not registered",
                FAILED,
            )
        if not address:
            raise refused(f"{size:,} bytes at NULL are no memory", "pass the address of memory")

    def transfer(self, target: str, is_write: bool, pieces: Sequence[Piece]) -> Peer:
        """Move bytes now, and return the peer."""
        peer = self.peer(target)
        self.moves(peer, is_write, pieces).run()
        peer.check()
        return peer

    def submit(self, target: str, is_write: bool, pieces: Sequence[Piece], *, is_single: bool) -> int:
        """Begin a transfer, and return its number; ``is_single``: of ``transfer_submit_write``."""
        peer = self.peer(target)
        moves = self.moves(peer, is_write, pieces)
        device = next((raw.locate(near).ordinal for near, _, size in pieces if size), None)
        size = sum(size for *_, size in pieces)
        batch = Batch(peer, moves, self._streams, device or 0, is_eager=self._is_eager, size=size)
        batch.is_single = is_single
        return self.batches.add(batch)

    def is_over(self, number: int) -> bool:
        """Return whether a transfer is over; its end is reported once."""
        batch = self.batches.of(number)
        try:
            if not batch.is_over:
                return False
        except BaseException:
            self.batches.remove(number)
            raise
        self.batches.remove(number)
        return True

    def wait(self, numbers: Sequence[int]) -> None:
        """Wait for transfers; the ends of those that are over are reported, and the others go on."""
        batches = {number: self.batches.of(number) for number in numbers}
        for number, batch in batches.items():
            if batch.is_single:
                raise refused(
                    f"{number:#x} is of transfer_submit_write: the vendor reports a time-out for it at once",
                    "call transfer_check_status for it",
                )
        try:
            for batch in batches.values():
                batch.wait(self.seconds)
        finally:
            for number, batch in batches.items():
                if batch.has_ended:
                    self.batches.remove(number)

    def probe(self, name: str) -> None:
        """Ask whether an engine answers."""
        client = Client(name)
        try:
            client.ask("PROB")
        finally:
            client.close()

    def allocate(self, size: int) -> int:
        """Return the address of new registered memory."""
        buffer = Host().allocate(_rounded(size))
        try:
            self.segment.add([(buffer.address, max(size, 1))])
        except BaseException:
            buffer.close()
            raise
        self.managed[buffer.address] = buffer
        return buffer.address

    def free(self, address: int, size: int) -> None:
        """Free memory of :meth:`allocate`."""
        buffer = self.managed.get(address)
        if buffer is None or buffer.size != _rounded(size):
            known = (
                "no managed buffer" if buffer is None else f"a managed buffer of up to {buffer.size:,} bytes"
            )
            raise refused(
                f"{address:#x} ({size:,} bytes) is {known}",
                "pass the address that allocate_managed_buffer returned, and the length it was asked for",
            )
        del self.managed[address]
        with contextlib.suppress(Refusal):  # the program has unregistered it
            self.segment.remove([address])
        buffer.close()


def _rounded(size: int) -> int:
    return max(-(-size // _LEAST_BUFFER), 1) * _LEAST_BUFFER


class Batches:
    """The asynchronous transfers of an engine, by number."""

    def __init__(self) -> None:
        self._batches: dict[int, Batch] = {}

    def __iter__(self) -> Iterator[Batch]:
        return iter(list(self._batches.values()))

    def add(self, batch: Batch) -> int:
        """Add a transfer; return its number."""
        number = next(_numbers)
        self._batches[number] = batch
        return number

    def of(self, number: int) -> Batch:
        """Return the transfer of a number."""
        batch = self._batches.get(number)
        if batch is None:
            raise refused(
                f"{number:#x} is no transfer of this engine, or its end was reported already",
                "ask for the status of a transfer until it is over, and not again",
            )
        return batch

    def remove(self, number: int) -> None:
        """Forget a transfer whose end was reported."""
        batch = self._batches.pop(number, None)
        if batch is not None:
            batch.release()

    def close(self) -> None:
        """End all of them."""
        for number in list(self._batches):
            self.remove(number)


def _close(pid: int, service: Service, segment: Segment, peers: dict[str, Peer], batches: Batches) -> None:
    if os.getpid() != pid:  # the child of a fork owns none of them
        return
    service.close()
    batches.close()
    for peer in peers.values():
        peer.close()
    segment.close()


def _living() -> Iterator[LiveObject]:
    """Return registrations and transfers of this process that have not ended."""
    for engine in list(local.values()):
        if not engine.is_charged:
            continue
        of = f"of engine {engine.name!r}"
        for region in engine.segment:
            text = f"registered memory {of}: {region}"
            yield LiveObject("registered memory", text, region.size, "", call_site.at(region.site))
        for batch in engine.batches:
            text = f"transfer {of} with {batch.peer.name!r}: {batch.size:,} bytes"
            yield LiveObject("transfer", text, batch.size, "", call_site.at(batch.site))


live_objects.add_source(_living)


def begin_anew() -> None:
    """Report none of the present engines as left over by a test."""
    for engine in list(local.values()):
        engine.is_charged = False
