"""Devices, the host, and the live set of a device's peers."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterable, Iterator, MutableSet
from typing import TYPE_CHECKING, Any

from peerlane import _core
from peerlane.backend import registry
from peerlane.backend.facts import Caps, DeviceInfo
from peerlane.backend.interface import Backend
from peerlane.diagnostics import allocations, live_objects, observers
from peerlane.errors import AccessDenied, Closed, Fault, InvalidValue, OutOfMemory
from peerlane.streams.event import Event
from peerlane.streams.notify import Notify, NotifyKind
from peerlane.streams.stream import Stream, checked_stream

if TYPE_CHECKING:
    from peerlane.memory.buffer import Buffer


def checked_size(nbytes: int, what: str) -> int:
    """Return ``nbytes`` if it is a positive integer that an address can span."""
    if isinstance(nbytes, bool) or not hasattr(type(nbytes), "__index__"):
        raise TypeError(f"{what}: nbytes must be an int, not {type(nbytes).__name__}")
    value = nbytes.__index__()
    if not 1 <= value < 1 << 63:
        raise InvalidValue(f"{what}: nbytes is {value:,}; valid are 1 to {(1 << 63) - 1:,}", call=what)
    return value


class Device:
    """One device of the node this process is in.

    Parameters
    ----------
    name : str
        The name of a back-end and a number from 0: ``"virtual:0"``.  The same device is always the same object.  A
        back-end that this process is not in is entered with its defaults.

    Raises
    ------
    InvalidValue
        ``INVALID_DEVICE``: no device of this name; the text lists the valid ones.

    Notes
    -----
    A device becomes Closed when its node is left; its facts stay readable.
    """

    __slots__ = ("_backend", "_info", "_peers")

    _backend: Backend
    _info: DeviceInfo
    _peers: PeerSet

    def __new__(cls, name: str) -> Device:
        if not isinstance(name, str):
            raise TypeError(f"Device: the name must be a str like 'virtual:0', not {type(name).__name__}")
        present = devices()
        kind, _, ordinal = name.partition(":")
        if ordinal.isdecimal() and ordinal.isascii() and len(ordinal) < 6:
            if kind != present[0].backend.name and kind in registry.known():
                present = _devices_of(registry.enter_beside(kind))
            number = int(ordinal)
            if kind == present[0].backend.name and number < len(present) and ordinal == str(number):
                return present[number]
        raise InvalidValue(
            f"no device {name!r}; this node has {present[0].name} to {present[-1].name}",
            fault=Fault.INVALID_DEVICE,
            call="Device",
        )

    @property
    def name(self) -> str:
        """The name of its back-end and its number there: ``"virtual:0"``."""
        return f"{self._backend.name}:{self._info.ordinal}"

    @property
    def ordinal(self) -> int:
        """The device's number in its node, from 0."""
        return self._info.ordinal

    @property
    def info(self) -> DeviceInfo:
        """Facts that do not change while the node lives."""
        return self._info

    @property
    def peers(self) -> PeerSet:
        """The devices whose memory this one may reach: a live set."""
        return self._peers

    @peers.setter
    def peers(self, value: PeerSet) -> None:
        # For ``device.peers |= ...``, which assigns the set to itself.
        if value is not self._peers:
            raise AttributeError("a device's peers are a live set: change it with add, discard, |= or clear")

    @property
    def backend(self) -> Any:  # a Backend, and what its caps oblige it to
        """What executes for this device: one object for all devices of a node, closed when it is left."""
        return self._backend

    @property
    def caps(self) -> Caps:
        """What the device's back-end can do."""
        return self._backend.caps

    @property
    def uuid(self) -> bytes:
        """16 bytes; the same in every process of the node."""
        return self._info.uuid

    @property
    def total_bytes(self) -> int:
        """The device's capacity."""
        return self._info.total_bytes

    @property
    def free_bytes(self) -> int:
        """Capacity not held by any process of the node; counted in blocks of 2 MiB."""
        return self._backend.free_bytes(self._info.ordinal)

    @property
    def granularity(self) -> int:
        """Bytes of which physical blocks are multiples, and address ranges and their mappings begin at."""
        return self._info.granularity

    @property
    def is_closed(self) -> bool:
        """Whether the node was left."""
        return self._backend.is_closed

    def can_access(self, peer: Device) -> bool:
        """Tell whether ``peers.add(peer)`` is possible; False for the device itself."""
        other = self._checked(peer, "Device.can_access")
        return other != self._info.ordinal and self._backend.can_access(self._info.ordinal, other)

    def why_not(self, peer: Device) -> str:
        """Return in words why ``peer`` cannot be reached, or ``""`` if it can."""
        other = self._checked(peer, "Device.why_not")
        return self._backend.why_not(self._info.ordinal, other)

    def link(self, peer: Device) -> str:
        """Return what joins the two devices, as ``peerlane topo`` names it: ``"PIX"``, ``"HCCS"``, ``"SYS"``, ...

        ``"X"`` for the device itself.
        """
        return self._backend.link(self._info.ordinal, self._checked(peer, "Device.link"))

    def allocate(self, nbytes: int, *, stream: Stream | None = None, peer: bool = False) -> Buffer:
        """Allocate device memory; usable at once.

        Parameters
        ----------
        nbytes : int
            Bytes, at least 1.  The bounds are exactly these; the capacity is charged in blocks of 2 MiB.
        stream : Stream, optional
            Free it in the order of this stream: ``close()`` is queued there.
        peer : bool
            Allocate for access from other devices.  Profiles with ``p2p_policy_required`` copy directly
            between devices only memory that was allocated so (facts/acl 4.3).

        Returns
        -------
        Buffer
            Its contents are unspecified; its address is a multiple of 256.

        Raises
        ------
        InvalidValue, OutOfMemory, Closed
            Nothing is allocated then.
        """
        from peerlane.memory.buffer import Buffer

        nbytes = checked_size(nbytes, "Device.allocate")
        stream = checked_stream("Device.allocate", stream)
        if stream is not None and stream.is_closed:
            raise Closed(
                f"Device.allocate: {stream!r} was closed; nothing could be freed in its order",
                call="Device.allocate",
                device=self.name,
            )
        return Buffer._own(self._backend.allocate(self._info.ordinal, nbytes, bool(peer)), self, stream)

    def create_stream(self, *, on_error: str = "stop") -> Stream:
        """Return a new stream of this device.  Thousands may be idle: they have no threads of their own.

        Parameters
        ----------
        on_error : str
            What a failing operation does to those behind it: ``"stop"`` cancels them until a synchronization
            has reported it, ``"continue"`` runs them.

        Raises
        ------
        Closed, InvalidValue
        """
        return Stream._make(self, on_error)

    def create_event(self) -> Event:
        """Return an event that is not recorded yet; ``stream.record(event)`` records it."""
        self._native_number()
        return Event._make(self, None)

    def create_notify(self, kind: NotifyKind | str = NotifyKind.BINARY) -> Notify:
        """Return a signal that one stream records and another one waits for.

        Parameters
        ----------
        kind : NotifyKind or str
            ``"binary"``: records count as one until they are consumed; ``"fifo"``: each counts; ``"strict"``:
            recording again before the last was consumed is a failure.

        Raises
        ------
        Closed, InvalidValue
        """
        kinds = {each.name.lower(): each for each in NotifyKind}
        found = kind if isinstance(kind, NotifyKind) else kinds.get(kind) if isinstance(kind, str) else None
        if found is None:
            raise InvalidValue(
                f"create_notify: kind is {kind!r}; valid are {', '.join(kinds)}, or a NotifyKind",
                call="Device.create_notify",
            )
        return Notify._make(self, found)

    def _native_number(self) -> int:
        return int(self.backend.number(self._info.ordinal))

    def _checked(self, peer: object, call: str) -> int:
        if not isinstance(peer, Device):
            raise TypeError(f"{call}: the peer must be a Device, not {type(peer).__name__}")
        if peer._backend is not self._backend:
            raise InvalidValue(
                f"{call}: {peer.name} belongs to another node than {self.name}; take both from one devices() call",
                fault=Fault.WRONG_DEVICE,
                call=call,
                device=self.name,
            )
        return peer._info.ordinal

    def __reduce__(self) -> tuple[type[Device], tuple[str]]:
        return Device, (self.name,)

    def __repr__(self) -> str:
        state = " closed" if self.is_closed else ""
        return f"<Device {self.name} {self._info.name}{state}>"


