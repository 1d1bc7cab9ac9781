"""Peer-to-peer copies, shared device memory and one-sided writes, on virtual devices that need no hardware."""

from peerlane import _interpreter as _interpreter  # first: it may refuse
from peerlane import raw
from peerlane.backend.interface import Caps, DeviceInfo, Kind, Location
from peerlane.buffer import Buffer, Route, as_buffer
from peerlane.copies import copy, copy_2d, fill
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

__all__ = [
    "AccessDenied",
    "BadAddress",
    "BadHandle",
    "Buffer",
    "Busy",
    "Cancelled",
    "Caps",
    "Closed",
    "Device",
    "DeviceFault",
    "DeviceInfo",
    "Error",
    "Fault",
    "Host",
    "InvalidValue",
    "Kind",
    "Location",
    "OutOfMemory",
    "PeerLost",
    "PeerSet",
    "Route",
    "Unsupported",
    "WaitTimeout",
    "as_buffer",
    "copy",
    "copy_2d",
    "devices",
    "enter_node",
    "fill",
    "leave_node",
    "raw",
    "trim",
]
