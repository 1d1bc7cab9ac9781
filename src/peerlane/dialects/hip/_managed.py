"""``hip``: what programs say of managed memory, which is kept and changes nothing: it stays on the host."""

from __future__ import annotations

import mmap
import struct as packing
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from peerlane.dialects.gpu.machine import INVALID_DEVICE
from peerlane.dialects.gpu.regions import CPU, Region
from peerlane.dialects.hip._checks import NoFlags, NotNull, refuse_none, refuse_null
from peerlane.dialects.hip._convention import invalid, refusal
from peerlane.dialects.hip._enums import enumeration
from peerlane.dialects.hip._peer import device_of
from peerlane.dialects.hip._pointers import write
from peerlane.dialects.hip._state import calls, gpu, machine
from peerlane.dialects.hip._stream import stream_of

_HOSTS = tuple(f"hipMemLocationType{name}" for name in ("Host", "HostNuma", "HostNumaCurrent"))
_COHERENCY = "hipMemRangeAttributeCoherencyMode"
_FINE, _COARSE, _MIXED = 0, 1, 2
_FINE_DEVICE = (1, 3)  # hipDeviceMallocFinegrained, hipDeviceMallocUncached
_COARSE_HOST = 0x8000_0000  # hipHostMallocNonCoherent


@dataclass(frozen=True, slots=True)
class _Advice:
    """What holds of some bytes."""

    start: int
    end: int
    is_read_mostly: bool = False
    preferred: int = INVALID_DEVICE
    accessed_by: tuple[int, ...] = ()
    prefetched: int = INVALID_DEVICE
    is_coarse: bool = False


def _managed(name: str, address: int, count: int) -> Region:
    """Return memory that can be advised and that has so many bytes from an address on."""
    region = checked(name, address, count)
    if region is None or not _is_advised(region):
        raise invalid(
            f"{name} is neither managed nor registered memory: {machine.describe(address)}",
            "pass what hipMallocManaged returned, or what hipHostRegister was given",
        )
    return region


def _is_advised(region: Region) -> bool:
    return region.is_managed or region.is_registered


def checked(name: str, address: int, count: int) -> Region | None:
    """Return the memory that has so many bytes from an address on; None for ordinary memory of the host."""
    refuse_null(name, address)
    if not count:
        raise invalid("count is 0", "name at least 1 byte")
    region = gpu.regions.at(address)
    if region is not None and count > region.left(address):
        raise invalid(
            f"{name} has {region.left(address):,} bytes from {address:#x} on, and {count:,} are named",
            "name fewer bytes",
        )
    return region


def place_of_id(device: int) -> int:
    """Return the node's number of a device by its id; `CPU` stays."""
    return CPU if device == CPU else device_of(device).ordinal


def id_of_location(locations: Any, at: int = 0) -> int:
    """Return the device's id, or `CPU`, that a location says, the one at a region of an array."""
    if locations is None:
        raise invalid("the location is NULL", "pass a hipMemLocation")
    try:
        kind = locations.get_type(at).name
    except ValueError as error:
        raise invalid(f"the location's type: {error}", "set it to a member") from None
    if kind in _HOSTS:
        return CPU
    if kind != "hipMemLocationTypeDevice":
        raise invalid(f"the location's type is {kind}", "name a device or the host")
    return int(locations.get_id(at))


