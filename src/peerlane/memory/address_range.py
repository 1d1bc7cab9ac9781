"""Address ranges: addresses reserved first, into which physical memory is mapped later."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, TypeAlias

from peerlane.backend.facts import Caps
from peerlane.errors import BadArgument, InvalidValue
from peerlane.memory.buffer import Buffer
from peerlane.memory.dispatch import lacks
from peerlane.memory.physical import Physical
from peerlane.node.base import DeviceBase, HostBase, checked_size
from peerlane.support.declared import kept, owed
from peerlane.support.own_process import OwnProcess

Access: TypeAlias = "Mapping[Any, str] | str"


class AddressRange(OwnProcess):
    """Reserved device addresses, into which blocks of physical memory are mapped.

    For copies, blocks mapped side by side are one range.  One block may be mapped twice.  A part,
    ``rng[start:stop]``, is a :class:`Buffer`; each use of it looks up the blocks that are mapped there.

    Parameters
    ----------
    device : Device
        The device whose address space it lies in.
    nbytes : int
        Bytes; rounded up to a multiple of ``Device.granularity``.
    alignment : int, optional
        Alignment of its first address, a power of two up to 1 GiB.
    address : int, optional
        The wanted first address.  If it is not free, the range begins elsewhere.

    Raises
    ------
    InvalidValue, OutOfMemory, Closed
        Nothing was reserved.

    Examples
    --------
    >>> device = pl.device(0)
    >>> size = device.granularity
    >>> with pl.Physical(device, size) as block, pl.AddressRange(device, 2 * size) as addresses:
    ...     addresses.map(block, at=0)
    ...     addresses.map(block, at=size)  # the same memory a second time
    ...     addresses.set_access({device: "rw"})
    ...     addresses[:4].copy_from(b"once")
    ...     print(addresses[size : size + 4].view().tobytes())
    b'once'
    """

    __slots__ = ()
    _elsewhere = "its addresses are valid in this process alone; export the Physical memory that it maps"

    @kept
    def device(self) -> Any:
        """The device whose address space it lies in."""

    def __new__(
        cls, device: DeviceBase, nbytes: int, *, alignment: int = 0, address: int = 0
    ) -> AddressRange:
        if not isinstance(device, DeviceBase):
            raise TypeError(f"AddressRange: the device must be a Device, not {type(device).__name__}")
        nbytes = checked_size(nbytes, "AddressRange")
        if isinstance(alignment, bool) or not isinstance(alignment, int) or not isinstance(address, int):
            raise TypeError("AddressRange: alignment and address must be int")
        if not 0 <= alignment <= 1 << 30 or alignment & (alignment - 1):
            raise InvalidValue(
                f"AddressRange: alignment {alignment:,} is not a power of two up to {1 << 30:,}",
                call="AddressRange",
                detail=BadArgument("alignment", alignment, least=1, most=1 << 30, rule="a power of two"),
            )
        if not 0 <= address < 1 << 64:
            raise InvalidValue(
                f"AddressRange: {address:#x} is not a 64-bit address",
                call="AddressRange",
                detail=BadArgument("address", address, least=0, most=(1 << 64) - 1),
            )
        if Caps.PHYSICAL not in device.caps:
            raise lacks("AddressRange", device.backend, Caps.PHYSICAL)
        reserved: AddressRange = device.backend.reserve(device, nbytes, alignment, address)
        return reserved

    @property
    def address(self) -> int:
        """Its first address.  Raises Closed."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Bytes reserved."""
        raise NotImplementedError

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called, or the node was left."""
        raise NotImplementedError

    @property
    def mappings(self) -> tuple[tuple[int, int], ...]:
        """The mapped blocks: (offset, bytes) of each, lowest first."""
        raise NotImplementedError

    @owed
    def map(
        self, physical: Physical, at: int = 0, *, access: Access | None = None, size: int | None = None
    ) -> None:
        """Map a block, or its beginning, at an offset; usable on return.

        The mapping keeps the block: closing ``physical`` does not end the mapping.

        Parameters
        ----------
        physical : Physical
            A block of any device or the host; blocks of several devices may lie side by side.
        at : int
            Offset in bytes, a multiple of ``Device.granularity``.
        access : mapping of Device to str, or str, optional
            The rights of each device: ``"none"``, ``"r"`` or ``"rw"``; a device that is not named has none.  A str
            gives all devices the same rights.  By default three devices have ``"rw"`` (``"r"`` if the block is
            read-only): the block's, the one that it was opened for, and the range's.  With ``"r"`` or ``"rw"`` of
            :class:`Host`, which a block of the host takes, the program itself touches it at these addresses.
        size : int, optional
            How many bytes to map, from the block's first: a multiple of ``Device.granularity``.  By default all.

        Raises
        ------
        InvalidValue, BadAddress
            The block does not fit there, or ``size`` is more than the block has (``OUT_OF_BOUNDS``).
        Busy
            A block is mapped there, or a view still holds the block that was.
        AccessDenied
            ``READ_ONLY``: ``access`` has ``"rw"``, but the block was shared read-only.
        Closed, OutOfMemory
        """

    @owed
    def unmap(self, at: int = 0, size: int | None = None) -> None:
        """End mappings; running and queued operations and live views keep the bytes until they end.

        Parameters
        ----------
        at : int
            The offset at which the mapping begins.
        size : int, optional
            Bytes, to end several mappings that lie side by side; by default only the one at ``at`` ends.

        Raises
        ------
        BadAddress
            ``UNKNOWN_ADDRESS``: no mapping begins there, or ``size`` ends inside one.  Nothing was unmapped.
        Closed
        """

    @owed
    def set_access(self, access: Access, *, at: int = 0, size: int | None = None) -> None:
        """Change the rights of devices; queued operations keep the rights that they were submitted with.

        Parameters
        ----------
        access : mapping of Device to str, or str
            As for :meth:`map`; devices not named keep their rights.
        at, size : int
            Whole mappings, as for :meth:`unmap`; by default all mappings.

        Raises
        ------
        BadAddress, AccessDenied, InvalidValue, Closed
            Nothing was changed.
        """

    @owed
    def access(self, device: DeviceBase | HostBase, at: int = 0) -> str:
        """Return the rights of a device or the host at an offset: ``"none"``, ``"r"`` or ``"rw"``.

        Parameters
        ----------
        device : Device or Host
        at : int
            The offset in the range, in bytes.

        Raises
        ------
        BadAddress
            ``UNKNOWN_ADDRESS``: nothing is mapped there.
        Closed
        """

    @owed
    def grow(self, nbytes: int) -> None:
        """Reserve more addresses behind the present ones, to ``nbytes`` in all; nothing moves.

        Parameters
        ----------
        nbytes : int
            The size of the whole range from now on, in bytes.

        Raises
        ------
        OutOfMemory
            ``OUT_OF_RESOURCES``: the addresses behind are in use, or the address space ends.  Reserve more from the
            start: addresses cost nothing.
        InvalidValue, Closed
        """

    @owed
    def close(self) -> None:
        """Unmap all blocks and give the addresses back; idempotent.

        Running and queued operations and live views keep the bytes until they end.
        """

    @owed
    def __getitem__(self, index: slice) -> Buffer:
        """Return a part, ``rng[start:stop]``, without a copy; a slice beyond the end raises InvalidValue."""

    @owed
    def __len__(self) -> int:
        raise NotImplementedError

    @owed
    def __enter__(self) -> AddressRange:
        raise NotImplementedError

    @owed
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError
