"""The virtual back-end: devices made of sealed memory files behind guarded addresses."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from peerlane import _core
from peerlane.backend import base as defaults
from peerlane.backend.facts import HOST_ORDINAL, Caps, DeviceInfo, HandleKind, Kind, Location
from peerlane.backend.interface import Memory
from peerlane.backend.ranks import Ranks
from peerlane.backends.virtual.address_range import VirtualAddressRange
from peerlane.backends.virtual.buffer import VirtualBuffer, export_from_host, open_on_host
from peerlane.backends.virtual.event import VirtualEvent
from peerlane.backends.virtual.node import faults, files, handles, schedule
from peerlane.backends.virtual.node.config import NodeConfig
from peerlane.backends.virtual.node.handles import HandleFields
from peerlane.backends.virtual.node.state import NodeState
from peerlane.backends.virtual.notify import VirtualNotify
from peerlane.backends.virtual.physical import VirtualPhysical
from peerlane.backends.virtual.queues import Queues
from peerlane.backends.virtual.ranks import VirtualRanks
from peerlane.diagnostics.log import event_log
from peerlane.errors import (
    AccessDenied,
    BadArgument,
    BadHandle,
    Closed,
    Fault,
    HandleRefused,
    InvalidValue,
    MemoryHolder,
    OutOfMemory,
    PeerLost,
    Refused,
    Unsupported,
)
from peerlane.node.base import HostBase
from peerlane.node.device import Host
from peerlane.support import reductions
from peerlane.support.system_limits import address_space

T = TypeVar("T")

_HOST = 0
_UUID_SPACE = bytes.fromhex("6f1d3c580a275f439d0e706565726c61")


def _uuid_of(name: str) -> bytes:
    """Return a UUID of version 5, without `uuid`: its import would take a tenth of a C program's first call."""
    digest = bytearray(hashlib.sha1(_UUID_SPACE + name.encode(), usedforsecurity=False).digest()[:16])
    digest[6], digest[8] = digest[6] & 0x0F | 0x50, digest[8] & 0x3F | 0x80
    return bytes(digest)


class VirtualMemory(_core.Memory):
    """An allocation that a buffer owns; see :class:`~peerlane.backend.interface.VisibleMemory`."""

    __slots__ = ()

    def host_view(self) -> memoryview:
        return memoryview(self)


