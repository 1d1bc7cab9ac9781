"""Physical memory: bytes of a device without an address, which address ranges map and processes share."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from peerlane.backend.facts import Caps, HandleKind
from peerlane.devices.base import DeviceBase, checked_size
from peerlane.errors import InvalidValue
from peerlane.memory.dispatch import lacks
from peerlane.sharing.open import open_file, open_offer
from peerlane.support.declared import declared

if TYPE_CHECKING:
    from peerlane.sharing.handle import Allow, Handle


class Physical:
    """A block of a device's memory.  It has no address until an :class:`AddressRange` maps it.

    Parameters
    ----------
    device : Device
        Whose memory it is, and whose capacity it takes.
    nbytes : int
        Bytes, a multiple of ``Device.granularity``.
    peer : bool
        Allocate for access from other devices, as for :meth:`Device.allocate`; who opens it has it so too.

    Attributes
    ----------
    device : Device
        Whose memory it is.
    size : int
        Bytes.
    id : int
        Unique in the node, the same in every process that has it.

    Raises
    ------
    InvalidValue, OutOfMemory, Closed
        Nothing is allocated then.
    """

    __slots__ = ()

    @declared
    def device(self) -> Any:
        """Whose memory it is."""
        raise NotImplementedError

    @declared
    def id(self) -> int:
        """Unique in the node, the same in every process that has it."""
        raise NotImplementedError

    @declared
    def size(self) -> int:
        """Bytes."""
        raise NotImplementedError

    def __new__(cls, device: DeviceBase, nbytes: int, *, peer: bool = False) -> Physical:
        if not isinstance(device, DeviceBase):
            raise TypeError(f"Physical: the device must be a Device, not {type(device).__name__}")
        nbytes = checked_size(nbytes, "Physical")
        if Caps.PHYSICAL not in device.caps:
            raise lacks("Physical", device.backend, Caps.PHYSICAL)
        granularity = device.granularity
        if nbytes % granularity:
            raise InvalidValue(
                f"Physical: {nbytes:,} bytes are not a multiple of the granularity of {granularity:,}; round up to "
                f"{-(-nbytes // granularity) * granularity:,}",
                call="Physical",
                device=device.name,
            )
        made: Physical = device.backend.create_physical(device, nbytes, bool(peer))
        return made

    @classmethod
    def open(
        cls,
        handle: Handle | bytes | str | int,
        *,
        device: DeviceBase | None = None,
        timeout: float | None = 5.0,
    ) -> Physical:
        """Have the memory that another process exported: the same bytes, no copy.

        Parameters
        ----------
        handle : Handle, bytes, str or int
            Either form of the handle.
        device : Device, optional
            Which device will use it, if not the one that it is on.  It must be able to reach that one.
        timeout : float, optional
            Seconds to wait for the other process's answer; None waits for ever.

        Raises
        ------
        BadHandle
            What is no handle (``BAD_HANDLE``), one that is over (``STALE_HANDLE``), of another version, node or kind,
            or whose maker's claims are not true (``FALSE_CLAIM``).
        AccessDenied
            The maker does not let this process have it (``NOT_LISTED``, ``PID_REUSED``, ``LISTED_EARLY``,
            ``OTHER_USER``, ``FOREIGN_NAMESPACE``), made it itself (``OWN_HANDLE``), or ``device`` cannot reach it.
        PeerLost
            The process that made it has ended.
        WaitTimeout
            It did not answer in time.
        """
        offer, home = open_offer("Physical.open", handle, HandleKind.PHYSICAL, device, timeout)
        made: Physical = home.backend.open_physical(offer, home, device)
        return made

    def export(self, *, allow: Allow = (), rights: str = "rw") -> Handle:
        """Return a handle by which other processes can have this memory.

        The memory lives as long as this object, a mapping, or a process that has opened it.

        Parameters
        ----------
        allow : iterable of int, or "user"
            Pids of the processes that may open it; more can be added to ``handle.allow``.  ``"user"``: any process
            of this user.
        rights : str
            ``"rw"``, or ``"r"``: the others can only read it.

        Raises
        ------
        Unsupported
            It was imported: only who made memory gives it to others.
        InvalidValue, OutOfMemory, Closed
            No handle was made.
        """
        raise NotImplementedError

    def export_fd(self, *, rights: str = "rw") -> int:
        """Return a new file descriptor of this memory, which the caller closes; the system's rights are the list.

        Who has a descriptor has the memory: pass it by ``SCM_RIGHTS``, or let children inherit it
        (``os.set_inheritable``).  It keeps the bytes alive also when this object, all mappings and this process are
        gone; while nothing but descriptors has them, no process is charged for them.  Also of imported memory.

        Parameters
        ----------
        rights : str
            ``"rw"``, or ``"r"``: who opens it can only read.  Of memory that may only be read it is ``"r"``.

        Raises
        ------
        AccessDenied
            ``READ_ONLY``: ``"rw"`` of memory that this process may only read.
        InvalidValue, OutOfMemory, Closed
            There is no new descriptor.
        """
        raise NotImplementedError

    @classmethod
    def open_fd(cls, fd: int, *, device: DeviceBase | None = None) -> Physical:
        """Have the memory of a descriptor that :meth:`export_fd` gave, in this process or another; no copy.

        The process that made it is not asked, and may have ended.

        Parameters
        ----------
        fd : int
            It stays the caller's, who may close it at once.
        device : Device, optional
            As for :meth:`open`.

        Raises
        ------
        BadHandle
            It is closed or no file of memory (``BAD_HANDLE``); of another node (``NODE_MISMATCH``); somebody could
            still cut it, or its device or size cannot be (``FALSE_CLAIM``).
        AccessDenied
            ``PEER_UNREACHABLE``: ``device`` cannot reach it.
        OutOfMemory, Closed
        """
        offer, home = open_file("Physical.open_fd", fd, device)
        made: Physical = home.backend.open_physical(offer, home, device)
        return made

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called, or the node was left."""
        raise NotImplementedError

    @property
    def is_imported(self) -> bool:
        """Whether another process made it."""
        raise NotImplementedError

    @property
    def is_read_only(self) -> bool:
        """Whether the process that made it lets this one only read it."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go; idempotent.  The bytes live while they are mapped, or held by another process."""
        raise NotImplementedError

    def __enter__(self) -> Physical:
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError
