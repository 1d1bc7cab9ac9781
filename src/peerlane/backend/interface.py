"""The verbs that a back-end owes the neutral API.

A back-end has no policy.  Devices are ordinals, memory is integer addresses, and every refusal is an exception of
:mod:`peerlane.errors`.  Every verb is synchronous: when it returns, the bytes have moved.  After a raise nothing was
created and nothing half-made is left.  If a copy fails *while running*, its destination is unspecified.

========================  ==========================================================================================
:class:`Memory`           address, size, close, capacity; ``host_view`` if the host may access it
:class:`Addresses`        locate
:class:`VirtualMemory`    physical, reserve, if it has virtual memory (``Caps.PHYSICAL``)
:class:`Peers`            can access, enable, route
:class:`Copies`           copy, fill, read, write; batch, rectangles and reductions have default bodies over these
:class:`Queue`            submit, record, wait, sync, cancel; a back-end without queues gets the host's
:class:`Share`            export as a plain record and, if it has one, a descriptor; open a record as memory
:class:`Signal`           record, wait
========================  ==========================================================================================

Each back-end implements :class:`Backend`: ``Memory``, ``Addresses``, ``Peers`` and ``Copies`` of a set of devices.
:class:`peerlane.backend.base.BackendBase` has the default bodies.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol, runtime_checkable

from peerlane.backend.facts import Caps, DeviceInfo, HandleKind, Location
from peerlane.backend.ranks import Ranks


@runtime_checkable
class Memory(Protocol):
    """One allocation.  ``close`` is idempotent; afterwards no verb accepts its addresses."""

    @property
    def address(self) -> int: ...
    @property
    def size(self) -> int: ...
    def close(self) -> None: ...


@runtime_checkable
class VisibleMemory(Memory, Protocol):
    """Memory that the host may access: ``Caps.HOST_VIEW`` obliges ``allocate`` to return it."""

    def host_view(self) -> memoryview:
        """Return the bytes themselves, not a copy, as writable unsigned bytes.

        The view keeps them alive after ``close``.
        """
        ...


class Addresses(Protocol):
    """The look-up of addresses."""

    def locate(self, address: int) -> Location:
        """Return the location of ``address``; an address that is not this back-end's is ``Kind.PAGEABLE``.

        Raises ``BadAddress`` for an address in this back-end's windows that lies in no allocation.
        """
        ...


class Peers(Protocol):
    """Which devices of the back-end reach each other."""

    def can_access(self, ordinal: int, peer: int) -> bool:
        """Tell whether ``set_peer(ordinal, peer, True)`` is possible."""
        ...

    def why_not(self, ordinal: int, peer: int) -> str:
        """Return the reason in words if ``can_access`` is False; else empty."""
        ...

    def link(self, ordinal: int, peer: int) -> str:
        """Return the link between two devices, as ``peerlane topo`` names it; ``"X"`` for a device and itself."""
        ...

    def peers(self, ordinal: int) -> Collection[int]:
        """Return the ordinals whose memory ``ordinal`` may reach now."""
        ...

    def set_peer(self, ordinal: int, peer: int, enabled: bool) -> None:
        """Open or close the directed route; idempotent."""
        ...

    def announce_peer(self, ordinal: int, peer: int, enabled: bool) -> None:
        """Announce on the node whether this process enables the direction; idempotent.

        It opens no route.  A copy that must be direct is also possible if both directions are announced, each by any
        process.
        """
        ...

    def is_announced(self, ordinal: int, peer: int) -> bool:
        """Tell whether some process of the node has announced the direction."""
        ...


class Copies(Protocol):
    """Verbs that move bytes.  Addresses are the back-end's own; host memory is an object with the buffer protocol.

    Each verb raises ``BadAddress`` (unknown, freed, beyond the allocation) before a byte is written; the text names
    the operand.
    """

    def copy(self, dst: int, src: int, nbytes: int) -> None:
        """Copy ``nbytes`` between any two of its addresses; overlapping ranges are copied as by ``memmove``.

        0 bytes are a no-op.
        """
        ...

    def fill(self, address: int, value: int, width: int, count: int) -> None:
        """Write ``count`` elements of ``width`` bytes (1, 2 or 4), each holding ``value``."""
        ...

    def read(self, address: int, into: memoryview) -> None:
        """Fill ``into`` with the bytes at ``address``."""
        ...

    def write(self, address: int, data: memoryview) -> None:
        """Copy all of ``data`` from the host to ``address``."""
        ...

    def copy_batch(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """Make the copies (destination, source, bytes), in any order; they must not overlap one another."""
        ...

    def copy_2d(self, dst: int, dst_pitch: int, src: int, src_pitch: int, width: int, height: int) -> None:
        """Copy ``height`` rows of ``width`` bytes whose starts lie ``pitch`` bytes apart."""
        ...

    def reduce(self, dst: int, src: int, count: int, dtype: str, op: str) -> None:
        """Combine ``count`` elements at ``src`` into those at ``dst``; names as for :func:`peerlane.reduce`."""
        ...


class VirtualMemory(Protocol):
    """Physical memory and addresses, separately: ``Caps.PHYSICAL``.

    The verbs return objects of the back-end's own classes, which are opaque to the neutral API.
    """

    def create_physical(self, device: Any, nbytes: int, peer: bool) -> Any:
        """Return a :class:`peerlane.Physical` of ``nbytes``, a multiple of the granularity."""
        ...

    def reserve(self, device: Any, nbytes: int, alignment: int, wanted: int) -> Any:
        """Return a :class:`peerlane.AddressRange`, at ``wanted`` if that is free.

        Raises ``OutOfMemory`` if there are not enough addresses.
        """
        ...


class Queue(Protocol):
    """Streams of the back-end's own: ``Caps.QUEUE``.  May change until a second back-end implements it.

    ``create_stream`` returns a :class:`peerlane.Stream`: submit, record, wait, sync, cancel.
    """

    def create_stream(self, device: Any, on_error: str) -> Any:
        """Return a new :class:`peerlane.Stream`."""
        ...

    def create_stream_group(self, device: Any, on_error: str) -> Any:
        """Return a new :class:`peerlane.StreamGroup`."""
        ...


class Signal(Protocol):
    """Events and notifies, which streams record and wait for.  May change until a second back-end implements it."""

    def create_event(self, device: Any) -> Any:
        """Return a new :class:`peerlane.Event` without a record."""
        ...

    def create_notify(self, device: Any, kind: int) -> Any:
        """Return a new :class:`peerlane.Notify` of a :class:`peerlane.NotifyKind`."""
        ...


class Share(Protocol):
    """Memory and signals of other processes: ``Caps.SHARE``.  May change until a second back-end implements it.

    ``export`` of memory or of a signal makes a :class:`peerlane.Handle`, whose text is a plain record.
    """

    node_hash: int  #: identifies this node

    def open_handle(self, kind: HandleKind, handle: int | bytes | str, timeout: float) -> Any:
        """Ask the exporter of a handle, for at most ``timeout`` seconds (negative: for ever); return its offer.

        Raises ``BadHandle``, ``AccessDenied``, ``PeerLost`` and ``WaitTimeout``.
        """
        ...

    def open_file(self, fd: int) -> Any:
        """Return the offer of a block's file; ``fd`` stays the caller's.  ``BadHandle`` if it is not such a file."""
        ...

    def maker_of(self, handle: int | bytes | str) -> int | None:
        """Return the pid of a handle's exporter, None if that has ended; ``BadHandle`` if it is not a handle."""
        ...

    @property
    def ranks(self) -> Ranks:
        """Return the further verbs, for ranks that write into each other's memory."""
        ...


