"""What a back-end owes the neutral API.

A back-end holds no policy.  Devices are ordinals, memory is integer addresses, and every refusal is one of the
exceptions of :mod:`peerlane.errors`.  Every verb is synchronous: when it returns, the bytes have moved.  After a
raise nothing was created and nothing half-made is left; the destination of a copy that failed *while running* is
unspecified.

========================  ==========================================================================================
:class:`Memory`           address, size, close, capacity; ``host_view`` if the host may look
:class:`Addresses`        locate
:class:`VirtualMemory`    physical, reserve, where there is virtual memory (``Caps.PHYSICAL``)
:class:`Peers`            can access, enable, route
:class:`Copies`           copy, fill, read, write; batch, rectangles and reductions have default bodies over these
:class:`Queue`            submit, record, wait, sync, cancel; a back-end without queues gets the host's
:class:`Share`            export to a plain record and, where there is one, a descriptor; open a record as memory
:class:`Signal`           record, wait
========================  ==========================================================================================

:class:`Backend` is what each must be: ``Memory``, ``Addresses``, ``Peers`` and ``Copies`` of a set of devices.
:class:`peerlane.backend.base.BackendBase` has the default bodies.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol, runtime_checkable

from peerlane.backend.facts import Caps, DeviceInfo, HandleKind, Location
from peerlane.backend.ranks import Ranks


@runtime_checkable
class Memory(Protocol):
    """One allocation.  ``close`` is idempotent; no verb finds its addresses afterwards."""

    @property
    def address(self) -> int: ...
    @property
    def size(self) -> int: ...
    def close(self) -> None: ...


@runtime_checkable
class VisibleMemory(Memory, Protocol):
    """Memory that the host may look at: what ``Caps.HOST_VIEW`` obliges ``allocate`` to return."""

    def host_view(self) -> memoryview:
        """Return the bytes themselves, not a copy, as writable unsigned bytes.

        The view keeps them after ``close``.
        """
        ...


class Addresses(Protocol):
    """What integers mean."""

    def locate(self, address: int) -> Location:
        """Tell what ``address`` points at; what is not this back-end's is ``Kind.PAGEABLE``.

        Raises ``BadAddress`` for an address that only this back-end could have given out and where nothing lives.
        """
        ...


class Peers(Protocol):
    """Which devices of the back-end reach each other."""

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


class Copies(Protocol):
    """What moves bytes.  Addresses are the back-end's own; host memory is an object with the buffer protocol.

    Each verb raises ``BadAddress`` (unknown, freed, beyond the allocation) before a byte is written, and names the
    operand.
    """

    def copy(self, dst: int, src: int, nbytes: int) -> None:
        """Copy ``nbytes`` between any two of its addresses; overlapping ranges behave as ``memmove``.

        0 bytes are a no-op.
        """
        ...

    def fill(self, address: int, value: int, width: int, count: int) -> None:
        """Write ``count`` elements of ``width`` bytes (1, 2 or 4), each holding ``value``."""
        ...

    def read(self, address: int, into: memoryview) -> None:
        """Copy as many bytes as ``into`` has, from ``address`` to the host."""
        ...

    def write(self, address: int, data: memoryview) -> None:
        """Copy all of ``data`` from the host to ``address``."""
        ...

    def copy_batch(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """Copy each (destination, source, bytes); they must not overlap one another, and run in any order."""
        ...

    def copy_2d(self, dst: int, dst_pitch: int, src: int, src_pitch: int, width: int, height: int) -> None:
        """Copy ``height`` rows of ``width`` bytes whose starts lie ``pitch`` bytes apart."""
        ...

    def reduce(self, dst: int, src: int, count: int, dtype: str, op: str) -> None:
        """Combine ``count`` elements at ``src`` into those at ``dst``; names as of :func:`peerlane.reduce`."""
        ...


class VirtualMemory(Protocol):
    """Physical memory and addresses apart from each other: ``Caps.PHYSICAL``.

    What is returned is opaque to the neutral API: a ``Physical`` and an ``AddressRange`` of the back-end's own.
    """

    def create_physical(self, device: Any, nbytes: int, peer: bool) -> Any:
        """Return a :class:`peerlane.Physical`: a multiple of the granularity, without an address."""
        ...

    def reserve(self, device: Any, nbytes: int, alignment: int, wanted: int) -> Any:
        """Return a :class:`peerlane.AddressRange`, at ``wanted`` if that is free.

        Raises ``OutOfMemory`` when there are no addresses.
        """
        ...


class Queue(Protocol):
    """Streams of the back-end's own: ``Caps.QUEUE``.  Not frozen until a second implementation stands on it.

    ``create_stream`` returns a :class:`peerlane.Stream`: submit, record, wait, sync, cancel.
    """

    def create_stream(self, device: Any, on_error: str) -> Any:
        """Return a new :class:`peerlane.Stream`."""
        ...

    def create_stream_group(self, device: Any, on_error: str) -> Any:
        """Return a new :class:`peerlane.StreamGroup`."""
        ...


class Signal(Protocol):
    """What streams record and wait for.  Not frozen until a second implementation stands on it."""

    def create_event(self, device: Any) -> Any:
        """Return a new :class:`peerlane.Event`, not recorded yet."""
        ...

    def create_notify(self, device: Any, kind: int) -> Any:
        """Return a new :class:`peerlane.Notify` of a :class:`peerlane.NotifyKind`."""
        ...


class Share(Protocol):
    """Memory and signals of other processes: ``Caps.SHARE``.  Not frozen until a second implementation stands on it.

    ``export`` of memory or of a signal makes a :class:`peerlane.Handle`, whose text is a plain record.
    """

    node_hash: int  #: what tells this node from others

    def open_handle(self, kind: HandleKind, handle: int | bytes | str, timeout: float) -> Any:
        """Ask the process that made a handle, for ``timeout`` seconds (negative: for ever); return its offer.

        Raises ``BadHandle``, ``AccessDenied``, ``PeerLost`` and ``WaitTimeout``.
        """
        ...

    def open_file(self, fd: int) -> Any:
        """Look at a block's file, of which ``fd`` stays the caller's; ``BadHandle`` for what is none."""
        ...

    def maker_of(self, handle: int | bytes | str) -> int | None:
        """Return the pid of the process that made a handle, None if it has ended; ``BadHandle`` for what is none."""
        ...

    @property
    def ranks(self) -> Ranks:
        """What ranks that write into each other's memory need besides."""
        ...


