"""What a back-end owes the neutral API: a page of verbs over plain addresses.

A back-end holds no policy.  Devices are ordinals, memory is integer addresses, and every refusal is one
of the exceptions of :mod:`peerlane.errors`.  ``BackendConformance`` in :mod:`peerlane.testing` holds every
implementation to the sentences below.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from peerlane import _core
from peerlane.backend.ranks import Ranks
from peerlane.backends.virtual.node.handles import HandleFields


class Caps(enum.Flag):
    """What a back-end can do; each flag names the verbs it obliges the back-end to implement."""

    NONE = 0
    PEER = enum.auto()  #: ``can_access``, ``peers``, ``set_peer``
    COPY_2D = enum.auto()  #: ``copy_2d``
    FILL = enum.auto()  #: ``fill``
    PINNED_HOST = enum.auto()  #: ``allocate_host``
    PHYSICAL = enum.auto()  #: ``create_physical``, ``reserve``
    SHARE = enum.auto()  #: ``offer``, ``offer_signal``, ``open_handle``, ``open_file``, ``adopt``,
    #: ``ledger``
    HOST_VIEW = enum.auto()  #: ``host_pointer``: the host may read and write device memory through it


class HandleKind(enum.IntEnum):
    """What a handle stands for."""

    PHYSICAL = 1
    BUFFER = 2
    EVENT = 3
    NOTIFY = 4
    NOTIFIES = 5


class Kind(enum.Enum):
    """What an address points at."""

    DEVICE = "device"
    PINNED = "pinned host"
    PAGEABLE = "pageable host"


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """Facts of one device that do not change while its node lives.

    ``total_bytes`` is its capacity; ``max_peers`` how many peers it may have at a time;
    ``routes_peer_memory_only`` whether memory must be allocated with ``peer=True`` to be copied directly;
    ``is_host_mapped`` whether the host may touch its addresses;
    ``max_streams`` and ``max_notifies`` how many of them a dialect that has such limits gives out.
    """

    ordinal: int
    name: str
    uuid: bytes
    total_bytes: int
    switch: int
    granularity: int
    max_peers: int
    routes_peer_memory_only: bool
    is_host_mapped: bool
    max_streams: int
    max_notifies: int


@dataclass(frozen=True, slots=True)
class Location:
    """Where an address lies: ``base`` and ``size`` are those of the allocation (0 for pageable memory).

    ``allocation`` is a number unique in the process; ``ordinal`` is the device, or -1 for host memory.
    """

    kind: Kind
    ordinal: int
    base: int
    size: int
    allocation: int


@runtime_checkable
class Block(Protocol):
    """One allocation.  ``close`` is idempotent; memory in use is returned when its last use ends."""

    @property
    def address(self) -> int: ...
    @property
    def size(self) -> int: ...
    def close(self) -> None: ...


class Backend(Protocol):
    """The verbs, in the order in which an implementation lists them.

    Every verb is synchronous: when it returns, the bytes have moved.  After a raise nothing was created
    and nothing half-made is left; the destination of a copy that failed *while running* is unspecified.
    """

    name: str
    caps: Caps

    is_closed: bool  #: whether it was left

    @property
    def ranks(self) -> Ranks:
        """What ranks that write into each other's memory need besides."""
        ...

    def devices(self) -> tuple[DeviceInfo, ...]:
        """Return the devices, in ordinal order."""
        ...

    def free_bytes(self, ordinal: int) -> int:
        """Return the bytes of capacity not charged to any allocation of any process of the node."""
        ...

    def allocate(self, ordinal: int, nbytes: int, peer: bool = False) -> Block:
        """Allocate device memory, aligned to at least 256 bytes; contents are unspecified.

        ``peer``: for access from other devices, where that makes a difference.
        Raises ``OutOfMemory`` beyond the capacity and ``InvalidValue`` for ``nbytes < 1``.
        """
        ...

    def create_physical(self, ordinal: int, nbytes: int, peer: bool) -> _core.Block:
        """Allocate a block without an address; a multiple of the granularity.  Otherwise as ``allocate``."""
        ...

    def reserve(self, ordinal: int, nbytes: int, alignment: int, wanted: int) -> _core.Place:
        """Reserve addresses, at ``wanted`` if that is free; ``OutOfMemory`` when there are none."""
        ...

    def offer(
        self, kind: HandleKind, block: _core.Block, part: tuple[int, int], rights: int, everyone: bool
    ) -> HandleFields:
        """Let other processes ask for a block; ``part`` is (offset, bytes) of what is meant.

        Nobody is listed yet.  Raises ``OutOfMemory`` and ``Unsupported``.
        """
        ...

    node_hash: int  #: what tells this node from others

    def offer_signal(
        self, kind: HandleKind, signal: _core.Signal, ordinal: int, detail: int, everyone: bool
    ) -> HandleFields:
        """Let other processes ask for a notify or an event; as ``offer``."""
        ...

    @property
    def ledger(self) -> _core.Ledger:
        """What this process shares with the others of its node."""
        ...

    def open_handle(self, kind: HandleKind, handle: int | bytes | str, timeout: float) -> _core.Offer:
        """Ask the process that made a handle, for ``timeout`` seconds (negative: for ever).

        Raises ``BadHandle``, ``AccessDenied``, ``PeerLost`` and ``WaitTimeout``.
        """
        ...

    def open_file(self, fd: int) -> _core.Offer:
        """Look at a block's file, of which ``fd`` stays the caller's; ``BadHandle`` for what is none."""
        ...

    def maker_of(self, handle: int | bytes | str) -> int | None:
        """Return the pid of the process that made a handle, None if it has ended; ``BadHandle`` for what is none."""
        ...

    def adopt(self, offer: _core.Offer) -> _core.Block:
        """Make what was opened a block of this process, the same one if it has it already."""
        ...

    def number(self, ordinal: int) -> int:
        """Return the device's number in the native scheduler, which runs its streams."""
        ...

    def allocate_host(self, nbytes: int) -> Block:
        """Allocate pinned host memory: its address may be dereferenced by the host."""
        ...

    def locate(self, address: int) -> Location:
        """Tell what ``address`` points at; ``BadAddress`` for a device-window address that is not live."""
        ...

    def host_pointer(self, address: int, nbytes: int) -> int:
        """Return the address at which the host may touch ``[address, address + nbytes)``."""
        ...

    def copy(self, dst: int, src: int, nbytes: int) -> None:
        """Copy ``nbytes`` between any two addresses; overlapping ranges behave as ``memmove``.

        Zero bytes is a no-op.  Raises ``BadAddress`` (unknown, freed, beyond the allocation, wild host
        pointer) and names the operand.  Between devices without an open route the bytes are staged
        through the host.
        """
        ...

    def copy_2d(self, dst: int, dst_pitch: int, src: int, src_pitch: int, width: int, height: int) -> None:
        """Copy ``height`` rows of ``width`` bytes whose starts lie ``pitch`` bytes apart."""
        ...

    def fill(self, address: int, value: int, width: int, count: int) -> None:
        """Write ``count`` elements of ``width`` bytes (1, 2 or 4), each holding ``value``."""
        ...

    def can_access(self, ordinal: int, peer: int) -> bool:
        """Tell whether ``set_peer(ordinal, peer, True)`` is possible."""
        ...

    def why_not(self, ordinal: int, peer: int) -> str:
        """Return in words why ``can_access`` is False; empty if it is True."""
        ...

    def link(self, ordinal: int, peer: int) -> str:
        """Return what joins two devices, as ``peerlane topo`` names it; ``"X"`` for a device and itself."""
        ...

    def peers(self, ordinal: int) -> Collection[int]:
        """Return the ordinals whose memory ``ordinal`` may reach now."""
        ...

    def set_peer(self, ordinal: int, peer: int, enabled: bool) -> None:
        """Open or close the directed route; idempotent."""
        ...

    def announce_peer(self, ordinal: int, peer: int, enabled: bool) -> None:
        """Say on the node whether this process enables the direction; opens no route, idempotent.

        A copy that is to be direct goes also where both directions are announced, each by any process.
        """
        ...

    def is_announced(self, ordinal: int, peer: int) -> bool:
        """Tell whether a process of the node, this one or another, enables the direction."""
        ...

    def close(self) -> None:
        """Leave: every allocation dies, later use of its address is a named ``BadAddress``."""
        ...
