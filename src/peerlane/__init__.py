"""Peer-to-peer copies, shared device memory and one-sided writes, on virtual devices that need no hardware."""

from typing import TYPE_CHECKING

from peerlane import _interpreter as _interpreter  # first: it may refuse
from peerlane import failures as failures  # the texts of native refusals
from peerlane import raw, trace
from peerlane.address_range import AddressRange
from peerlane.backend.interface import Caps, DeviceInfo, HandleKind, Kind, Location
from peerlane.buffer import Buffer, Route, as_buffer
from peerlane.channel import Channel
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
from peerlane.group import Group, Member
from peerlane.notify import Notify, NotifyKind
from peerlane.observers import Observer, set_observer
from peerlane.physical import Physical
from peerlane.sharing import AllowList, Handle
from peerlane.stream import Stream, StreamGroup


class _Doc(str):
    """Asks pytest not to warn when it loads the plugin of a package that `peerlane run` has imported."""

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
        """Look the version up when it is asked for: that takes as long as all of the rest."""
        if name == "__version__":
            from importlib.metadata import version

            return globals().setdefault(name, version("peerlane"))
        from peerlane.spelling import no_attribute

        raise no_attribute(__name__, name, __all__)