class VirtualBackend(Queues):
    """One process's membership of a virtual node; the verbs of :class:`~peerlane.backend.interface.Backend`.

    ``config``: the node to enter.
    """

    name = "virtual"
    caps = ~Caps.NONE

    copy = staticmethod(_core.copy)
    copy_2d = staticmethod(_core.copy_2d)
    fill = staticmethod(_core.fill)
    has_stream_copy = staticmethod(_core.has_stream_copy)

    def __init__(self, config: NodeConfig) -> None:
        refuse_other_window(config)
        self.config = config
        self.node_hash = handles.node_hash(config)
        self._home = handles.home_of(config)
        self._node = self._home.number
        self._peers: list[set[int]] = [set() for _ in range(config.devices)]
        self._announced: list[set[int]] = [set() for _ in range(config.devices)]
        self.is_inherited = False
        self._lock = threading.Lock()
        self.ranks: Ranks = VirtualRanks(lambda: self.ledger)
        self._join()

    def _join(self) -> None:
        config = self.config
        self._state = NodeState(config)
        self._pid = os.getpid()
        self._start = _core.start_time(self._pid) & 0xFFFFFFFF
        self._makers: dict[int, tuple[int, int]] = {}  # by slot: pid and start time of the process seen there
        self._numbers: list[int] = []
        self.is_closed = self._is_serving = False
        try:
            _core.configure(_window_bytes(config), config.cache_bytes, config.poison)
            schedule.begin(config.schedule)
            faults.begin()
            for ordinal, capacity in enumerate(config.memory):
                self._numbers.append(
                    _core.add_device(
                        capacity,
                        config.host_access == "map",
                        config.profile.p2p_policy_required,
                        self._state.ledger,
                        ordinal,
                    )
                )
        except BaseException:
            self._leave()
            raise
        self._ordinals = {number: ordinal for ordinal, number in enumerate(self._numbers)}

    def inherit(self) -> None:
        """Note, in a forked child whose parent had used no device, that this state is the parent's."""
        self._lock = threading.Lock()
        self.is_inherited = True

    def join(self) -> None:
        """Take a slot of its own in the node, at the first call of a forked child; errors as of the constructor."""
        with self._lock:
            if self.is_inherited and not self.is_closed:
                self._abandon()
                self._join()
                self.is_inherited = False

    def _abandon(self) -> None:
        numbers, self._numbers = self._numbers, []
        for number in numbers:
            _core.close_device(number)
        self._state.close()

    def ready(self) -> None:
        _core.check_usable()
        if self.is_inherited:
            self.join()

    def devices(self) -> tuple[DeviceInfo, ...]:
        config = self.config
        return tuple(
            DeviceInfo(
                ordinal=ordinal,
                name=config.profile.device_name,
                uuid=_uuid_of(f"{config.name}/{ordinal}"),
                total_bytes=capacity,
                switch=config.topology.switch(ordinal),
                granularity=config.profile.granularity,
                max_peers=config.profile.max_peers,
                routes_peer_memory_only=config.profile.p2p_policy_required,
                is_host_mapped=config.host_access == "map",
                max_streams=config.profile.max_streams,
                max_notifies=config.profile.max_notifies,
            )
            for ordinal, capacity in enumerate(config.memory)
        )

    def free_bytes(self, ordinal: int) -> int:
        self._check_open()
        self._state.reap()
        _core.forget_lost()
        return _core.free_bytes(self._numbers[ordinal])

    def memory_holders(self, ordinal: int) -> tuple[MemoryHolder, ...]:
        from peerlane.backends.virtual.node.census import holders_of  # few processes ask

        self._check_open()
        return holders_of(self._state.path.parent, self.config.name, ordinal)

    def other_holders(self, number: int) -> tuple[str, tuple[MemoryHolder, ...]]:
        """Return the other processes that hold memory of a device, given by its native number; see the census."""
        ordinal = self._ordinals.get(number)
        if ordinal is None or len(self._state.processes()) < 2:
            return "", ()
        from peerlane.backends.virtual.node.census import other_holders

        return other_holders(self._state.path.parent, self.config.name, ordinal)

    def allocate(self, ordinal: int, nbytes: int, peer: bool = False) -> Memory:
        if nbytes < 1:
            raise InvalidValue(
                f"virtual:{ordinal} cannot allocate {nbytes:,} bytes; the least is 1",
                detail=BadArgument("nbytes", nbytes, least=1),
            )
        return self._with_room(ordinal, lambda number: VirtualMemory(number, nbytes, peer))

    def make_buffer(self, memory: Any, device: Any, stream: Any) -> VirtualBuffer:
        return VirtualBuffer._own(memory, device, stream)

    def buffer_at(self, address: int, nbytes: int, device: Any) -> VirtualBuffer:
        memory = _core.memory_at(address, nbytes)
        return VirtualBuffer._make(memory, device, memory, 0, nbytes)

    def open_buffer(self, offer: _core.Offer, home: Any, device: Any) -> VirtualBuffer:
        start, nbytes = offer.part
        with contextlib.closing(VirtualPhysical._adopt(self, offer, home, device)) as physical:
            imported = self.reserve(home, physical.size, 0, 0)
            try:
                imported._map(physical, 0, "r" if physical.is_read_only else "rw", max(start + nbytes, 1))
                return imported._lend(start, nbytes)
            except BaseException:
                imported.close()
                raise

    def export_host(self, buffer: Any) -> Any:
        return export_from_host(buffer, self)

    def open_host(self, handle: bytes, timeout: float) -> VirtualBuffer:
        with contextlib.closing(self.open_handle(HandleKind.BUFFER, handle, timeout)) as offer:
            if offer.device != HOST_ORDINAL or not offer.size:
                raise BadHandle(
                    f"the process that made the handle claims {offer.size:,} bytes of device {offer.device}, and "
                    "memory of the host is opened",
                    fault=Fault.FALSE_CLAIM,
                    detail=Refused(reason="false_claim", size=offer.size, device=offer.device),
                )
            with contextlib.closing(offer.adopt(_HOST, self._state.ledger)) as block:
                return open_on_host(block, *offer.part)

    def create_physical(self, device: Any, nbytes: int, peer: bool) -> VirtualPhysical:
        if isinstance(device, HostBase):
            self._check_open()
            block = _core.Block(_HOST, nbytes, True, files.name_of(self._home, HOST_ORDINAL, True))
            return VirtualPhysical._make(self, block, device)
        ordinal = device.ordinal
        name = files.name_of(self._home, ordinal, peer)
        block = self._with_room(ordinal, lambda number: _core.Block(number, nbytes, peer, name))
        return VirtualPhysical._make(self, block, device)

    def open_physical(self, offer: _core.Offer, home: Any, device: Any) -> VirtualPhysical:
        return VirtualPhysical._adopt(self, offer, home or Host(), device)

    def _with_room(self, ordinal: int, make: Callable[[int], T]) -> T:
        self._check_open()
        number = self._numbers[ordinal]
        try:
            return make(number)
        except OutOfMemory as error:
            if error.fault is not Fault.OUT_OF_MEMORY:
                raise
        self._state.reap()
        _core.drain()  # queued operations may hold closed memory
        return make(number)

    def reserve(self, device: Any, nbytes: int, alignment: int, wanted: int) -> VirtualAddressRange:
        self._check_open()
        reservation = _core.Reservation(self._numbers[device.ordinal], nbytes, alignment, wanted)
        return VirtualAddressRange._make(reservation, device)

    def open_event(self, offer: _core.Offer, device: Any) -> VirtualEvent:
        return VirtualEvent._adopt(offer, device)

    def open_notify(self, offer: _core.Offer, device: Any) -> VirtualNotify:
        return VirtualNotify._adopt(offer, device)

    def offer(
        self,
        kind: HandleKind,
        block: _core.Block,
        part: tuple[int, int],
        rights: int,
        allowed: list[int] | None,
    ) -> tuple[tuple[int, int], bytes]:
        self._serve()
        ordinal = HOST_ORDINAL if block.device == _HOST else self._ordinals[block.device]
        entry = _core.offer(block, kind, rights, ordinal, *part, allowed)
        return entry, self._text_of(kind, *entry, part[1])

    def offer_signal(
        self,
        kind: HandleKind,
        signal: _core.Signal,
        ordinal: int,
        allowed: list[int] | None,
        *,
        notify_kind: int = 0,
        count: int = 0,
    ) -> tuple[tuple[int, int], bytes]:
        self._serve()
        entry = signal.offer(kind, ordinal, allowed, notify_kind, count)
        return entry, self._text_of(kind, *entry, 0)

    def _serve(self) -> None:
        self._check_open()
        if not self._is_serving:
            state = self._state
            _core.serve(state.directory, state.socket_name(state.slot), state.slot, self._node)
            self._is_serving = True

    def _text_of(self, kind: HandleKind, index: int, nonce: int, nbytes: int) -> bytes:
        return _core.handle_text(
            kind, self._node, self._state.slot, index, nonce, nbytes, self._pid, self._start
        )

    def open_handle(self, kind: HandleKind, handle: int | bytes | str, timeout: float) -> _core.Offer:
        self._check_open()
        if type(handle) is bytes and not event_log.active:
            early = _core.open_early(handle, self._node, kind)
            if early is not None:
                return early
        fields, state = self._decode(handle), self._state
        if self._is_own(fields):
            _core.refuse_own(fields.entry, fields.nonce, fields.nonce_bits)
        if fields.slot not in self._makers and state.is_foreign(fields.slot):
            raise AccessDenied(
                "the process that made the handle is in another pid namespace than this one, where pids cannot be "
                "compared; run both in one container",
                fault=Fault.FOREIGN_NAMESPACE,
                detail=HandleRefused(
                    reason="foreign_namespace",
                    maker=fields.pid or 0,
                    asker=self._pid,
                    status=10,  # Status::foreign_namespace of native code
                ),
            )
        has_served = fields.slot in self._makers
        owner = self._owner_of(fields)
        if owner is None:
            _core.forget_lost()
            raise handles.maker_lost(fields.pid or state.last_pid(fields.slot))
        if event_log.active:
            event_log.shares_with(owner[0])
        try:
            return self._ask(fields, owner, kind, timeout)
        except PeerLost:
            # Another process may have the slot by now.
            _core.forget_lost()
            self._makers.pop(fields.slot, None)
            fresh = self._owner_of(fields)
            if fresh == owner and fields.pid is None and not has_served and not state.serves(fields.slot):
                self._makers.pop(fields.slot, None)
                raise BadHandle(
                    f"process {owner[0]}, which has the slot that the number names, gives no handles; pass on "
                    "int(handle) unchanged",
                    detail=Refused(reason="no_handles", maker=owner[0]),
                ) from None
            if fresh is None or fresh == owner:
                raise
        return self._ask(fields, fresh, kind, timeout)

    def _is_own(self, fields: HandleFields) -> bool:
        # When the process was in the node before, it may have had another slot.
        if fields.pid is not None:
            return (fields.pid, fields.start) == (self._pid, self._start)
        return fields.slot == self._state.slot

    def _decode(self, handle: int | bytes | str) -> HandleFields:
        fields = handles.decode(handle)
        return fields if handles.is_of(fields, self._node) else handles.decode(handle, self._home)

    def _ask(
        self, fields: HandleFields, owner: tuple[int, int], kind: HandleKind, timeout: float
    ) -> _core.Offer:
        state = self._state
        offer = _core.open_handle(
            state.directory,
            state.socket_name(fields.slot),
            fields.slot,
            self._node,
            *owner,
            fields.entry,
            fields.nonce,
            fields.nonce_bits,
            kind,
            timeout,
        )
        _core.note_sharer(*owner)
        return offer

    @property
    def ledger(self) -> _core.Ledger:
        """The ledger of the memory that this process shares with the others of its node."""
        self._check_open()
        return self._state.ledger

    def open_file(self, fd: int) -> _core.Offer:
        self._check_open()
        file = files.look_at(fd, self.config, self._home)
        return _core.Offer.of_file(
            file.fd, file.device, file.block, file.size, file.is_read_only, file.for_peers
        )

    def maker_of(self, handle: int | bytes | str) -> int | None:
        self._check_open()
        fields = self._decode(handle)
        self._makers.pop(fields.slot, None)
        owner = self._owner_of(fields)
        return None if owner is None else owner[0]

    def _owner_of(self, fields: HandleFields) -> tuple[int, int] | None:
        # Looked up only if the process does not answer: a connection notices by itself that its peer has ended.
        owner = self._makers.get(fields.slot)
        if owner is None or (fields.pid is not None and owner != (fields.pid, fields.start)):
            owner = self._state.owner(fields.slot)
            if owner is not None:
                self._makers[fields.slot] = owner
        return None if fields.pid is not None and owner != (fields.pid, fields.start) else owner

    def adopt(self, offer: _core.Offer) -> _core.Block:
        number = _HOST if offer.device == HOST_ORDINAL else self._numbers[offer.device]
        return offer.adopt(number, self._state.ledger)

    def number(self, ordinal: int) -> int:
        """Return the native number of a device; Closed if the node was left."""
        self._check_open()
        _core.begin_use()
        return self._numbers[ordinal]

    def allocate_host(self, nbytes: int) -> Memory:
        self._check_open()
        return VirtualMemory(_HOST, nbytes, True)

    def locate(self, address: int) -> Location:
        block = _core.locate(address)
        if block is None:
            return Location(Kind.PAGEABLE, -1, address, 0, 0)
        number, base, size, allocation = block
        if number == _HOST:
            return Location(Kind.PINNED, -1, base, size, allocation)
        return Location(Kind.DEVICE, self._ordinals[number], base, size, allocation)

    def read(self, address: int, into: memoryview) -> None:
        _core.copy(_address_of(into), address, into.nbytes)

    def write(self, address: int, data: memoryview) -> None:
        _core.copy(address, _address_of(data), data.nbytes)

    def copy_batch(self, copies: Sequence[tuple[int, int, int]]) -> None:
        defaults.copy_batch(self, copies)

    def reduce(self, dst: int, src: int, count: int, dtype: str, op: str) -> None:
        _core.reduce(dst, src, count, reductions.number_of("reduce", dtype, op))

    def can_access(self, ordinal: int, peer: int) -> bool:
        return self.config.topology.reachable(ordinal, peer)

    def why_not(self, ordinal: int, peer: int) -> str:
        return "" if self.can_access(ordinal, peer) else self.config.topology.reason(ordinal, peer)

    def link(self, ordinal: int, peer: int) -> str:
        return self.config.topology.link(ordinal, peer).value

    def peers(self, ordinal: int) -> Collection[int]:
        return frozenset(self._peers[ordinal])

    def set_peer(self, ordinal: int, peer: int, enabled: bool) -> None:
        self._check_open()
        _core.set_route(self._numbers[ordinal], self._numbers[peer], enabled)
        self._note(self._peers[ordinal], ordinal, peer, enabled)

    def announce_peer(self, ordinal: int, peer: int, enabled: bool) -> None:
        self._check_open()
        self._note(self._announced[ordinal], ordinal, peer, enabled)

    def _note(self, own: set[int], ordinal: int, peer: int, enabled: bool) -> None:
        _core.begin_use()
        (own.add if enabled else own.discard)(peer)
        wanted = peer in self._peers[ordinal] or peer in self._announced[ordinal]
        self._state.ledger.set_peer(ordinal, peer, wanted)

    def is_announced(self, ordinal: int, peer: int) -> bool:
        self._check_open()
        if peer in self._peers[ordinal] or peer in self._announced[ordinal]:
            return True
        self._state.reap()
        return self._state.ledger.is_peer(ordinal, peer)

    def count_all_announcements(self, counts: bool) -> None:
        self._state.ledger.count_all(counts)

    def announcers(self, ordinal: int, peer: int) -> tuple[int, ...]:
        self._state.reap()
        return tuple(owner & 0xFFFFFFFF for owner in self._state.ledger.enablers(ordinal, peer))

    def relied_on(self) -> tuple[int, ...]:
        return tuple(owner & 0xFFFFFFFF for owner in self._state.ledger.relied_on())

    def close(self) -> None:
        if not self.is_closed:
            self._leave()
            _core.end_use()

    def _leave(self) -> None:
        self.is_closed = True
        _core.forget_c_threads()
        if self.is_inherited:
            self._abandon()
            return
        try:
            if self._pid == os.getpid():
                _core.stop_serving()
                for number in self._numbers:
                    _core.close_streams(number)
                for number in self._numbers:
                    _core.close_device(number)
        finally:
            self._state.close()

    def label(self, number: int) -> str | None:
        """Return the name of a device, given by its native number; None if it is not of this node."""
        if number == _HOST:
            return "host"
        ordinal = self.ordinal(number)
        return None if ordinal is None else f"virtual:{ordinal}"

    def ordinal(self, number: int) -> int | None:
        """Return the ordinal of a device, given by its native number; None if it is not of this node."""
        return self._ordinals.get(number)

    def _check_open(self) -> None:
        _core.check_usable()
        if self.is_inherited:
            self.join()
        if self.is_closed:
            raise Closed(
                f"this process has left node {self.config.name!r}; ask for its devices again with devices()",
                detail=Refused(reason="left", node=self.config.name),
            )


def _address_of(view: memoryview) -> int:
    buffer = _core.buffer_of(view)
    assert buffer is not None
    return buffer[0]


def _window_bytes(config: NodeConfig) -> int:
    """Return the addresses to reserve: at most half of what a limit leaves, so that the program has the rest."""
    limit = address_space()
    return (
        config.window_bytes if limit is None else min(config.window_bytes, max(0, limit[0] - limit[1]) // 2)
    )


_window: list[int] = []  # the window_bytes of the first node of this process


def refuse_other_window(config: NodeConfig) -> None:
    """Note the first node's ``window_bytes``, and refuse a node with another value."""
    if _window and _window[0] != config.window_bytes:
        raise Unsupported(
            f"node {config.name!r} asks for window_bytes={config.window_bytes:,}, but this process reserved its "
            f"address windows with {_window[0]:,} and keeps them; use the same, or a process of its own",
            detail=BadArgument("window_bytes", config.window_bytes, choices=(_window[0],)),
        )
    _window[:] = [config.window_bytes]
