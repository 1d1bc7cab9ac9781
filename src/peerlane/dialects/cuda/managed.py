"""Managed memory: where it is wanted, the advice of the program, and what holds of a range (facts/cuda 4.8)."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

from peerlane.dialects.cuda.pools import Fields, location_of
from peerlane.dialects.cuda.state import call, define, enums, gpu, invalid, machine, refuse_flags
from peerlane.dialects.gpu.locations import DEVICE, HOST
from peerlane.dialects.gpu.machine import INVALID_DEVICE
from peerlane.dialects.gpu.managed import Advice
from peerlane.dialects.gpu.regions import CPU

managed = gpu.managed
_NOWHERE = 0
_ADVICE = {
    enums["CUmem_advise"][f"CU_MEM_ADVISE_{verb}_{each.name}"]: (each, verb == "SET")
    for each in (Advice.READ_MOSTLY, Advice.PREFERRED_LOCATION, Advice.ACCESSED_BY)
    for verb in ("SET", "UNSET")
}
_RANGES = {
    number: name.removeprefix("CU_MEM_RANGE_ATTRIBUTE_")
    for name, number in enums["CUmem_range_attribute"].items()
}


def _id(location: Fields, what: str = "location") -> int:
    """Return the number of a location: a device's, or that of the host."""
    where = location_of(location, what)
    return CPU if isinstance(where, int) else machine.id_of(where.ordinal)


def _prefetch(devPtr: int, count: int, device: int, stream: int) -> None:
    managed.prefetch(managed.advisable("devPtr", devPtr, count), device, stream)


@call
def cuMemPrefetchAsync(devPtr: int, count: int, dstDevice: int, hStream: int) -> None:
    _prefetch(devPtr, count, dstDevice, hStream)


@call
def cuMemPrefetchAsync_v2(devPtr: int, count: int, location: Fields, flags: int, hStream: int) -> None:
    refuse_flags(flags)
    _prefetch(devPtr, count, _id(location), hStream)


def _advise(devPtr: int, count: int, advice: int, device_of: Callable[[], int]) -> None:
    if advice not in _ADVICE:
        raise invalid(f"{advice} is not an advice", "pass a member of CUmem_advise")
    kind, is_set = _ADVICE[advice]
    span = managed.advisable("devPtr", devPtr, count)
    needs_device = kind is Advice.ACCESSED_BY or (kind is Advice.PREFERRED_LOCATION and is_set)
    managed.advise(span, kind, device_of() if needs_device else CPU, is_set=is_set)


@call
def cuMemAdvise(devPtr: int, count: int, advice: int, device: int) -> None:
    _advise(devPtr, count, advice, lambda: device)


@call
def cuMemAdvise_v2(devPtr: int, count: int, advice: int, location: Fields) -> None:
    _advise(devPtr, count, advice, lambda: _id(location))


def _range_values(name: str, pieces: Any, room: int) -> list[int]:
    """Return what holds of all of a range, as numbers of 4 bytes; -2 for no location, or not the same for all."""
    if name == "READ_MOSTLY":
        return [int(pieces.is_read_mostly)]
    if name == "ACCESSED_BY":
        return [*map(machine.id_of, pieces.accessed_by), *[INVALID_DEVICE] * room][:room]
    is_prefetch = name.startswith("LAST_PREFETCH")
    number = pieces.common(lambda piece: piece.prefetched if is_prefetch else piece.preferred)
    if name.endswith("_TYPE"):
        return [_NOWHERE if number == INVALID_DEVICE else HOST if number == CPU else DEVICE]
    if name.endswith("_ID"):
        return [0 if number in (CPU, INVALID_DEVICE) else machine.id_of(number)]
    return [machine.id_of(number)]


def _write_range(data: int, nbytes: int, attribute: int, pieces: Any) -> None:
    name = _RANGES.get(attribute, "")
    if not name:
        raise invalid(f"attribute {attribute} is not one of ranges", "pass a member of CUmem_range_attribute")
    is_list = name == "ACCESSED_BY"
    if not nbytes or nbytes % 4 or (nbytes != 4 and not is_list):
        raise invalid(f"data has {nbytes:,} bytes for {name}", f"pass {'a multiple of ' * is_list}4")
    values = _range_values(name, pieces, nbytes // 4)
    ctypes.memmove(data, struct.pack(f"<{len(values)}i", *values), 4 * len(values))


@call
def cuMemRangeGetAttribute(data: int, dataSize: int, attribute: int, devPtr: int, count: int) -> None:
    _write_range(data, dataSize, attribute, managed.pieces("devPtr", devPtr, count))


@call
def cuMemRangeGetAttributes(
    data: Sequence[int],
    dataSizes: Sequence[int],
    attributes: Sequence[int],
    numAttributes: int,
    devPtr: int,
    count: int,
) -> None:
    pieces = managed.pieces("devPtr", devPtr, count)
    if not numAttributes or not all(data):
        raise invalid("an address of a value is NULL, or none is asked for", "pass an address for each")
    for target, nbytes, attribute in zip(data, dataSizes, attributes, strict=True):
        _write_range(target, nbytes, attribute, pieces)


@call
def cuStreamAttachMemAsync(hStream: int, dptr: int, length: int, flags: int) -> None:
    region = gpu.regions.at(dptr)
    if region is None or not region.is_managed:
        raise invalid(f"dptr is not managed: {machine.describe(dptr)}", "pass memory of cuMemAllocManaged")
    managed.attach(hStream, dptr, length, flags)


def _refuse_legacy(stream: int) -> None:
    if not stream:
        raise invalid("hStream is the legacy stream", "pass a stream that cuStreamCreate returned")


def _ranges(dptrs: Sequence[int], sizes: Sequence[int], flags: int, stream: int) -> list[tuple[int, int]]:
    refuse_flags(flags)
    _refuse_legacy(stream)
    gpu.streams.of(stream)
    if not dptrs:
        raise invalid("count is 0", "pass at least one range")
    return list(zip(dptrs, sizes, strict=True))


def _prefetch_each(ranges: list[tuple[int, int]], locations: Sequence[Fields], starts: Sequence[int]) -> None:
    if not starts:
        raise invalid("numPrefetchLocs is 0", "pass at least one location")
    group_of = gpu.batches.group_of("prefetchLocIdxs", starts, len(ranges))
    where = [managed.ordinal_of(_id(each, f"prefetchLocs[{at}]")) for at, each in enumerate(locations)]
    managed.prefetch_each(ranges, lambda at: where[group_of(at)], "dptrs")


def _prefetch_batch(
    dptrs: Any, sizes: Any, count: int, locations: Any, starts: Any, number: int, flags: int, stream: int
) -> None:
    _prefetch_each(_ranges(dptrs, sizes, flags, stream), locations, starts)


def _discard_and_prefetch(
    dptrs: Any, sizes: Any, count: int, locations: Any, starts: Any, number: int, flags: int, stream: int
) -> None:
    ranges = _ranges(dptrs, sizes, flags, stream)
    managed.discard_each(ranges, "dptrs")
    _prefetch_each(ranges, locations, starts)


define("cuMemPrefetchBatchAsync", _prefetch_batch)
define("cuMemDiscardAndPrefetchBatchAsync", _discard_and_prefetch)


@call
def cuMemDiscardBatchAsync(dptrs: Any, sizes: Any, count: int, flags: int, hStream: int) -> None:
    managed.discard_each(_ranges(dptrs, sizes, flags, hStream), "dptrs")
