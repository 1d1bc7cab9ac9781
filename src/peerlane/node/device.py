"""Devices, the host, and the live set of a device's peers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, MutableSet
from functools import partial
from typing import Any, SupportsIndex, overload

from peerlane.backend import host, registry
from peerlane.backend.facts import MAX_DEVICES
from peerlane.backend.interface import Backend
from peerlane.diagnostics import live_objects
from peerlane.diagnostics.log import observers
from peerlane.diagnostics.memory import allocations
from peerlane.errors import AccessDenied, BadArgument, Closed, Fault, InvalidValue, OutOfMemory, Refused
from peerlane.memory.buffer import Buffer
from peerlane.memory.plain_buffer import plain_buffer
from peerlane.node import base
from peerlane.node.base import DeviceBase, HostBase, checked_peer, checked_size
from peerlane.streams.event import Event
from peerlane.streams.notify import Notify, NotifyKind
from peerlane.streams.stream import Stream, checked_stream, queues_of
from peerlane.support import exits


class Device(DeviceBase):
    """One device of the node that this process is in.

    Parameters
    ----------
    name : str or int
        The name of a back-end and a number from 0: ``"virtual:0"``; or the number alone, for a device of this
        process's node.  One device is always one object.  If this process has not entered the back-end, it enters it
        with its defaults.

    Raises
    ------
    InvalidValue
        ``INVALID_DEVICE``: there is no device of this name; the text lists the valid ones.

    Notes
    -----
    A device becomes Closed when its node is left; its facts stay readable.

    Examples
    --------
    >>> device = pl.device(0)
    >>> device
    <Device virtual:0 Virtual>
    >>> with device.allocate(1 << 20) as buffer:
    ...     print(buffer.nbytes, buffer.device is device)
    1048576 True
    """

    __slots__ = ("_make_buffer", "_peers")

    _make_buffer: Callable[[Any, Device, Stream | None], Buffer]
    _peers: PeerSet

    def __new__(cls, name: str | int) -> Device:
        if isinstance(name, bool) or not (isinstance(name, str) or hasattr(type(name), "__index__")):
            raise TypeError(
                f"Device: the name must be a str like 'virtual:0' or an int from 0, not {type(name).__name__}"
            )
        present = devices()
        kind, number = present[0].backend.name, None
        if not isinstance(name, str):
            name = number = operator.index(name)
        else:
            kind, _, ordinal = name.partition(":")
            if (
                ordinal.isdecimal()
                and ordinal.isascii()
                and len(ordinal) < 6
                and ordinal == str(int(ordinal))
            ):
                number = int(ordinal)
            if number is not None and kind != present[0].backend.name and kind in registry.known():
                present = base.devices_of(registry.enter_beside(kind))
        is_known = number is not None and kind == present[0].backend.name
        if is_known and number is not None and 0 <= number < len(present):
            return present[number]
        raise InvalidValue(
            f"no device {name!r}; {present.advice(number if is_known else None)}",
            fault=Fault.INVALID_DEVICE,
            call="Device",
            detail=BadArgument("name", name, choices=tuple(each.name for each in present)),
        )

    @property
    def peers(self) -> PeerSet:
        """The devices whose memory this one may reach: a live set."""
        return self._peers

    @peers.setter
    def peers(self, value: PeerSet) -> None:
        # For ``device.peers |= ...``, which assigns the set to itself.
        if value is not self._peers:
            raise AttributeError("a device's peers are a live set: change it with add, discard, |= or clear")

    def allocate(self, nbytes: int, *, stream: Stream | None = None, peer: bool = False) -> Buffer:
        """Allocate device memory; it is usable at once.

        Parameters
        ----------
        nbytes : int
            Bytes, at least 1.  The bounds are exactly these.  Virtual devices charge their capacity in blocks of
            2 MiB.
        stream : Stream, optional
            Free the memory in the order of this stream: ``close()`` is queued there.
        peer : bool
            Allocate for access from other devices.  Under a profile with ``p2p_policy_required``, only such memory
            is copied directly between devices (facts/acl 4.3).

        Returns
        -------
        Buffer
            Its contents are unspecified; its address is a multiple of 256.

        Raises
        ------
        InvalidValue, OutOfMemory, Closed
            Nothing was allocated.
        """
        nbytes = checked_size(nbytes, "Device.allocate")
        stream = checked_stream("Device.allocate", stream)
        if stream is not None and stream.is_closed:
            raise Closed(
                f"Device.allocate: {stream!r} was closed, so that nothing could be freed in its order; give an open "
                "stream",
                call="Device.allocate",
                device=self.name,
                detail=Refused(reason="closed", what=repr(stream)),
            )
        memory = self._backend.allocate(self._info.ordinal, nbytes, bool(peer))
        return self._make_buffer(memory, self, stream)

    def sync(self, timeout: float | None = None) -> None:
        """Wait until all that this process submitted to the device's streams is over; report the first failure.

        It waits for streams that the program dropped, too.  Devices whose back-end has no queues of its own wait for
        one another's streams.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.

        Raises
        ------
        Error
            The first failure of one of the streams; the others report theirs at their own synchronization.
        WaitTimeout, Deadlock
            As :meth:`Stream.sync`.

        Examples
        --------
        >>> device = pl.device(0)
        >>> a, b = device.allocate(64), device.allocate(64)
        >>> stream = device.create_stream()
        >>> pl.copy(a, bytes(range(64)), stream=stream)
        >>> pl.copy(b, a, stream=stream)
        >>> device.sync()
        >>> b.view()[:4]
        array([0, 1, 2, 3], dtype=uint8)
        """
        queues_of(self).sync_device(self, timeout)

    def create_stream(self, *, on_error: str = "stop") -> Stream:
        """Return a new stream of this device.  Thousands may be idle: they have no threads of their own.

        Parameters
        ----------
        on_error : str
            What happens to the operations behind a failed one: ``"stop"`` cancels them until a synchronization has
            reported the failure, ``"continue"`` runs them.

        Raises
        ------
        Closed, InvalidValue
        """
        stream: Stream = queues_of(self).create_stream(self, on_error)
        return stream

    def create_event(self) -> Event:
        """Return an event without a record; ``stream.record(event)`` records it."""
        event: Event = queues_of(self).create_event(self)
        return event

    def create_notify(self, kind: NotifyKind | str = NotifyKind.BINARY) -> Notify:
        """Return a signal that one stream records and another one waits for.

        Parameters
        ----------
        kind : NotifyKind or str
            ``"binary"``: all records since the last wait count as one; ``"fifo"``: each record counts;
            ``"strict"``: a record before the last one was consumed is a failure.

        Raises
        ------
        Closed, InvalidValue
        """
        kinds = {each.name.lower(): each for each in NotifyKind}
        notify_kind = (
            kind if isinstance(kind, NotifyKind) else kinds.get(kind) if isinstance(kind, str) else None
        )
        if notify_kind is None:
            raise InvalidValue(
                f"create_notify: kind is {kind!r}; valid are {', '.join(kinds)}, or a NotifyKind",
                call="Device.create_notify",
                detail=BadArgument("kind", kind, choices=tuple(kinds)),
            )
        notify: Notify = queues_of(self).create_notify(self, notify_kind)
        return notify

    def __reduce__(self) -> tuple[type[Device], tuple[str]]:
        return Device, (self.name,)


class PeerSet(MutableSet[Device]):
    """The devices whose memory one device may reach: a live set, the back-end's own state.

    Adding a peer opens the directed route ``device -> peer`` at once.  A copy between two devices is direct if a
    route is open in either direction; else it is staged through the host.

    Examples
    --------
    >>> one, other = pl.device(0), pl.device(1)
    >>> one.peers.add(other)
    >>> one.peers
    PeerSet({virtual:1})
    >>> one.peers.clear()
    """

    __slots__ = ("_device",)

    def __init__(self, device: Device) -> None:
        self._device = device

    def add(self, peer: Device) -> None:
        """Open the route to ``peer``; idempotent.

        Raises
        ------
        InvalidValue
            ``PEER_SELF``: it is this device; ``WRONG_DEVICE``: it belongs to another node.
        AccessDenied
            ``PEER_UNREACHABLE``, with the reason (another switch, the chip, the node's matrix).
        OutOfMemory
            ``OUT_OF_RESOURCES``: the device has as many peers as its profile allows.
        """
        device = self._device
        other = checked_peer(device, peer, "peers.add")
        backend, mine = device._backend, device._info.ordinal
        if other == mine:
            raise InvalidValue(
                f"{device.name} cannot be its own peer; its memory is reachable without peer access",
                fault=Fault.PEER_SELF,
                call="peers.add",
                device=device.name,
                detail=Refused(reason="peer_self", device=device.name),
            )
        if not backend.can_access(mine, other):
            raise AccessDenied(
                f"{device.name} cannot reach {peer.name}: {backend.why_not(mine, other)}; "
                "`peerlane topo` shows who reaches whom",
                fault=Fault.PEER_UNREACHABLE,
                call="peers.add",
                device=device.name,
                detail=Refused(
                    reason="unreachable", device=device.name, peer=peer.name, why=backend.why_not(mine, other)
                ),
            )
        present, most = backend.peers(mine), device._info.max_peers
        if other not in present and len(present) >= most:
            raise OutOfMemory(
                f"{device.name} has {len(present)} peers, the most that a device of this profile may have; "
                "discard one first",
                fault=Fault.OUT_OF_RESOURCES,
                call="peers.add",
                device=device.name,
                detail=Refused(reason="peers_full", device=device.name, most=len(present)),
            )
        backend.set_peer(mine, other, True)

    def discard(self, peer: Device) -> None:
        """Close the route to ``peer``; do nothing if it is not open."""
        device = self._device
        other = checked_peer(device, peer, "peers.discard")
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
        everyone = base.devices_of(self._device._backend)
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


class Host(HostBase):
    """The host: pinned memory is allocated from it, and it is the device of host buffers.

    Examples
    --------
    >>> with pl.Host().allocate(64) as pinned:
    ...     pinned.fill(3)
    ...     print(pinned.device, bytes(pinned[:2]))
    <Host> b'\\x03\\x03'
    """

    __slots__ = ()

    def allocate(self, nbytes: int) -> Buffer:
        """Allocate pinned host memory: copies find it by its address, and the host may touch it.

        Parameters
        ----------
        nbytes : int
            Bytes, at least 1.  With virtual devices "pinned" is a kind, not an ``mlock``: pages come at
            first touch.

        Raises
        ------
        InvalidValue, OutOfMemory
            Nothing is allocated then.
        Unsupported
            The back-end of the node has no pinned memory (``Caps.PINNED_HOST``).
        """
        nbytes = checked_size(nbytes, "Host.allocate")
        backend = registry.current()
        return _buffers_of(backend)(backend.allocate_host(nbytes), self, None)


def _buffers_of(backend: Backend) -> Callable[[Any, Any, Stream | None], Buffer]:
    """Return the function that makes a buffer of an allocation, a device or the host, and a stream."""
    own: Callable[[Any, Any, Stream | None], Buffer] | None = getattr(backend, "make_buffer", None)
    return own or partial(plain_buffer, backend)


class Devices(tuple[Device, ...]):
    """The devices of a node, in order; an index beyond them is refused with their number."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return a table of the devices and their links, for notebooks."""
        from peerlane.diagnostics.pictures import table_of_devices  # which few programs need

        return table_of_devices(self)

    def advice(self, ordinal: int | None) -> str:
        """Return how many devices there are, and which setting makes a node in which ``ordinal`` is one."""
        count = len(self)
        text = f"the node has {count:,} device{'s' * (count != 1)}, {self[0].name}"
        if count > 1:
            text += f" to {self[-1].name}"
        backend = self[0].backend
        if ordinal is None or not count <= ordinal < MAX_DEVICES or backend is not registry.current():
            return text
        setting = f"devices={ordinal + 1}"
        if backend.name != registry.DEFAULT:
            setting = f"backend={backend.name},{setting}"
        return f"{text}; {registry.VARIABLE}={setting} before the program starts gives it more"

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Device: ...
    @overload
    def __getitem__(self, index: slice, /) -> tuple[Device, ...]: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> Device | tuple[Device, ...]:
        try:
            return super().__getitem__(index)
        except IndexError:
            ordinal = int(index)  # type: ignore[arg-type]  # a slice raises no IndexError
            raise IndexError(f"no device {ordinal}; {self.advice(ordinal)}") from None


def make_devices(backend: Backend) -> Devices:
    created = []
    for info in backend.devices():
        device = object.__new__(Device)
        device._backend, device._info, device._name = backend, info, f"{backend.name}:{info.ordinal}"
        device._peers = PeerSet(device)
        device._make_buffer = _buffers_of(backend)
        created.append(device)
    return Devices(created)


def device(which: str | int = 0) -> Device:
    """Return one device of this process's node: ``pl.device(1)``, ``pl.device("virtual:1")``.

    Parameters
    ----------
    which : int or str
        Its number from 0, or its name.

    Raises
    ------
    InvalidValue
        ``INVALID_DEVICE``: there is no such device; the text says how many there are, and how to have more.

    Examples
    --------
    >>> pl.device(1)
    <Device virtual:1 Virtual>
    >>> pl.device("virtual:1") is pl.device(1) is pl.devices()[1]
    True
    """
    return Device(which)


def devices() -> Devices:
    """Return the devices of this process's node, in order; the first call enters the node.

    ``PEERLANE_NODE`` describes the node (see ``docs/reference/node.md``).  Without it the node has two devices on one
    switch.

    Examples
    --------
    >>> [device.name for device in pl.devices()]
    ['virtual:0', 'virtual:1']
    """
    present: Devices = base.devices_of(registry.current())
    return present


#: Functions to call, without an argument, before the process leaves a node: they must not raise.
before_leaving: list[Callable[[], None]] = []

#: Functions to call, without an argument, before a test's leaks are counted: dialects release memory that the test
#: freed and that they still keep.
before_counting: list[Callable[[], None]] = []


#: Functions to call, without an argument, when the process has left its node for good: exit handlers and destructors
#: that run later find no node.
at_end: list[Callable[[], None]] = []


def leave_node() -> None:
    """Leave the node: its allocations end, and its devices and buffers become Closed.  Idempotent.

    Examples
    --------
    >>> buffer = pl.device(0).allocate(64)
    >>> pl.leave_node()
    >>> buffer.is_closed
    True
    """
    if observers.active and registry.is_entered():
        observers.send_id("destroy", "Node", 0)
    if live_objects.active:
        live_objects.node_left(live_objects.at_node_exit())
    for end in before_leaving:
        end()
    allocations.forget_node([record.id for record in allocations.live_records()])
    registry.leave()


def _end() -> None:
    leave_node()
    registry.end()
    for handler in at_end:
        handler()


exits.handlers.append(_end)


def enter_node(spec: str) -> Devices:
    """Leave the present node and enter the one that ``spec`` describes, inline or as the path of a TOML file.

    Returns
    -------
    tuple of Device

    Raises
    ------
    InvalidValue
        ``BAD_CONFIG`` or ``NODE_MISMATCH``; the process stays in its present node.

    Examples
    --------
    >>> [device.name for device in pl.enter_node("name=lab,devices=2")]
    ['virtual:0', 'virtual:1']
    """
    if not isinstance(spec, str):
        raise TypeError(
            f"enter_node: the node must be described by a str such as 'devices=2', not {type(spec).__name__}"
        )
    before = registry.current() if registry.is_entered() else None
    old = [record.id for record in allocations.live_records()]
    leaving = live_objects.at_node_exit() if live_objects.active else ()
    entered = registry.enter(spec, "enter_node")
    if entered is not before:
        if before is not None and observers.active:
            observers.send_id("destroy", "Node", 0)
        live_objects.node_left(leaving)
        allocations.forget_node(old)
    present: Devices = base.devices_of(entered)
    return present


def trim() -> int:
    """Return to the system the freed blocks that this process keeps for reuse; return their bytes.

    Examples
    --------
    >>> pl.device(0).allocate(1 << 20).close()
    >>> pl.trim() >= 1 << 20
    True
    """
    return host.trim()
