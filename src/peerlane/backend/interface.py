"""The verbs that a back-end owes the neutral API.

A back-end has no policy.  Devices are ordinals, memory is integer addresses, and every refusal is an exception of
:mod:`peerlane.errors`.  Every verb is synchronous: when it returns, the bytes have moved.  After a raise nothing was
created and nothing half-made is left.  If a copy fails *while running*, its destination is unspecified.

Any thread may call a verb, and several at a time: a driver with a current device must set it in each call.  If a
back-end has no queues, one thread of the process makes the queued calls of all streams, so a call that waits long
holds up the others.  The neutral API checks sizes, overlaps of a reduction, and that memory is open, before it calls.

* :class:`Memory`: address, size, close; :class:`VisibleMemory` if the host may access it
* :class:`Addresses`: locate
* :class:`VirtualMemory`: physical memory, reserved addresses (``Caps.PHYSICAL``)
* :class:`Peers`: can access, enable, announce
* :class:`Copies`: copy, fill, read, write; batch, rectangles and reductions have default bodies over these
* :class:`Queue`: make streams (``Caps.QUEUE``); a back-end without queues gets the host's
* :class:`Signal`: make events and notifies (``Caps.QUEUE``)
* :class:`Share`: handles of memory and of signals, and opening them (``Caps.SHARE``)
* :class:`Descriptors`: copy lists in device memory (``Caps.DESCRIPTOR``)
* :class:`Buffers`: buffers of the back-end's own, where plain ones would be slow; no capability

Each back-end implements :class:`Backend`: ``Memory``, ``Addresses``, ``Peers`` and ``Copies`` of a set of devices.
The other protocols may change until a second back-end implements them.
:class:`peerlane.backend.base.BackendBase` has the default bodies.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol, runtime_checkable

from peerlane.backend.facts import Caps, DeviceInfo, HandleKind, Location
from peerlane.backend.ranks import Ranks
from peerlane.errors import MemoryHolder


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

        A raw call asks it about each of its addresses, so it must be quick.  Raises ``BadAddress`` for an address
        that only this back-end can have given out, and that lies in no allocation.
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
        """Announce to the other processes whether this one enables the direction; idempotent.

        It opens no route.  A copy that must be direct is also possible if both directions are announced, each by this
        process or by one whose announcement counts here.  A back-end of one process keeps the announcement to itself.
        Only dialects call it.
        """
        ...

    def is_announced(self, ordinal: int, peer: int) -> bool:
        """Tell whether this process has announced the direction, or one whose announcement counts here.

        The announcement of a process counts if one of the two has opened a handle of the other.
        """
        ...

    def count_all_announcements(self, counts: bool) -> None:
        """Let the announcements of all processes of the node count, or only of those that share handles."""
        ...

    def announcers(self, ordinal: int, peer: int) -> tuple[int, ...]:
        """Return the pids of the other processes that announce the direction, whether that counts here or not."""
        ...

    def relied_on(self) -> tuple[int, ...]:
        """Return the pids of the other processes without whose announcements copies had been refused."""
        ...


class Copies(Protocol):
    """Verbs that move bytes.  Addresses are the back-end's own; host memory is an object with the buffer protocol.

    Each verb raises ``BadAddress`` (unknown, freed, beyond the allocation) before a byte is written, and its text
    names the operand: destination or source.
    """

    def copy(self, dst: int, src: int, nbytes: int) -> None:
        """Copy ``nbytes`` between any two of its addresses; overlapping ranges are copied as by ``memmove``.

        0 bytes are a no-op.
        """
        ...

    def fill(self, address: int, value: int, width: int, count: int) -> None:
        """Write ``count`` elements of ``width`` bytes (1, 2 or 4), each holding ``value``, little-endian.

        ``Caps.FILL``; a count of 0 is a no-op.
        """
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
        """Copy ``height`` rows of ``width`` bytes whose starts lie ``pitch`` bytes apart, at least ``width``."""
        ...

    def reduce(self, dst: int, src: int, count: int, dtype: str, op: str) -> None:
        """Combine ``count`` elements at ``src`` into those at ``dst``; names as for :func:`peerlane.reduce`."""
        ...


class VirtualMemory(Protocol):
    """Physical memory and addresses, separately: ``Caps.PHYSICAL``.

    ``device`` is a :class:`peerlane.Device`.  The verbs return objects of the back-end's own classes.
    """

    def create_physical(self, device: Any, nbytes: int, peer: bool) -> Any:
        """Return a :class:`peerlane.Physical` of ``nbytes``, a multiple of the granularity.

        ``device``: a device; or the host, with ``Caps.PINNED_HOST``.
        """
        ...

    def reserve(self, device: Any, nbytes: int, alignment: int, wanted: int) -> Any:
        """Return a :class:`peerlane.AddressRange`, at ``wanted`` if that is free.

        Raises ``OutOfMemory`` if there are not enough addresses.
        """
        ...


class Queue(Protocol):
    """Streams of the back-end's own: ``Caps.QUEUE``.

    ``device`` is a :class:`peerlane.Device`; ``on_error`` is ``"stop"`` or ``"continue"``, as
    :meth:`peerlane.Device.create_stream` says.
    """

    def create_stream(self, device: Any, on_error: str) -> Any:
        """Return a new :class:`peerlane.Stream`."""
        ...

    def create_stream_group(self, device: Any, on_error: str) -> Any:
        """Return a new :class:`peerlane.StreamGroup`."""
        ...

    def sync_device(self, device: Any, timeout: float | None) -> None:
        """Wait until the operations of all streams of the device are over, as :meth:`peerlane.Device.sync` says."""
        ...


class Signal(Protocol):
    """Events and notifies, which streams record and wait for.  May change until a second back-end implements it."""

    def create_event(self, device: Any) -> Any:
        """Return a new :class:`peerlane.Event` without a record."""
        ...

    def create_notify(self, device: Any, kind: int) -> Any:
        """Return a new :class:`peerlane.Notify` of a :class:`peerlane.NotifyKind`."""
        ...


class Offer(Protocol):
    """The memory or signal that another process offers by a handle; ``close`` releases it if no object was made."""

    @property
    def device(self) -> int:
        """The ordinal that the other process claims; it may be out of range."""
        ...

    @property
    def size(self) -> int:
        """The bytes behind the offer; 0 is refused by the neutral API."""
        ...

    def close(self) -> None: ...


class Share(Protocol):
    """Memory and signals of other processes: ``Caps.SHARE``.

    ``export`` of memory or of a signal makes a :class:`peerlane.Handle`, whose text is a plain record.  It is
    opened in two steps: ``open_handle`` or ``open_file`` returns an :class:`Offer`; the neutral API checks the offer,
    and passes it to the verb that makes an object of it.
    """

    node_hash: int  #: differs from that of a process with other devices

    def open_handle(self, kind: HandleKind, handle: int | bytes | str, timeout: float) -> Offer:
        """Ask the exporter of a handle, for at most ``timeout`` seconds (negative: for ever); return its offer.

        Raises ``BadHandle``, ``AccessDenied``, ``PeerLost`` and ``WaitTimeout``.
        """
        ...

    def open_file(self, fd: int) -> Offer:
        """Return the offer of a block's file; ``fd`` stays the caller's.  ``BadHandle`` if it is not such a file."""
        ...

    def open_buffer(self, offer: Any, home: Any, device: Any) -> Any:
        """Return a :class:`peerlane.Buffer` of offered memory.

        ``home`` is the :class:`peerlane.Device` that has the memory, ``device`` the one that will use it.
        """
        ...

    def export_host(self, buffer: Any) -> Any:
        """Return a :class:`peerlane.Handle` of pinned memory of the host, for all processes of this user."""
        ...

    def open_host(self, handle: bytes, timeout: float) -> Any:
        """Return a :class:`peerlane.Buffer` of what :meth:`export_host` made a handle of; fails as `open_handle`."""
        ...

    def buffer_at(self, address: int, nbytes: int, device: Any) -> Any:
        """Return a :class:`peerlane.Buffer` on memory of a device that lives at an address; it owns nothing."""
        ...

    def open_physical(self, offer: Any, home: Any, device: Any) -> Any:
        """Return a :class:`peerlane.Physical` of offered memory (with ``Caps.PHYSICAL``); devices as above."""
        ...

    def open_event(self, offer: Any, device: Any) -> Any:
        """Return a :class:`peerlane.Event` that another process records."""
        ...

    def open_notify(self, offer: Any, device: Any) -> Any:
        """Return a :class:`peerlane.Notify` that is shared with other processes."""
        ...

    def maker_of(self, handle: int | bytes | str) -> int | None:
        """Return the pid of a handle's exporter, None if that has ended; ``BadHandle`` if it is not a handle."""
        ...

    @property
    def ranks(self) -> Ranks:
        """Return the further verbs, for ranks that write into each other's memory."""
        ...