@runtime_checkable
class Backend(Addresses, Peers, Copies, Protocol):
    """The devices of one process's node, and what executes there."""

    name: str  #: of the back-end: its devices are ``"<name>:<ordinal>"``
    caps: Caps

    @property
    def is_closed(self) -> bool:
        """Whether it was left."""
        ...

    def devices(self) -> tuple[DeviceInfo, ...]:
        """Return the devices, in ordinal order."""
        ...

    def ready(self) -> None:
        """Refuse where it cannot be used: ``Closed`` when it was left, or in a forked child that cannot have it."""
        ...

    def free_bytes(self, ordinal: int) -> int:
        """Return the bytes of capacity not charged to any allocation of any process of the node."""
        ...

    def allocate(self, ordinal: int, nbytes: int, peer: bool = False) -> Memory:
        """Allocate device memory, aligned to at least 256 bytes; contents are unspecified.

        ``peer``: for access from other devices, where that makes a difference.
        Raises ``OutOfMemory`` beyond the capacity and ``InvalidValue`` for ``nbytes < 1``.
        """
        ...

    def allocate_host(self, nbytes: int) -> Memory:
        """Allocate pinned host memory (``Caps.PINNED_HOST``): its address may be dereferenced by the host."""
        ...

    def close(self) -> None:
        """Leave: every allocation dies, later use of its address is a named ``BadAddress``."""
        ...


class Factory(Protocol):
    """How a back-end is entered: what is registered under its name."""

    def configure(self, settings: str, source: str) -> object:
        """Return what ``settings`` describe: ``"devices=2,..."`` without ``backend=``, or a TOML file's path.

        ``source`` names where they stand, for the message of an ``InvalidValue`` (``BAD_CONFIG``).
        """
        ...

    def enter(self, config: Any, present: Any) -> Backend:
        """Return the back-end for a configuration.

        ``present`` is the one of this name that the process is in, or None; it is returned if ``config`` is its own.
        It stays as it is when the new one is refused.
        """
        ...
