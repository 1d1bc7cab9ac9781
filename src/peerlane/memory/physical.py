"""Physical memory: bytes of a device without an address, which address ranges map and processes share."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from peerlane import _core
from peerlane.backend.facts import HandleKind
from peerlane.devices.device import Device, checked_size
from peerlane.diagnostics import live_objects, observers
from peerlane.errors import AccessDenied, Closed, Fault, InvalidValue, Unsupported
from peerlane.sharing.handle import Handle, checked_rights, open_file, open_offer

if TYPE_CHECKING:
    from peerlane.sharing.handle import Allow


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

    __slots__ = ("__weakref__", "_block", "_user", "device", "id", "size")

    _block: _core.Block
    _user: Device  # what it was opened for
    device: Device
    id: int
    size: int

    def __init__(self, device: Device, nbytes: int, *, peer: bool = False) -> None:
        if not isinstance(device, Device):
            raise TypeError(f"Physical: the device must be a Device, not {type(device).__name__}")
        nbytes = checked_size(nbytes, "Physical")
        granularity = device.granularity
        if nbytes % granularity:
            raise InvalidValue(
                f"Physical: {nbytes:,} bytes are not a multiple of the granularity of {granularity:,}; round up to "
                f"{-(-nbytes // granularity) * granularity:,}",
                call="Physical",
                device=device.name,
            )
        self._hold(device.backend.create_physical(device.ordinal, nbytes, bool(peer)), device, device)

    def _hold(self, block: _core.Block, device: Device, user: Device) -> None:
        self._block, self.device, self._user, self.id, self.size = block, device, user, block.id, block.size
        if live_objects.active:
            live_objects.made(self)

    @classmethod
    def open(
        cls, handle: Handle | bytes | str | int, *, device: Device | None = None, timeout: float | None = 5.0
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
        return cls._adopt(offer, home, device)

    @classmethod
    def _adopt(cls, offer: _core.Offer, home: Device, device: Device | None) -> Physical:
        made = cls.__new__(cls)
        made._hold(home.backend.adopt(offer), home, device or home)
        if observers.active:
            observers.tell("import", made)
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
        block = self._open("Physical.export")
        wanted, backend = checked_rights("Physical.export", rights), self.device.backend
        _core.check_usable()
        if block.is_imported:
            raise Unsupported(
                f"Physical.export: {self!r} was made by another process, and only that one gives it to others; "
                "ask it for a handle",
                call="Physical.export",
                device=self.device.name,
            )
        part = (0, self.size)
        return Handle._make(
            self, allow, lambda all_: backend.offer(HandleKind.PHYSICAL, block, part, wanted, all_)
        )

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
        call = "Physical.export_fd"
        block = self._open(call)
        read_only = checked_rights(call, rights) == 1
        _core.check_usable()
        if block.is_read_only and not read_only:
            raise AccessDenied(
                f'{call}: {self!r} was shared with this process to be read; pass rights="r"',
                fault=Fault.READ_ONLY,
                call=call,
                device=self.device.name,
            )
        made = block.export_file(read_only)
        if observers.active:
            observers.tell("export", self)
        return made

    @classmethod
    def open_fd(cls, fd: int, *, device: Device | None = None) -> Physical:
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
        return cls._adopt(offer, home, device)

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called, or the node was left."""
        return self._block.is_closed or self.device.is_closed

    @property
    def is_imported(self) -> bool:
        """Whether another process made it."""
        return self._open("Physical.is_imported").is_imported

    @property
    def is_read_only(self) -> bool:
        """Whether the process that made it lets this one only read it."""
        return self._open("Physical.is_read_only").is_read_only

    def close(self) -> None:
        """Let go; idempotent.  The bytes live while they are mapped, or held by another process."""
        self._block.close()

    def _open(self, call: str) -> _core.Block:
        if self.is_closed:
            raise Closed(f"{call}: {self!r} was closed", call=call, device=self.device.name)
        return self._block

    def __enter__(self) -> Physical:
        self._open("Physical")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " closed" if self.is_closed else " imported" if self._block.is_imported else ""
        return f"<Physical {self.size:,} bytes on {self.device.name}{state}>"
