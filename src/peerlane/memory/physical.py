"""Physical memory: blocks of a device or the host without an address, to be mapped and shared."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from peerlane.backend import registry
from peerlane.backend.facts import Caps, HandleKind
from peerlane.errors import BadArgument, InvalidValue
from peerlane.memory.dispatch import lacks
from peerlane.node.base import DeviceBase, HostBase, checked_size, devices_of
from peerlane.sharing.open import open_file, open_offer
from peerlane.support.declared import kept, owed
from peerlane.support.own_process import OwnProcess, by_handle

if TYPE_CHECKING:
    from peerlane.sharing.handle import Allow, Handle


class Physical(OwnProcess):
    """A block of memory of a device or the host.  It has no address until an :class:`AddressRange` maps it.

    Parameters
    ----------
    device : Device or Host
        The device that has the memory, and whose capacity is charged; or the host.  The program itself touches memory
        of the host where an :class:`AddressRange` gives the host access to it.
    nbytes : int
        Bytes, a multiple of ``Device.granularity``.
    peer : bool
        Allocate for access from other devices, as for :meth:`Device.allocate`; it holds in processes that open the
        memory, too.

    Raises
    ------
    InvalidValue, OutOfMemory, Closed
        Nothing was allocated.

    Examples
    --------
    >>> device = pl.device(0)
    >>> with pl.Physical(device, device.granularity) as block, pl.AddressRange(device, 1 << 30) as addresses:
    ...     addresses.map(block, at=0)
    ...     addresses[:4].fill(5)
    ...     print(bytes(addresses[:4]))
    b'\\x05\\x05\\x05\\x05'
    """

    __slots__ = ()
    _elsewhere = by_handle("Physical", "its memory")

    @kept
    def device(self) -> Any:
        """The device that has the memory, or the host."""

    @kept
    def id(self) -> int:
        """Unique in the node, and the same in every process that has the memory."""

    @kept
    def size(self) -> int:
        """Bytes."""

    def __new__(cls, device: DeviceBase | HostBase, nbytes: int, *, peer: bool = False) -> Physical:
        if not isinstance(device, (DeviceBase, HostBase)):
            raise TypeError(f"Physical: the device must be a Device or the Host, not {type(device).__name__}")
        nbytes = checked_size(nbytes, "Physical")
        backend: Any = registry.current() if isinstance(device, HostBase) else device.backend
        for needed in (Caps.PHYSICAL, *([Caps.PINNED_HOST] if isinstance(device, HostBase) else [])):
            if needed not in backend.caps:
                raise lacks("Physical", backend, needed)
        granularity = devices_of(backend)[0].granularity
        if nbytes % granularity:
            raise InvalidValue(
                f"Physical: {nbytes:,} bytes are not a multiple of the granularity of {granularity:,}; round up to "
                f"{-(-nbytes // granularity) * granularity:,}",
                call="Physical",
                device=device.name,
                detail=BadArgument("nbytes", nbytes, multiple=granularity),
            )
        memory: Physical = backend.create_physical(device, nbytes, bool(peer))
        return memory

    @classmethod
    def open(
        cls,
        handle: Handle | bytes | str | int,
        *,
        device: DeviceBase | None = None,
        timeout: float | None = 5.0,
    ) -> Physical:
        """Open memory that another process exported: the same bytes, without a copy.

        Parameters
        ----------
        handle : Handle, bytes, str or int
            Either form of the handle.
        device : Device, optional
            The device that will use the memory, by default the one that has it.  It must be able to reach that one.
        timeout : float, optional
            Seconds to wait for the exporter's answer; None waits for ever.

        Raises
        ------
        BadHandle
            ``handle`` is not a handle (``BAD_HANDLE``), is no longer valid (``STALE_HANDLE``), or belongs to another
            version, node or kind; or the exporter's claims about it are false (``FALSE_CLAIM``).
        AccessDenied
            The exporter does not allow this process (``NOT_LISTED``, ``PID_REUSED``, ``LISTED_EARLY``,
            ``OTHER_USER``, ``FOREIGN_NAMESPACE``); this process is the exporter (``OWN_HANDLE``); or ``device``
            cannot reach the memory.
        PeerLost
            The exporter has ended.
        WaitTimeout
            The exporter did not answer in time.
        """
        return cls._opened(*open_offer("Physical.open", handle, HandleKind.PHYSICAL, device, timeout), device)

    @staticmethod
    def _opened(offer: Any, home: DeviceBase | None, device: DeviceBase | None) -> Physical:
        backend: Any = registry.current() if home is None else home.backend
        memory: Physical = backend.open_physical(offer, home, device)
        return memory

    @owed
    def export(self, *, allow: Allow = (), rights: str = "rw") -> Handle:
        """Return a handle with which other processes can open this memory.

        The memory lives until this object is closed, no mapping uses it, and no process has it open.

        Parameters
        ----------
        allow : iterable of int, or "user"
            Pids of the processes that may open it; more can be added to ``handle.allow``.  ``"user"``: any process
            of this user.
        rights : str
            ``"rw"``, or ``"r"``: the importers can only read it.

        Raises
        ------
        Unsupported
            It was imported: only the process that allocated memory can export it.
        InvalidValue, OutOfMemory, Closed
            No handle was made.
        """

    @owed
    def export_fd(self, *, rights: str = "rw") -> int:
        """Return a new file descriptor of this memory, which the caller closes; imported memory has one too.

        There is no allow-list: a process that has a descriptor has the memory.  Pass it by ``SCM_RIGHTS``, or let
        children inherit it (``os.set_inheritable``).  It keeps the bytes alive after this object, all mappings and
        this process are gone.  While only descriptors keep the bytes, no process is charged for them.

        Parameters
        ----------
        rights : str
            ``"rw"``, or ``"r"``: processes that open the descriptor can only read.  Read-only memory allows only
            ``"r"``.

        Raises
        ------
        AccessDenied
            ``READ_ONLY``: ``"rw"`` was asked for, and this process may only read the memory.
        InvalidValue, OutOfMemory, Closed
            No descriptor was made.
        """

    @classmethod
    def open_fd(cls, fd: int, *, device: DeviceBase | None = None) -> Physical:
        """Open the memory of a descriptor that :meth:`export_fd` made in this process or another, without a copy.

        The exporter is not asked, and may have ended.

        Parameters
        ----------
        fd : int
            The descriptor; it stays the caller's, which may close it at once.
        device : Device, optional
            As for :meth:`open`.

        Raises
        ------
        BadHandle
            The descriptor is closed or is not a file of device memory (``BAD_HANDLE``); the file belongs to another
            node (``NODE_MISMATCH``); or a process could still truncate it, or its device or size is impossible
            (``FALSE_CLAIM``).
        AccessDenied
            ``PEER_UNREACHABLE``: ``device`` cannot reach the memory.
        OutOfMemory, Closed
        """
        return cls._opened(*open_file("Physical.open_fd", fd, device), device)

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called, or the node was left."""
        raise NotImplementedError

    @property
    def is_imported(self) -> bool:
        """Whether another process allocated it."""
        raise NotImplementedError

    @property
    def is_read_only(self) -> bool:
        """Whether this process may only read it."""
        raise NotImplementedError

    @owed
    def close(self) -> None:
        """Release the memory; idempotent.  The bytes live while they are mapped, or another process has them open."""

    @owed
    def __enter__(self) -> Physical:
        raise NotImplementedError

    @owed
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError
