"""Address ranges: addresses reserved first, into which physical memory is mapped later."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from peerlane import _core
from peerlane.backends.virtual.messages import memory as memory_messages
from peerlane.devices.device import Device, checked_size
from peerlane.diagnostics import allocations, live_objects
from peerlane.errors import AccessDenied, BadAddress, Closed, Fault, InvalidValue, OutOfMemory
from peerlane.memory.buffer import Buffer, checked_part
from peerlane.memory.physical import Physical

if TYPE_CHECKING:
    from typing import TypeAlias

    Access: TypeAlias = "Mapping[Device, str] | str"

_RIGHTS = {"none": 0, "r": 1, "rw": 3}
_NAMES = {number: name for name, number in _RIGHTS.items()}


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

    __slots__ = ("__weakref__", "_mapped", "_place", "_read_only", "device")

    _place: _core.Place

    def __init__(self, device: Device, nbytes: int, *, alignment: int = 0, address: int = 0) -> None:
        if not isinstance(device, Device):
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
        self.device = device
        self._mapped: dict[int, int] = {}
        self._read_only: set[int] = set()
        self._place = device.backend.reserve(device.ordinal, nbytes, alignment, address)
        allocations.remember_range(self._place, device.name)

    @property
    def address(self) -> int:
        """Where it begins."""
        return self._open("AddressRange.address").address

    @property
    def size(self) -> int:
        """Bytes reserved."""
        return self._place.size

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called, or the node was left."""
        return self._place.is_closed or self.device.is_closed

    @property
    def mappings(self) -> tuple[tuple[int, int], ...]:
        """What is mapped: (offset, bytes) of each block, lowest first."""
        return tuple(sorted(self._mapped.items()))

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
        if not isinstance(physical, Physical):
            raise TypeError(
                f"AddressRange.map: what is mapped must be a Physical, not {type(physical).__name__}"
            )
        self._map(physical, at, access, physical.size if size is None else self._checked_part(physical, size))

    def _checked_part(self, physical: Physical, size: int) -> int:
        call = "AddressRange.map"
        size = checked_size(size, call)
        if not 0 < size <= physical.size or size % self.device.granularity:
            raise InvalidValue(
                f"{call}: size is {size:,}; a part of {physical!r} is a multiple of {self.device.granularity:,} and "
                f"at most {physical.size:,} bytes",
                fault=Fault.OUT_OF_BOUNDS,
                call=call,
            )
        return size

    def _map(self, physical: Physical, at: int, access: Access | None, limit: int) -> None:
        # Addresses from `limit` bytes on are out of bounds; what is mapped ends with their granule.
        call = "AddressRange.map"
        block = physical._open(call)
        place = self._open(call)
        self.device._checked(physical.device, call)
        at = self._checked_offset(call, at)
        granularity = self.device.granularity
        span = min(-(-limit // granularity) * granularity, physical.size)
        if at % granularity or at + span > self.size:
            part = "" if span == physical.size else f"{span:,} bytes of "
            raise BadAddress(
                f"{call}: {part}{physical!r} does not fit at offset {at:,} of {self!r}; an offset is a multiple of "
                f"{granularity:,}, and what is mapped must lie inside",
                fault=Fault.OUT_OF_BOUNDS,
                call=call,
                device=self.device.name,
            )
        others = _rights(call, access) if isinstance(access, str) else 0
        if access is None:
            own = {block.device, physical._user._native_number(), self.device._native_number()}
            named = [(number, 1 if block.is_read_only else 3) for number in sorted(own)]
        else:
            named = [] if isinstance(access, str) else self._named(call, access)
        if block.is_read_only and any(rights & 2 for rights in (others, *(rights for _, rights in named))):
            raise self._only_read(call, at)
        place.map(at, block, others, named, limit)
        if block.is_read_only:
            self._read_only.add(at)
        self._mapped[at] = span
        if live_objects.active:
            live_objects.mapped(place.id, at, physical, span)

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
        call = "AddressRange.unmap"
        place = self._open(call)
        for start in self._whole(call, at, size):
            # Taken out first: what another thread maps here as soon as it is free must not be forgotten.
            if self._mapped.pop(start, None) is None:
                raise memory_messages.not_mapped(place.address + start, self.device.name)
            self._read_only.discard(start)
            place.unmap(start)
            if live_objects.active:
                live_objects.unmapped(place.id, start)

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
        call = "AddressRange.set_access"
        place = self._open(call)
        starts = sorted(self._mapped) if size is None and at == 0 else self._whole(call, at, size)
        named = (
            [(_core.ALL_DEVICES, _rights(call, access))]
            if isinstance(access, str)
            else self._named(call, access)
        )
        if any(wanted & 2 for _, wanted in named):
            for start in self._read_only.intersection(starts):
                raise self._only_read(call, start)
        for start in starts:
            for number, wanted in named:
                # Another thread may have unmapped it: then nothing begins there.
                place.set_access(start, self._mapped.get(start, 1), number, wanted)

    def access(self, device: Device, at: int = 0) -> str:
        """Return what a device may do at an offset: ``"none"``, ``"r"`` or ``"rw"``.

        Raises
        ------
        BadAddress
            ``UNKNOWN_ADDRESS``: nothing is mapped there.
        Closed
        """
        call = "AddressRange.access"
        place = self._open(call)
        self.device._checked(device, call)
        return _NAMES[place.rights(self._checked_offset(call, at), device._native_number())]

    def grow(self, nbytes: int) -> None:
        """Reserve more addresses behind the present ones, to ``nbytes`` in all; nothing moves.

        Raises
        ------
        OutOfMemory
            ``OUT_OF_RESOURCES``: what lies behind is in use, or ends.  Reserve more to begin with: addresses cost
            nothing.
        InvalidValue, Closed
        """
        call = "AddressRange.grow"
        nbytes = checked_size(nbytes, call)
        place = self._open(call)
        if not place.grow(nbytes):
            why = "the addresses behind it are in use"
            if nbytes > place.most:
                why = (
                    f"that is beyond what can be reserved, {place.most:,} bytes from where it begins (window_bytes "
                    "in the node configuration)"
                )
            raise OutOfMemory(
                f"{call}: {self!r} cannot grow to {nbytes:,} bytes where it is: {why}; reserve as many as will ever "
                "be needed to begin with, they cost nothing until something is mapped",
                fault=Fault.OUT_OF_RESOURCES,
                call=call,
                device=self.device.name,
            )
        allocations.grown(place)

    def close(self) -> None:
        """Unmap everything and give the addresses back; idempotent.

        What runs or is queued, and live views, keep the bytes until they end.
        """
        if not self._place.is_closed:
            self._mapped.clear()
            self._read_only.clear()
            allocations.forget(self._place.id, "AddressRange.close()")
        self._place.close()

    def _lend(self, start: int, nbytes: int) -> Buffer:
        # All of it becomes an imported buffer: texts tell of that, not of a range that nobody asked for.
        made = self[start : start + nbytes]
        made._imported = self
        allocations.remember_import(made, self._place, self.device.name)
        return made

    def __getitem__(self, index: slice) -> Buffer:
        """Return a part, ``rng[start:stop]``, without a copy.  Unlike a list it is not clipped."""
        place = self._open("AddressRange[]")
        first, last = checked_part("AddressRange", index, self.size, self.device)
        return Buffer._make(self, self.device, place, first, last - first)

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> AddressRange:
        self._open("AddressRange")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        place = getattr(self, "_place", None)
        if place is not None and allocations is not None and not place.is_closed:
            allocations.forget(place.id, "garbage collection")

    def _open(self, call: str) -> _core.Place:
        if self.is_closed:
            raise Closed(f"{call}: {self!r} was closed", call=call, device=self.device.name)
        return self._place

    def _only_read(self, call: str, at: int) -> AccessDenied:
        return AccessDenied(
            f'{call}: the block at offset {at:,} of {self!r} was shared to be read; give "r" or "none"',
            fault=Fault.READ_ONLY,
            call=call,
            device=self.device.name,
        )

    def _checked_offset(self, call: str, at: int) -> int:
        if isinstance(at, bool) or not isinstance(at, int):
            raise TypeError(f"{call}: the offset must be an int, not {type(at).__name__}")
        if not 0 <= at < 1 << 63:
            raise InvalidValue(
                f"{call}: offset {at:,} is outside the range's {self.size:,} bytes",
                fault=Fault.OUT_OF_BOUNDS,
                call=call,
            )
        return at

    def _whole(self, call: str, at: int, size: int | None) -> list[int]:
        at = self._checked_offset(call, at)
        end = at + (self._mapped.get(at, 1) if size is None else checked_size(size, call))
        found, reached = [], at
        while reached < end and reached in self._mapped:
            found.append(reached)
            reached += self._mapped[reached]
        if reached != end:
            raise memory_messages.not_mapped(
                self._place.address + (at if not found else reached), self.device.name
            )
        return found

    def _named(self, call: str, access: Mapping[Device, str]) -> list[tuple[int, int]]:
        if not isinstance(access, Mapping):
            raise TypeError(f"{call}: access must be a mapping of Device to str, or a str")
        found = []
        for device, rights in access.items():
            self.device._checked(device, call)
            found.append((device._native_number(), _rights(call, rights)))
        return found

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{len(self._mapped)} mapped"
        return (
            f"<AddressRange {self.size:,} bytes at {self._place.address:#x} on {self.device.name}, {state}>"
        )


def _rights(call: str, name: object) -> int:
    if not isinstance(name, str) or name not in _RIGHTS:
        raise InvalidValue(
            f"{call}: access is {name!r}; valid are {', '.join(map(repr, _RIGHTS))}", call=call
        )
    return _RIGHTS[name]