@runtime_checkable
class Backend(Addresses, Peers, Copies, Protocol):
    """The devices of one process's node, and the verbs that execute on them."""

    name: str  #: of the back-end: its devices are ``"<name>:<ordinal>"``
    caps: Caps

    @property
    def is_closed(self) -> bool:
        """Whether the process has left it."""
        ...

    def devices(self) -> tuple[DeviceInfo, ...]:
        """Return the devices, in ordinal order."""
        ...

    def ready(self) -> None:
        """Raise ``Closed`` if the process has left it, or is a forked child that cannot have it."""
        ...

    def free_bytes(self, ordinal: int) -> int:
        """Return the bytes of capacity that no process of the node holds."""
        ...

    def allocate(self, ordinal: int, nbytes: int, peer: bool = False) -> Memory:
        """Allocate device memory, aligned to at least 256 bytes; contents are unspecified.

        ``peer``: allocate for access from other devices, if that makes a difference here.
        Raises ``OutOfMemory`` beyond the capacity and ``InvalidValue`` for ``nbytes < 1``.
        """
        ...

    def allocate_host(self, nbytes: int) -> Memory:
        """Allocate pinned host memory (``Caps.PINNED_HOST``): the host may dereference its address."""
        ...

    def close(self) -> None:
        """Leave: all allocations end, and later use of their addresses raises ``BadAddress``."""
        ...


class Factory(Protocol):
    """Enters a back-end; it is registered under the back-end's name."""

    def configure(self, settings: str, source: str) -> object:
        """Return the configuration for ``settings``: ``"devices=2,..."`` without ``backend=``, or a TOML file's path.

        ``source`` says where the settings are written, for the text of an ``InvalidValue`` (``BAD_CONFIG``).
        """
        ...

    def enter(self, config: Any, present: Any) -> Backend:
        """Return the back-end for a configuration.

        ``present`` is the back-end of this name that the process has entered, or None; it is returned if ``config``
        is its configuration.  It stays unchanged if the new one is refused.
        """
        ...