def _change(region: Region, address: int, count: int, change: Callable[[_Advice], _Advice]) -> None:
    """Change what holds of all pages that have some of the bytes."""
    start = address // mmap.PAGESIZE * mmap.PAGESIZE
    end = -(-(address + count) // mmap.PAGESIZE) * mmap.PAGESIZE
    with machine.lock:
        pieces = machine.advised.setdefault(region.allocation, [])
        if not pieces:
            pieces.append(_Advice(region.base, region.base + region.size))
        machine.advised[region.allocation] = [
            change(each) if start <= each.start and each.end <= end else each
            for piece in pieces
            for each in _cut(piece, start, end)
        ]


def _cut(piece: _Advice, *regions: int) -> list[_Advice]:
    """Return the parts of a piece between regions that lie in it."""
    ends = [piece.start, *(at for at in regions if piece.start < at < piece.end), piece.end]
    return [replace(piece, start=start, end=end) for start, end in pairwise(ends)]


@calls.call("hipMemPrefetchAsync")
def hipMemPrefetchAsync(dev_ptr: int, count: int, device: int, stream: int) -> None:
    """Note where managed or registered memory is wanted; nothing moves.

    ``device`` is an id or hipCpuDeviceId, -1.  It holds for all pages that have some of the bytes.

    Refuses: hipErrorInvalidValue NULL, no bytes, more than there are; hipErrorInvalidDevice; hipErrorNotSupported
        ordinary host memory for a device; the stream
    Basis: D; C: nothing moves
    """
    _prefetch(dev_ptr, count, lambda: device, stream)


@calls.call("hipMemPrefetchAsync_v2")
def hipMemPrefetchAsync_v2(dev_ptr: int, count: int, location: Any, flags: NoFlags, stream: int) -> None:
    """Do what hipMemPrefetchAsync does; the region is a location.

    Refuses: as `hipMemPrefetchAsync`; hipErrorInvalidValue flags not 0
    Basis: D; C: nothing moves
    """
    _prefetch(dev_ptr, count, lambda: id_of_location(location), stream)


def _prefetch(address: int, count: int, wanted: Callable[[], int], stream: int) -> None:
    region = checked("dev_ptr", address, count)
    ordinal = place_of_id(wanted())
    if region is None and ordinal != CPU:
        raise refusal(
            "hipErrorNotSupported",
            f"devices do not reach {machine.describe(address)}",
            "allocate it with hipMallocManaged",
        )
    stream_of(stream)
    if region is not None and _is_advised(region):
        note_prefetch(region, address, count, ordinal)


def note_prefetch(region: Region, address: int, count: int, ordinal: int) -> None:
    """Note where some bytes are wanted: on a device by the node's number, or `CPU`."""
    _change(region, address, count, lambda piece: replace(piece, prefetched=ordinal))


@calls.call("hipMemAdvise")
def hipMemAdvise(dev_ptr: int, count: int, advice: Any, device: int) -> None:
    """Note the advice of a program for managed or registered memory; nothing depends on it.

    It holds for all pages that have some of the bytes.  For ReadMostly ``device`` is ignored.

    Refuses: hipErrorInvalidValue NULL, no bytes, more than there are, memory that is neither managed nor registered;
        hipErrorInvalidDevice
    Basis: D; C for memory that is neither
    """
    _advise(dev_ptr, count, advice, lambda: device)


@calls.call("hipMemAdvise_v2")
def hipMemAdvise_v2(dev_ptr: int, count: int, advice: Any, location: Any) -> None:
    """Do what hipMemAdvise does; the device is a location.

    Refuses: as `hipMemAdvise`
    Basis: D; C for memory that is neither managed nor registered
    """
    _advise(dev_ptr, count, advice, lambda: id_of_location(location))


def _advise(address: int, count: int, advice: Any, wanted: Callable[[], int]) -> None:
    region = _managed("dev_ptr", address, count)
    name = advice.name.removeprefix("hipMemAdvise")
    is_set, what = name.startswith("Set"), name.removeprefix("Un").removeprefix("set").removeprefix("Set")
    device = wanted()
    if what == "ReadMostly":
        _change(region, address, count, lambda piece: replace(piece, is_read_mostly=is_set))
        return
    ordinal = place_of_id(device)
    if what == "CoarseGrain":
        _change(region, address, count, lambda piece: replace(piece, is_coarse=is_set))
    elif what == "PreferredLocation":
        preferred = ordinal if is_set else INVALID_DEVICE
        _change(region, address, count, lambda piece: replace(piece, preferred=preferred))
    else:

        def change(piece: _Advice) -> _Advice:
            others = tuple(each for each in piece.accessed_by if each != ordinal)
            return replace(piece, accessed_by=(*others, ordinal) if is_set else others)

        _change(region, address, count, change)


@calls.call("hipMemRangeGetAttribute")
def hipMemRangeGetAttribute(data: NotNull, data_size: int, attribute: Any, dev_ptr: int, count: int) -> None:
    """Write what holds of all of a range of managed or registered memory: numbers of 4 bytes.

    Yes or no is 1 or 0, a region an id, -1 the host, -2 none or not the same for all.  AccessedBy fills ``data_size``
    bytes: the devices that hold for all of the range in their order, then the host, the rest -2.  CoherencyMode is
    told of other memory too: coarse, 1, of a device, and fine, 0, of the host, if its flags do not say otherwise.

    Refuses: hipErrorInvalidValue NULL, no bytes, more than there are, memory that is neither managed nor registered,
        another size than 4 (AccessedBy: no multiple of 4)
    Basis: D; C for memory that is neither
    """
    if attribute.name == _COHERENCY:
        region = checked("dev_ptr", dev_ptr, count)
        if region is not None and not _is_advised(region):
            _refuse_size(data_size, attribute)
            write(data, packing.pack("<i", _made_with(region)))
            return
    _tell(data, data_size, attribute, _pieces(dev_ptr, count))


def _made_with(region: Region) -> int:
    """Return the coherency of memory that takes no advice."""
    if region.is_device:
        return _FINE if region.flags in _FINE_DEVICE else _COARSE
    return _COARSE if region.flags & _COARSE_HOST else _FINE


@calls.call("hipMemRangeGetAttributes")
def hipMemRangeGetAttributes(num_attributes: int, dev_ptr: int, count: int) -> tuple[Any, ...]:
    """Write many attributes of a range of managed or registered memory.

    hip-python makes outputs of what the C function reads, so that nothing can be asked for; C's arguments are taken
    as well: ``(data, data_sizes, attributes, num_attributes, dev_ptr, count)``, lists.

    Refuses: as `hipMemRangeGetAttribute`; hipErrorInvalidValue no attributes; hipErrorNotSupported hip-python's
        arguments
    Basis: D; C for the arguments
    """
    _pieces(dev_ptr, count)
    refuse_none("num_attributes", num_attributes)
    raise refusal(
        "hipErrorNotSupported",
        "hip-python makes outputs of `data`, `data_sizes` and `attributes`, which the C function reads",
        "pass (data, data_sizes, attributes, num_attributes, dev_ptr, count), or ask for each by itself",
    )


@calls.also("hipMemRangeGetAttributes", "C")
def _range_get_attributes(
    data: Any, data_sizes: Any, attributes: Any, num_attributes: int, dev_ptr: int, count: int
) -> None:
    refuse_none("num_attributes", num_attributes)
    pieces = _pieces(dev_ptr, count)
    for number in range(num_attributes):
        target = int(data[number])
        refuse_null(f"data[{number}]", target)
        _tell(
            target, int(data_sizes[number]), enumeration("hipMemRangeAttribute")(attributes[number]), pieces
        )


def _pieces(address: int, count: int) -> list[_Advice]:
    region = _managed("dev_ptr", address, count)
    with machine.lock:
        pieces = machine.advised.get(region.allocation) or [_Advice(region.base, region.base + region.size)]
    return [piece for piece in pieces if piece.start < address + count and address < piece.end]


def _tell(data: int, nbytes: int, attribute: Any, pieces: list[_Advice]) -> None:
    _refuse_size(nbytes, attribute)
    if _is_list(attribute):
        room = nbytes // 4
        shared = [
            each for each in pieces[0].accessed_by if all(each in piece.accessed_by for piece in pieces)
        ]
        shared.sort(key=lambda each: (each == CPU, each))
        numbers = [*map(machine.id_of, shared), *[INVALID_DEVICE] * room][:room]
    else:
        numbers = [_common(attribute.name.removeprefix("hipMemRangeAttribute"), pieces)]
    write(data, packing.pack(f"<{len(numbers)}i", *numbers))


def _is_list(attribute: Any) -> bool:
    return bool(attribute.name == "hipMemRangeAttributeAccessedBy")


def _refuse_size(nbytes: int, attribute: Any) -> None:
    if not nbytes or nbytes % 4 or (nbytes != 4 and not _is_list(attribute)):
        raise invalid(
            f"data has {nbytes:,} bytes for {attribute.name}",
            "pass a multiple of 4" if _is_list(attribute) else "pass 4",
        )


def _common(name: str, pieces: list[_Advice]) -> int:
    if name == "ReadMostly":
        return int(all(piece.is_read_mostly for piece in pieces))
    if name == "CoherencyMode":
        modes = {piece.is_coarse for piece in pieces}
        return _MIXED if len(modes) > 1 else _COARSE if modes == {True} else _FINE
    found = {piece.preferred if name == "PreferredLocation" else piece.prefetched for piece in pieces}
    return machine.id_of(found.pop()) if len(found) == 1 else INVALID_DEVICE
