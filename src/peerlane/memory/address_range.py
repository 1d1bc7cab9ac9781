"""Address ranges: addresses reserved first, into which physical memory is mapped later."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, TypeAlias

from peerlane.backend.facts import Caps
from peerlane.devices.base import DeviceBase, checked_size
from peerlane.errors import InvalidValue
from peerlane.memory.buffer import Buffer
from peerlane.memory.dispatch import lacks
from peerlane.memory.physical import Physical
from peerlane.support.declared import declared

Access: TypeAlias = "Mapping[Any, str] | str"


class AddressRange:
    """Reserved device addresses.  Blocks mapped side by side are one range to copies; one block may be mapped twice.

    A part, ``rng[start:stop]``, is a :class:`Buffer`; what is mapped there is looked up when it is used.

    Parameters
    ----------
    device : Device
        In whose address space: on the host its addresses are what those of its allocations are.
    nbytes : int
        Bytes; rounded up to a multiple of ``Device.granularity``.
    alignment : int, optional
        Of the address, a power of two up to 1 GiB.
    address : int, optional
        Where it should begin.  A wish: another place is taken if that is not free.

    Attributes
    ----------
    device : Device
    address : int
        Where it begins.  Raises Closed.

    Raises
    ------
    InvalidValue, OutOfMemory, Closed
        Nothing is reserved then.
    """

    __slots__ = ()

    @declared
    def device(self) -> Any:
        """In whose address space it lies."""
        raise NotImplementedError

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
                f"AddressRange: alignment {alignment:,} is no power of two up to {1 << 30:,}",
                call="AddressRange",
            )
        if not 0 <= address < 1 << 64:
            raise InvalidValue(f"AddressRange: {address:#x} is no 64-bit address", call="AddressRange")
        if Caps.PHYSICAL not in device.caps:
            raise lacks("AddressRange", device.backend, Caps.PHYSICAL)
        made: AddressRange = device.backend.reserve(device, nbytes, alignment, address)
        return made

    @property
    def address(self) -> int:
        """Where it begins."""
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
        """What is mapped: (offset, bytes) of each block, lowest first."""
        raise NotImplementedError

    def map(
        self, physical: Physical, at: int = 0, *, access: Access | None = None, size: int | None = None
    ) -> None:
        """Map a block at an offset, the whole of it or its beginning; usable on return.

        The mapping holds the block: closing ``physical`` does not end it.

        Parameters
        ----------
        physical : Physical
            Any device's; blocks of several devices may lie side by side.
        at : int
            Offset in bytes, a multiple of ``Device.granularity``.
        access : mapping of Device to str, or str, optional
            Who may do what: ``"none"``, ``"r"`` or ``"rw"`` for each device; devices not named have none.  A str
            is for all devices.  By default the device the block is on, the one it was opened for and the range's own
            have ``"rw"`` (``"r"`` if it is read-only).
        size : int, optional
            How many bytes of the block, from its first on: a multiple of ``Device.granularity``.  By default all.

        Raises
        ------
        InvalidValue, BadAddress
            It does not fit there, or ``size`` is more than the block has (``OUT_OF_BOUNDS``).
        Busy
            Something is mapped there, or a view still holds what was.
        AccessDenied
            ``READ_ONLY``: more than reading was asked for, and the block was shared to be read.
        Closed, OutOfMemory
        """
        raise NotImplementedError

    def unmap(self, at: int = 0, size: int | None = None) -> None:
        """End mappings; what runs or is queued, and live views, keep the bytes until they end.

        Parameters
        ----------
        at : int
            Where the mapping begins.
        size : int, optional
            Bytes, for several mappings that lie side by side; by default the one at ``at``.

        Raises
        ------
        BadAddress
            ``UNKNOWN_ADDRESS``: no mapping begins there, or ``size`` ends inside one.  Nothing was unmapped.
        Closed
        """
        raise NotImplementedError

    def set_access(self, access: Access, *, at: int = 0, size: int | None = None) -> None:
        """Change who may do what; queued operations were checked when they were submitted.

        Parameters
        ----------
        access : mapping of Device to str, or str
            As for :meth:`map`; devices not named keep their rights.
        at, size : int
            Whole mappings, as for :meth:`unmap`; by default all there are.

        Raises
        ------
        BadAddress, AccessDenied, InvalidValue, Closed
            Nothing was changed.
        """
        raise NotImplementedError

    def access(self, device: DeviceBase, at: int = 0) -> str:
        """Return what a device may do at an offset: ``"none"``, ``"r"`` or ``"rw"``.

        Raises
        ------
        BadAddress
            ``UNKNOWN_ADDRESS``: nothing is mapped there.
        Closed
        """
        raise NotImplementedError

    def grow(self, nbytes: int) -> None:
        """Reserve more addresses behind the present ones, to ``nbytes`` in all; nothing moves.

        Raises
        ------
        OutOfMemory
            ``OUT_OF_RESOURCES``: what lies behind is in use, or ends.  Reserve more to begin with: addresses cost
            nothing.
        InvalidValue, Closed
        """
        raise NotImplementedError

    def close(self) -> None:
        """Unmap everything and give the addresses back; idempotent.

        What runs or is queued, and live views, keep the bytes until they end.
        """
        raise NotImplementedError

    def __getitem__(self, index: slice) -> Buffer:
        """Return a part, ``rng[start:stop]``, without a copy.  Unlike a list it is not clipped."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def __enter__(self) -> AddressRange:
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError
