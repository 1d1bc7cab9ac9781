"""Peer-to-peer copies, shared device memory and one-sided writes, on virtual devices that need no hardware."""

from typing import TYPE_CHECKING

from peerlane import _interpreter as _interpreter  # first: it may refuse the interpreter
from peerlane.backend.facts import Caps, DeviceInfo, HandleKind, Kind, Location, Route
from peerlane.backends.virtual import factory as _virtual  # noqa: F401 - what the neutral API finds on the host
from peerlane.backends.virtual.messages import streams as _texts_of_refusals  # noqa: F401 - native code asks it
from peerlane.collectives.group import Group
from peerlane.devices.device import Device, Host, PeerSet, devices, enter_node, leave_node, trim
from peerlane.diagnostics import event_log as _event_log
from peerlane.diagnostics import trace
from peerlane.diagnostics.observers import Observer, set_observer
from peerlane.diagnostics.order import Order as order
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
from peerlane.ranks.channel import Channel
from peerlane.ranks.session import Member
from peerlane.sharing.handle import AllowList, Handle
from peerlane.streams.event import Event
from peerlane.streams.notify import Notify, NotifyKind
from peerlane.streams.stream import Stream, StreamGroup

_event_log.begin_as_told()
if _event_log.active:
    from peerlane.diagnostics import host_order as _host_order  # which a program without a log does not need

    _host_order.install()


class _Doc(str):
    """A docstring against a warning of pytest: `peerlane run` imports the package before pytest loads its plugin."""

    __slots__ = ()

    def __contains__(self, word: object) -> bool:
        return word == "PYTEST_DONT_REWRITE" or (isinstance(word, str) and super().__contains__(word))


__doc__ = _Doc(__doc__)

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

if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name: str) -> object:
        """Look the version up on demand: the look-up takes as long as the rest of the import."""
        if name == "__version__":
            from importlib.metadata import version

            return globals().setdefault(name, version("peerlane"))
        from peerlane.support.spelling import no_attribute

        raise no_attribute(__name__, name, __all__)
