"""Peer-to-peer copies, shared device memory and one-sided writes, on virtual devices that need no hardware.

PYTEST_DONT_REWRITE: the package of a plugin, of which pytest warns if it is imported already (``peerlane run``).
"""

from peerlane import _interpreter as _interpreter  # first: it may refuse
from peerlane import failures as failures  # the texts of native refusals
from peerlane import raw, trace
from peerlane.address_range import AddressRange
from peerlane.backend.interface import Caps, DeviceInfo, HandleKind, Kind, Location
from peerlane.buffer import Buffer, Route, as_buffer
from peerlane.copies import copy, copy_2d, copy_batch, fill, reduce
from peerlane.descriptor import CopyDescriptor
from peerlane.device import Device, Host, PeerSet, devices, enter_node, leave_node, trim
from peerlane.errors import (
    AccessDenied,
    BadAddress,
    BadHandle,
    Busy,
    Cancelled,
    Closed,
    DeviceFault,
    Error,
    Fault,
    InvalidValue,
    OutOfMemory,
    PeerLost,
    Unsupported,
    WaitTimeout,
)
from peerlane.event import Event
from peerlane.notify import Notify, NotifyKind
from peerlane.observers import Observer, set_observer
from peerlane.physical import Physical
from peerlane.sharing import AllowList, Handle
from peerlane.stream import Stream, StreamGroup

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
    "Closed",
    "CopyDescriptor",
    "Device",
    "DeviceFault",
    "DeviceInfo",
    "Error",
    "Event",
    "Fault",
    "Handle",
    "HandleKind",
    "Host",
    "InvalidValue",
    "Kind",
    "Location",
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
    "devices",
    "enter_node",
    "fill",
    "leave_node",
    "raw",
    "reduce",
    "set_observer",
    "trace",
    "trim",
]