class Descriptors(Protocol):
    """Copy lists in device memory: ``Caps.DESCRIPTOR``.  The virtual devices' own: native code launches them."""

    def number(self, ordinal: int) -> int:
        """Return the number by which ``peerlane.backend.host.launch_descriptor`` knows a device."""
        ...


class Buffers(Protocol):
    """Buffers of the back-end's own, for speed; a back-end without ``make_buffer`` gets plain ones."""

    def make_buffer(self, memory: Any, device: Any, stream: Any) -> Any:
        """Return the :class:`peerlane.Buffer` that owns memory of ``allocate`` or ``allocate_host``.

        ``device`` is a :class:`peerlane.Device` or the :class:`peerlane.Host`; ``stream``, where there is one, the
        :class:`peerlane.Stream` in whose order the memory is freed.
        """
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

    def memory_holders(self, ordinal: int) -> tuple[MemoryHolder, ...]:
        """Return the processes of the node that hold memory of a device, this one too, by their pids."""
        ...

    def allocate(self, ordinal: int, nbytes: int, peer: bool = False) -> Memory:
        """Allocate device memory, aligned to at least 256 bytes; contents are unspecified.

        ``peer``: allocate for access from other devices, if that makes a difference here.
        Raises ``OutOfMemory`` beyond the capacity and ``InvalidValue`` for ``nbytes < 1``.
        """
        ...

    def allocate_host(self, nbytes: int) -> VisibleMemory:
        """Allocate pinned host memory (``Caps.PINNED_HOST``).

        The host may dereference its address, and every verb takes the address as one of a device.  ``locate`` gives
        ``Kind.PINNED`` and ordinal -1 for it.
        """
        ...

    def close(self) -> None:
        """Leave the node; idempotent.

        Every allocation ends.  ``allocate``, and verbs that need an allocation, raise ``Closed`` then.
        """
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
