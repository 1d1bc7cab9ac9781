"""All public names of `peerlane`, which takes them from here at the first look at one."""

from collections.abc import Callable as _Callable
from os import environ as _environ
from warnings import warn as _warn

from peerlane.backend.facts import Caps, DeviceInfo, HandleKind, Kind, Location, Route
from peerlane.backends.virtual import factory as _virtual  # noqa: F401 - what native code needs after a fork
from peerlane.collectives.group import Group
from peerlane.diagnostics import tracebacks as _tracebacks
from peerlane.diagnostics.log import trace
from peerlane.diagnostics.log.observers import Observer, set_observer
from peerlane.diagnostics.log.order import Order as order
from peerlane.errors import (
    AccessDenied,
    BadAddress,
    BadHandle,
    Busy,
    Cancelled,
    Closed,
    Deadlock,
    DeviceFault,
    Error,
    Fault,
    InvalidValue,
    OutOfMemory,
    PeerLost,
    Unsupported,
    WaitTimeout,
)
from peerlane.memory import raw
from peerlane.memory.address_range import AddressRange
from peerlane.memory.buffer import Buffer, as_buffer
from peerlane.memory.copy import copy, copy_2d, copy_batch, fill, reduce
from peerlane.memory.descriptor import CopyDescriptor
from peerlane.memory.physical import Physical
from peerlane.node.device import Device, Host, PeerSet, device, devices, enter_node, leave_node, trim
from peerlane.ranks.channel import Channel
from peerlane.ranks.session import Member
from peerlane.sharing.handle import AllowList, Handle
from peerlane.streams.event import Event
from peerlane.streams.notify import Notify, NotifyKind
from peerlane.streams.stream import Stream, StreamGroup
from peerlane.support.variables import misspelt as _misspelt

for _name, _meant in _misspelt(_environ):
    _warn(f"the variable {_name} means nothing to peerlane; did you mean {_meant}?", stacklevel=2)


def _show_at_launch(traceback: _Callable[[], str]) -> bool:
    if "PEERLANE_LAUNCHED_STDERR" not in _environ:
        return False
    from peerlane.rendezvous.reports import show_end  # which takes long to import

    return show_end(traceback)


_tracebacks.install(_show_at_launch)

__all__ = [
    "AccessDenied",
    "AddressRange",
    "AllowList",
    "BadAddress",
    "BadHandle",
    "Buffer",
    "Busy",
    "Cancelled",
    "Caps",
    "Channel",
    "Closed",
    "CopyDescriptor",
    "Deadlock",
    "Device",
    "DeviceFault",
    "DeviceInfo",
    "Error",
    "Event",
    "Fault",
    "Group",
    "Handle",
    "HandleKind",
    "Host",
    "InvalidValue",
    "Kind",
    "Location",
    "Member",
    "Notify",
    "NotifyKind",
    "Observer",
    "OutOfMemory",
    "PeerLost",
    "PeerSet",
    "Physical",
    "Route",
    "Stream",
    "StreamGroup",
    "Unsupported",
    "WaitTimeout",
    "as_buffer",
    "copy",
    "copy_2d",
    "copy_batch",
    "device",
    "devices",
    "enter_node",
    "fill",
    "leave_node",
    "order",
    "raw",
    "reduce",
    "set_observer",
    "trace",
    "trim",
]