class PeerSet(MutableSet[Device]):
    """The devices whose memory one device may reach: a set that is the back-end's own state.

    Adding opens the directed route ``device -> peer`` at once; a copy between two devices is direct when
    a route is open in either direction, else it is staged through the host.
    """

    __slots__ = ("_device",)

    def __init__(self, device: Device) -> None:
        self._device = device

    def add(self, peer: Device) -> None:
        """Open the route to ``peer``; idempotent.

        Raises
        ------
        InvalidValue
            ``PEER_SELF``; ``WRONG_DEVICE`` for a device of another node.
        AccessDenied
            ``PEER_UNREACHABLE``, with the reason (another switch, the chip, the node's matrix).
        OutOfMemory
            ``OUT_OF_RESOURCES`` beyond the profile's number of peers.
        """
        device = self._device
        other = device._checked(peer, "peers.add")
        backend, mine = device._backend, device._info.ordinal
        if other == mine:
            raise InvalidValue(
                f"{device.name} cannot be its own peer; its memory is reachable without peer access",
                fault=Fault.PEER_SELF,
                call="peers.add",
                device=device.name,
            )
        if not backend.can_access(mine, other):
            raise AccessDenied(
                f"{device.name} cannot reach {peer.name}: {backend.why_not(mine, other)}; "
                "`peerlane topo` shows who reaches whom",
                fault=Fault.PEER_UNREACHABLE,
                call="peers.add",
                device=device.name,
            )
        present, most = backend.peers(mine), device._info.max_peers
        if other not in present and len(present) >= most:
            raise OutOfMemory(
                f"{device.name} has {len(present)} peers, the most that a device of this profile may have; "
                "discard one first",
                fault=Fault.OUT_OF_RESOURCES,
                call="peers.add",
                device=device.name,
            )
        backend.set_peer(mine, other, True)

    def discard(self, peer: Device) -> None:
        """Close the route to ``peer``; nothing happens if it is not open."""
        device = self._device
        other = device._checked(peer, "peers.discard")
        if other in device._backend.peers(device._info.ordinal):
            device._backend.set_peer(device._info.ordinal, other, False)

    def __contains__(self, peer: object) -> bool:
        device = self._device
        return (
            isinstance(peer, Device)
            and peer._backend is device._backend
            and peer._info.ordinal in device._backend.peers(device._info.ordinal)
        )

    def __iter__(self) -> Iterator[Device]:
        everyone = _devices_of(self._device._backend)
        return iter(
            [everyone[ordinal] for ordinal in sorted(self._device._backend.peers(self._device.ordinal))]
        )

    def __len__(self) -> int:
        return len(self._device._backend.peers(self._device._info.ordinal))

    @classmethod
    def _from_iterable(cls, it: Iterable[Device]) -> set[Device]:  # type: ignore[override]
        return set(it)  # set operations give plain sets: a PeerSet is one device's state

    def __repr__(self) -> str:
        return f"PeerSet({{{', '.join(peer.name for peer in self)}}})"


