"""Address ranges: native reservations, and the record of the mapped blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from peerlane import _core
from peerlane.backends.virtual.buffer import VirtualBuffer
from peerlane.backends.virtual.messages import memory as memory_messages
from peerlane.backends.virtual.native_classes import HOST, number_of, show_as
from peerlane.backends.virtual.physical import VirtualPhysical
from peerlane.diagnostics import live_objects
from peerlane.diagnostics.memory import allocations
from peerlane.errors import (
    AccessDenied,
    BadAddress,
    BadArgument,
    Fault,
    InvalidValue,
    OutOfMemory,
    Refused,
    was_closed,
)
from peerlane.memory.address_range import Access, AddressRange
from peerlane.memory.buffer import checked_part
from peerlane.memory.physical import Physical
from peerlane.node.base import HostBase, checked_peer, checked_size

_RIGHTS = {"none": 0, "r": 1, "rw": 3}
_NAMES = {number: name for name, number in _RIGHTS.items()}


class VirtualAddressRange(AddressRange):
    __slots__ = ("__weakref__", "_mapped", "_of_host", "_reservation", "_read_only", "_device")
    _mapped: dict[int, int]
    _of_host: set[int]  # offsets of mapped memory of the host
    _reservation: _core.Reservation
    _read_only: set[int]
    _device: Any

    @classmethod
    def _make(cls, reservation: _core.Reservation, device: Any) -> VirtualAddressRange:
        address_range = object.__new__(cls)
        address_range._device, address_range._reservation = device, reservation
        address_range._mapped, address_range._read_only, address_range._of_host = {}, set(), set()
        allocations.remember_range(reservation, device.name)
        return address_range

    @property
    def address(self) -> int:
        return self._open("AddressRange.address").address

    @property
    def size(self) -> int:
        return self._reservation.size

    @property
    def is_closed(self) -> bool:
        return self._reservation.is_closed or self._device.is_closed

    @property
    def mappings(self) -> tuple[tuple[int, int], ...]:
        return tuple(sorted(self._mapped.items()))

    def map(
        self, physical: Physical, at: int = 0, *, access: Access | None = None, size: int | None = None
    ) -> None:
        if not isinstance(physical, VirtualPhysical):
            raise TypeError(f"AddressRange.map: the block must be a Physical, not {type(physical).__name__}")
        self._map(physical, at, access, physical.size if size is None else self._checked_part(physical, size))

    def _checked_part(self, physical: VirtualPhysical, size: int) -> int:
        call = "AddressRange.map"
        size = checked_size(size, call)
        if not 0 < size <= physical.size or size % self.device.granularity:
            raise InvalidValue(
                f"{call}: size is {size:,}; a part of {physical!r} is a multiple of {self.device.granularity:,} and "
                f"at most {physical.size:,} bytes",
                fault=Fault.OUT_OF_BOUNDS,
                call=call,
                detail=BadArgument(
                    "size",
                    size,
                    least=self.device.granularity,
                    most=physical.size,
                    multiple=self.device.granularity,
                ),
            )
        return size

    def _map(self, physical: VirtualPhysical, at: int, access: Access | None, limit: int) -> None:
        # Addresses from `limit` bytes on are out of bounds; the mapping ends with the granule that has the limit.
        call = "AddressRange.map"
        block = physical._open(call)
        reservation = self._open(call)
        if physical._backend is not self._device.backend:
            self._number(call, physical.device)
        at = self._checked_offset(call, at)
        granularity = self._device.granularity
        span = min(-(-limit // granularity) * granularity, physical._size)
        if at % granularity or at + span > reservation.size:
            part = "" if span == physical.size else f"{span:,} bytes of "
            raise BadAddress(
                f"{call}: {part}{physical!r} does not fit at offset {at:,} of {self!r}; an offset is a multiple of "
                f"{granularity:,}, and the whole mapping must lie inside",
                fault=Fault.OUT_OF_BOUNDS,
                call=call,
                device=self.device.name,
                detail=Refused(
                    reason="does_not_fit", at=at, size=span, extent=self.size, multiple=granularity
                ),
            )
        if access is None:
            reservation.map_for(at, block, physical._user, limit)
        else:
            others = _rights(call, access) if isinstance(access, str) else 0
            named = [] if isinstance(access, str) else self._named(call, access)
            if block.is_read_only and any(
                rights & 2 for rights in (others, *(rights for _, rights in named))
            ):
                raise self._only_read(call, at)
            if block.device != HOST:
                self._refuse_host(call, named, at)
            reservation.map(at, block, others, named, limit)
        if block.device == HOST:
            self._of_host.add(at)
        if block.is_read_only:
            self._read_only.add(at)
        self._mapped[at] = span
        if live_objects.active:
            live_objects.mapped(reservation.id, at, physical, span)

    def unmap(self, at: int = 0, size: int | None = None) -> None:
        call = "AddressRange.unmap"
        reservation = self._open(call)
        for start in self._whole(call, at, size):
            # Removed first: another thread may map a block here at once, and that record must stay.
            if self._mapped.pop(start, None) is None:
                raise memory_messages.not_mapped(reservation.address + start, self.device.name)
            self._read_only.discard(start)
            self._of_host.discard(start)
            reservation.unmap(start)
            if live_objects.active:
                live_objects.unmapped(reservation.id, start)

    def set_access(self, access: Access, *, at: int = 0, size: int | None = None) -> None:
        call = "AddressRange.set_access"
        reservation = self._open(call)
        starts = sorted(self._mapped) if size is None and at == 0 else self._whole(call, at, size)
        named = (
            [(_core.ALL_DEVICES, _rights(call, access))]
            if isinstance(access, str)
            else self._named(call, access)
        )
        if any(wanted & 2 for _, wanted in named):
            for start in self._read_only.intersection(starts):
                raise self._only_read(call, start)
        for start in set(starts) - self._of_host:
            self._refuse_host(call, named, start)
        for start in starts:
            for number, wanted in named:
                # Another thread may have unmapped it: then no mapping begins there.
                reservation.set_access(start, self._mapped.get(start, 1), number, wanted)

    def access(self, device: Any, at: int = 0) -> str:
        call = "AddressRange.access"
        reservation = self._open(call)
        number = self._number(call, device)
        return _NAMES[reservation.rights(self._checked_offset(call, at), number)]

    def grow(self, nbytes: int) -> None:
        call = "AddressRange.grow"
        nbytes = checked_size(nbytes, call)
        reservation = self._open(call)
        if not reservation.grow(nbytes):
            why = "the addresses behind it are in use"
            if nbytes > reservation.most:
                why = (
                    f"at most {reservation.most:,} bytes can be reserved from its first address on (window_bytes in "
                    "the node configuration)"
                )
            raise OutOfMemory(
                f"{call}: {self!r} cannot grow to {nbytes:,} bytes where it is: {why}; reserve the largest size from "
                "the start, because addresses cost nothing until a block is mapped",
                fault=Fault.OUT_OF_RESOURCES,
                call=call,
                device=self.device.name,
                detail=Refused(reason="cannot_grow", asked=nbytes, size=self.size, most=reservation.most),
            )
        allocations.grown(reservation)

    def close(self) -> None:
        if not self._reservation.is_closed:
            self._mapped.clear()
            self._read_only.clear()
            self._of_host.clear()
            allocations.forget(self._reservation.id, "AddressRange.close()")
        self._reservation.close()

    def _lend(self, start: int, nbytes: int) -> VirtualBuffer:
        # The whole range becomes an imported buffer: texts must name that, not a range that the program never made.
        buffer = self[start : start + nbytes]
        buffer._imported = self
        allocations.remember_import(buffer, self._reservation, self.device.name)
        return buffer

    def __getitem__(self, index: slice) -> VirtualBuffer:
        reservation = self._open("AddressRange[]")
        first, last = checked_part("AddressRange", index, self.size, self.device)
        return VirtualBuffer._make(self, self.device, reservation, first, last - first)

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
        reservation = getattr(self, "_reservation", None)
        if reservation is not None and allocations is not None and not reservation.is_closed:
            allocations.forget(reservation.id, "garbage collection")

    def _open(self, call: str) -> _core.Reservation:
        if self.is_closed:
            raise was_closed(call, self, self.device.name)
        return self._reservation

    def _only_read(self, call: str, at: int) -> AccessDenied:
        return AccessDenied(
            f'{call}: the block at offset {at:,} of {self!r} was shared read-only; give "r" or "none"',
            fault=Fault.READ_ONLY,
            call=call,
            device=self.device.name,
            detail=Refused(reason="shared_read_only", at=at, choices=("r", "none")),
        )

    def _checked_offset(self, call: str, at: int) -> int:
        if isinstance(at, bool) or not isinstance(at, int):
            raise TypeError(f"{call}: the offset must be an int, not {type(at).__name__}")
        if not 0 <= at < 1 << 63:
            raise InvalidValue(
                f"{call}: offset {at:,} is outside the range's {self.size:,} bytes",
                fault=Fault.OUT_OF_BOUNDS,
                call=call,
                detail=BadArgument("at", at, least=0, most=self.size - 1),
            )
        return at

    def _whole(self, call: str, at: int, size: int | None) -> list[int]:
        at = self._checked_offset(call, at)
        end = at + (self._mapped.get(at, 1) if size is None else checked_size(size, call))
        starts, reached = [], at
        while reached < end and reached in self._mapped:
            starts.append(reached)
            reached += self._mapped[reached]
        if reached != end:
            raise memory_messages.not_mapped(
                self._reservation.address + (at if not starts else reached), self.device.name
            )
        return starts

    def _named(self, call: str, access: Mapping[Any, str]) -> list[tuple[int, int]]:
        if not isinstance(access, Mapping):
            raise TypeError(f"{call}: access must be a mapping of Device to str, or a str")
        numbered = []
        for device, rights in access.items():
            numbered.append((self._number(call, device), _rights(call, rights)))
        return numbered

    def _number(self, call: str, device: Any) -> int:
        """Return the native number of the host, or of a device of the same node."""
        if not isinstance(device, HostBase):
            checked_peer(self.device, device, call)
        return number_of(device)

    def _refuse_host(self, call: str, named: Sequence[tuple[int, int]], at: int) -> None:
        """Refuse rights of the host to memory of a device."""
        if any(number == HOST and rights for number, rights in named):
            raise AccessDenied(
                f"{call}: the host cannot touch the block at offset {at:,} of {self!r}, which is memory of a device; "
                "map physical memory of Host() there, or leave the host out",
                fault=Fault.NO_ACCESS,
                call=call,
                device=self.device.name,
                detail=Refused(reason="host_access", at=at),
            )

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{len(self._mapped)} mapped"
        return f"<AddressRange {self.size:,} bytes at {self._reservation.address:#x} on {self.device.name}, {state}>"


def _rights(call: str, name: object) -> int:
    if not isinstance(name, str) or name not in _RIGHTS:
        raise InvalidValue(
            f"{call}: access is {name!r}; valid are {', '.join(map(repr, _RIGHTS))}",
            call=call,
            detail=BadArgument("access", name, choices=tuple(_RIGHTS)),
        )
    return _RIGHTS[name]


show_as(AddressRange, VirtualAddressRange)
