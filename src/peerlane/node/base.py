"""Devices and the host without the objects that they make: names, facts, capabilities and links."""

from __future__ import annotations

import os
import threading
from typing import Any

from peerlane.backend.facts import Caps, DeviceInfo
from peerlane.backend.interface import Backend
from peerlane.errors import BadArgument, Fault, InvalidValue, Refused
from peerlane.support.late import Late


def checked_size(nbytes: int, what: str) -> int:
    """Return ``nbytes`` if it is an integer from 1 to 2**63 - 1."""
    if type(nbytes) is int and 1 <= nbytes < 1 << 63:
        return nbytes
    if isinstance(nbytes, bool) or not hasattr(type(nbytes), "__index__"):
        raise TypeError(f"{what}: nbytes must be an int, not {type(nbytes).__name__}")
    value = nbytes.__index__()
    if not 1 <= value < 1 << 63:
        raise InvalidValue(
            f"{what}: nbytes is {value:,}; valid are 1 to {(1 << 63) - 1:,}",
            call=what,
            detail=BadArgument("nbytes", value, least=1, most=(1 << 63) - 1),
        )
    return value


class DeviceBase:
    """One device of a back-end that this process has entered."""

    __slots__ = ("_backend", "_info", "_name")

    _backend: Backend
    _info: DeviceInfo
    _name: str

    @property
    def name(self) -> str:
        """The name of the back-end and the device's number there: ``"virtual:0"``."""
        return self._name

    @property
    def ordinal(self) -> int:
        """The device's number in its node, from 0."""
        return self._info.ordinal

    @property
    def info(self) -> DeviceInfo:
        """Facts that do not change while the node lives."""
        return self._info

    @property
    def backend(self) -> Any:  # a Backend, with the verbs that its caps oblige it to
        """The back-end that executes for this device: one object for all devices of a node, closed with the node."""
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
        """Bytes that no process of the node holds; counted in blocks of 2 MiB."""
        return self._backend.free_bytes(self._info.ordinal)

    @property
    def granularity(self) -> int:
        """Bytes: sizes of physical blocks, and starts of address ranges and mappings, are multiples of it."""
        return self._info.granularity

    @property
    def is_closed(self) -> bool:
        """Whether the node was left."""
        return self._backend.is_closed

    def can_access(self, peer: DeviceBase) -> bool:
        """Tell whether ``peers.add(peer)`` is possible; False for the device itself."""
        other = checked_peer(self, peer, "Device.can_access")
        return other != self._info.ordinal and self._backend.can_access(self._info.ordinal, other)

    def why_not(self, peer: DeviceBase) -> str:
        """Return the reason why this device cannot reach ``peer``, or ``""`` if it can."""
        other = checked_peer(self, peer, "Device.why_not")
        return self._backend.why_not(self._info.ordinal, other)

    def link(self, peer: DeviceBase) -> str:
        """Return the kind of link between the two devices, as ``peerlane topo`` names it: ``"PIX"``, ``"HCCS"``, ...

        It is ``"X"`` for the device itself.
        """
        return self._backend.link(self._info.ordinal, checked_peer(self, peer, "Device.link"))

    def __repr__(self) -> str:
        state = " closed" if self.is_closed else ""
        return f"<Device {self.name} {self._info.name}{state}>"


def checked_peer(device: DeviceBase, peer: object, call: str) -> int:
    """Return the ordinal of a device of the same node as another one."""
    if not isinstance(peer, DeviceBase):
        raise TypeError(f"{call}: the peer must be a Device such as device(1), not {type(peer).__name__}")
    if peer._backend is not device._backend:
        raise InvalidValue(
            f"{call}: {peer.name} belongs to another node than {device.name}; take both from one devices() call",
            fault=Fault.WRONG_DEVICE,
            call=call,
            device=device.name,
            detail=Refused(reason="wrong_device", device=device.name, other=peer.name),
        )
    return peer._info.ordinal


class HostBase:
    """The host without the objects that it makes: the device of host buffers."""

    __slots__ = ()

    name = "host"
    is_closed = False  #: Memory of the host outlives each node

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostBase)

    def __hash__(self) -> int:
        return hash(HostBase)

    def __repr__(self) -> str:
        return "<Host>"


_devices: dict[Backend, Any] = {}  # by back-end, a node.device.Devices
_lock = threading.Lock()
os.register_at_fork(after_in_child=lambda: globals().update(_lock=threading.Lock()))

_makers = Late("peerlane.node.device")


def devices_of(backend: Backend) -> Any:  # a node.device.Devices
    """Return the devices of a back-end in order; they are always the same objects."""
    known = _devices.get(backend)
    if known is not None:
        return known
    with _lock:
        for left in [each for each in _devices if each.is_closed]:
            del _devices[left]
        return _devices.setdefault(backend, _makers.make_devices(backend))
