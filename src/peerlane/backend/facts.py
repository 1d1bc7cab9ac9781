"""Facts that a back-end gives the neutral API: plain values with the same meaning for every back-end."""

from __future__ import annotations

import enum

from peerlane.support.records import dataclass

MAX_DEVICES = 4096  #: of a node
HOST_ORDINAL = 0xFFFF_FFFF  #: in an offer, for memory of the host


class Caps(enum.Flag):
    """The capabilities of a back-end; each flag obliges the back-end to implement the verbs that are named here.

    Examples
    --------
    >>> pl.Caps.QUEUE in pl.device(0).caps
    True
    """

    NONE = 0
    PEER = enum.auto()  #: ``set_peer``: ``Peers`` beyond the defaults
    COPY_2D = enum.auto()  #: ``copy_2d`` of its own; else rectangles are copied row by row
    FILL = enum.auto()  #: ``fill``; else fills are refused
    PINNED_HOST = enum.auto()  #: ``allocate_host``; else ``Host().allocate`` is refused
    PHYSICAL = enum.auto()  #: ``VirtualMemory``
    SHARE = enum.auto()  #: ``Share``
    HOST_VIEW = enum.auto()  #: ``Memory.host_view``: the host may read and write device memory through it
    QUEUE = enum.auto()  #: ``Queue`` and ``Signal`` of its own; else its devices have streams of the host
    DESCRIPTOR = enum.auto()  #: ``Descriptors``: copy lists in device memory, read when they are launched


class HandleKind(enum.IntEnum):
    """The kind of object that a handle exports.

    Examples
    --------
    >>> [kind.name for kind in pl.HandleKind]
    ['PHYSICAL', 'BUFFER', 'EVENT', 'NOTIFY', 'NOTIFIES']
    """

    PHYSICAL = 1
    BUFFER = 2
    EVENT = 3
    NOTIFY = 4
    NOTIFIES = 5


class Kind(enum.Enum):
    """The kind of memory that an address points at.

    Examples
    --------
    >>> with pl.Host().allocate(8) as pinned:
    ...     print(pl.raw.locate(pinned.address).kind.value)
    pinned host
    """

    DEVICE = "device"
    PINNED = "pinned host"
    PAGEABLE = "pageable host"


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """Facts of one device that do not change while its node lives.

    Attributes
    ----------
    ordinal : int
        Its place in ``devices()``.
    name : str
        The name of its kind, for people.
    uuid : bytes
        16 bytes, the same in every process.
    total_bytes : int
        Its capacity.
    switch : int
        The number of the switch or island that it is connected to; 0 for all devices if there is one switch.
    granularity : int
        Bytes of which physical memory (``Caps.PHYSICAL``) is a multiple; 1 without that capability.
    max_peers : int
        How many peers it may have at a time.
    routes_peer_memory_only : bool
        Whether memory must be allocated with ``peer=True`` to be copied directly.
    is_host_mapped : bool
        Whether the host may touch its addresses.
    max_streams, max_notifies : int
        How many of them a dialect with such limits gives out; 0 if no dialect runs on the back-end.

    Examples
    --------
    >>> info = pl.device(1).info
    >>> info.ordinal, len(info.uuid), info.granularity
    (1, 16, 2097152)
    """

    ordinal: int
    name: str
    uuid: bytes
    total_bytes: int
    switch: int
    granularity: int
    max_peers: int
    routes_peer_memory_only: bool
    is_host_mapped: bool
    max_streams: int
    max_notifies: int


@dataclass(frozen=True, slots=True)
class Location:
    """The allocation that an address lies in.

    ``base`` and ``size`` are the allocation's (0 for pageable memory).  ``allocation`` is its number, unique in the
    process, from ``peerlane.backend.host.next_allocation()``.  ``ordinal`` is the device, or -1 for host memory.

    Examples
    --------
    >>> with pl.device(1).allocate(64) as buffer:
    ...     location = pl.raw.locate(buffer.address + 8)
    ...     print(location.ordinal, location.base == buffer.address, location.size)
    1 True 64
    """

    kind: Kind
    ordinal: int
    base: int
    size: int
    allocation: int


@dataclass(frozen=True, slots=True)
class Route:
    """The route of a copy between two buffers: ``kind`` is local, peer, staged or host; ``reason`` is in words.

    Examples
    --------
    >>> one, other = pl.devices()
    >>> one.peers.add(other)
    >>> with one.allocate(8) as target, other.allocate(8) as source:
    ...     print(source.route_to(target).kind)
    peer
    """

    kind: str
    reason: str