class Host:
    """The host: what pinned memory is allocated from, and the device of host buffers."""

    __slots__ = ()

    name = "host"

    def allocate(self, nbytes: int) -> Buffer:
        """Allocate pinned host memory: device copies know it by address and the host may touch it.

        Parameters
        ----------
        nbytes : int
            Bytes, at least 1.  "Pinned" is a kind here, not an ``mlock``: pages come at first touch.

        Raises
        ------
        InvalidValue, OutOfMemory
            Nothing is allocated then.
        """
        from peerlane.memory.buffer import Buffer

        nbytes = checked_size(nbytes, "Host.allocate")
        return Buffer._own(registry.current().allocate_host(nbytes), self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Host)

    def __hash__(self) -> int:
        return hash(Host)

    def __repr__(self) -> str:
        return "<Host>"


_devices: dict[Backend, tuple[Device, ...]] = {}
_devices_lock = threading.Lock()
os.register_at_fork(after_in_child=lambda: globals().update(_devices_lock=threading.Lock()))


def _devices_of(backend: Backend) -> tuple[Device, ...]:
    known = _devices.get(backend)
    if known is not None:
        return known
    with _devices_lock:
        for left in [each for each in _devices if each.is_closed]:
            del _devices[left]
        return _devices.setdefault(backend, _make_devices(backend))


def _make_devices(backend: Backend) -> tuple[Device, ...]:
    made = []
    for info in backend.devices():
        device = object.__new__(Device)
        device._backend, device._info = backend, info
        device._peers = PeerSet(device)
        made.append(device)
    return tuple(made)


def devices() -> tuple[Device, ...]:
    """Return the devices of this process's node, in order, entering the node at the first call.

    The node is described by ``PEERLANE_NODE`` (see ``docs/reference/node.md``); without it there are two
    devices on one switch.
    """
    return _devices_of(registry.current())


#: What is called, without an argument, before a node is left: it must not raise.
before_leaving: list[Callable[[], None]] = []

#: What is called, without an argument, before it is counted what a test left: dialects give back what they keep of
#: memory that the test freed.
before_counting: list[Callable[[], None]] = []


#: What is called, without an argument, when the process has left its node for good: exit handlers and destructors
#: that come later find none.
at_end: list[Callable[[], None]] = []


def leave_node() -> None:
    """Leave the node: all its allocations die, its devices and buffers become Closed.  Idempotent."""
    if observers.active and registry.is_entered():
        observers.tell_id("destroy", "Node", 0)
    if live_objects.active:
        live_objects.node_left(live_objects.leaving())
    for end in before_leaving:
        end()
    allocations.forget_node([record.id for record in allocations.live_records()])
    registry.leave()


def _end() -> None:
    leave_node()
    registry.end()
    for tell in at_end:
        tell()


atexit.register(_end)


def enter_node(spec: str) -> tuple[Device, ...]:
    """Enter the node that ``spec`` describes (inline, or a TOML file), leaving the present one.

    Returns
    -------
    tuple of Device

    Raises
    ------
    InvalidValue
        ``BAD_CONFIG`` or ``NODE_MISMATCH``; the present node is kept then.
    """
    if not isinstance(spec, str):
        raise TypeError(f"enter_node: the node must be described by a str, not {type(spec).__name__}")
    before = registry.current() if registry.is_entered() else None
    old = [record.id for record in allocations.live_records()]
    leaving = live_objects.leaving() if live_objects.active else ()
    entered = registry.enter(spec, "enter_node")
    if entered is not before:
        if before is not None and observers.active:
            observers.tell_id("destroy", "Node", 0)
        live_objects.node_left(leaving)
        allocations.forget_node(old)
    return _devices_of(entered)


def trim() -> int:
    """Give freed blocks that this process keeps for reuse back to the system; return their bytes."""
    return _core.trim()
