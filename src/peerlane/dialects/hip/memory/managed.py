"""``hip``: advice on managed memory, which is kept and changes nothing: the memory stays on the host."""

from __future__ import annotations

import struct as packing
from typing import Any

from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.gpu.machine import INVALID_DEVICE
from peerlane.dialects.gpu.managed import Advice, Pieces, Span
from peerlane.dialects.gpu.regions import CPU, Region
from peerlane.dialects.hip.binding import members, numbers
from peerlane.dialects.hip.binding.checks import NoFlags, NotNone, NotNull, refuse_none, refuse_null
from peerlane.dialects.hip.binding.convention import invalid, refusal, refuse_fewer
from peerlane.dialects.hip.binding.enums import enumeration
from peerlane.dialects.hip.binding.pointers import write
from peerlane.dialects.hip.state import calls, gpu, machine
from peerlane.dialects.hip.streams.stream import stream_of
from peerlane.errors import Error

managed = gpu.managed
_HOSTS = tuple(f"hipMemLocationType{name}" for name in ("Host", "HostNuma", "HostNumaCurrent"))
_COHERENCY = "hipMemRangeAttributeCoherencyMode"
_FINE, _COARSE, _MIXED = (
    members("hipMemRangeCoherencyMode")[f"hipMemRangeCoherencyMode{each}"]
    for each in ("FineGrain", "CoarseGrain", "Indeterminate")
)
#: By the end of the names of hipMemoryAdvise: what is advised, and whether it is set or taken back.
_ADVICE = {
    "SetReadMostly": (Advice.READ_MOSTLY, True),
    "UnsetReadMostly": (Advice.READ_MOSTLY, False),
    "SetPreferredLocation": (Advice.PREFERRED_LOCATION, True),
    "UnsetPreferredLocation": (Advice.PREFERRED_LOCATION, False),
    "SetAccessedBy": (Advice.ACCESSED_BY, True),
    "UnsetAccessedBy": (Advice.ACCESSED_BY, False),
    "SetCoarseGrain": (Advice.COARSE_GRAIN, True),
    "UnsetCoarseGrain": (Advice.COARSE_GRAIN, False),
}
_UNCACHED = 3  # hipDeviceMallocUncached, a macro of the C header, which the wheel lacks
_FINE_DEVICE = (*numbers("hipDeviceMallocFinegrained"), _UNCACHED)
(_COARSE_HOST,) = numbers("hipHostMallocNonCoherent")


def id_of_location(locations: Any, at: int = 0) -> int:
    """Return the device's id, or `CPU`, of the location at index ``at`` of an array."""
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


@calls.call("hipMemPrefetchAsync")
def hipMemPrefetchAsync(dev_ptr: int, count: int, device: int, stream: int) -> None:
    """Note where managed or registered memory is wanted; nothing moves.

    ``device`` is an id or hipCpuDeviceId, -1.  It holds for all pages that have some of the bytes.

    Refuses: hipErrorInvalidValue NULL, no bytes, more than there are; hipErrorInvalidDevice; hipErrorNotSupported
        ordinary host memory for a device; the stream
    Basis: D; C: nothing moves
    """
    managed.prefetch(managed.span("dev_ptr", dev_ptr, count), device, stream)


@calls.call("hipMemPrefetchAsync_v2")
def hipMemPrefetchAsync_v2(dev_ptr: int, count: int, location: Any, flags: NoFlags, stream: int) -> None:
    """Do what hipMemPrefetchAsync does; the device is a location.

    Refuses: as `hipMemPrefetchAsync`; hipErrorInvalidValue flags not 0
    Basis: D; C: nothing moves
    """
    span = managed.span("dev_ptr", dev_ptr, count)
    managed.prefetch(span, id_of_location(location), stream)


@calls.call("hipMemAdvise")
def hipMemAdvise(dev_ptr: int, count: int, advice: Any, device: int) -> None:
    """Note the advice of a program for managed or registered memory; nothing depends on it.

    It holds for all pages that have some of the bytes.  For ReadMostly ``device`` is ignored.

    Refuses: hipErrorInvalidValue NULL, no bytes, more than there are, memory that is neither managed nor registered;
        hipErrorInvalidDevice
    Basis: D; C for memory that is neither
    """
    _advise(managed.advisable("dev_ptr", dev_ptr, count), advice, device)


@calls.call("hipMemAdvise_v2")
def hipMemAdvise_v2(dev_ptr: int, count: int, advice: Any, location: Any) -> None:
    """Do what hipMemAdvise does; the device is a location.

    Refuses: as `hipMemAdvise`
    Basis: D; C for memory that is neither managed nor registered
    """
    _advise(managed.advisable("dev_ptr", dev_ptr, count), advice, id_of_location(location))


def _advise(span: Span, advice: Any, device: int) -> None:
    kind, is_set = _ADVICE[advice.name.removeprefix("hipMemAdvise")]
    managed.advise(span, kind, device, is_set=is_set)


@calls.call("hipMemRangeGetAttribute")
def hipMemRangeGetAttribute(data: NotNull, data_size: int, attribute: Any, dev_ptr: int, count: int) -> None:
    """Write what holds of all of a range of managed or registered memory: numbers of 4 bytes.

    Yes or no is 1 or 0, a location an id, -1 the host, -2 none or not the same for all.  AccessedBy fills
    ``data_size`` bytes: the devices that hold for all of the range in their order, then the host, the rest -2.
    Other memory has CoherencyMode too: coarse, 1, of a device, fine, 0, of the host, unless its flags say otherwise.

    Refuses: hipErrorInvalidValue NULL, no bytes, more than there are, memory that is neither managed nor registered,
        another size than 4 (AccessedBy: no multiple of 4)
    Basis: D; C for memory that is neither
    """
    if attribute.name == _COHERENCY:
        span = managed.span("dev_ptr", dev_ptr, count)
        if span.region is not None and not span.takes_advice:
            _refuse_size(data_size, attribute)
            write(data, packing.pack("<i", _coherency_of(span.region)))
            return
    _write_attribute(data, data_size, attribute, managed.pieces("dev_ptr", dev_ptr, count))


def _coherency_of(region: Region) -> int:
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
    managed.advisable("dev_ptr", dev_ptr, count)
    refuse_none("num_attributes", num_attributes)
    raise refusal(
        "hipErrorNotSupported",
        "hip-python makes outputs of `data`, `data_sizes` and `attributes`, which the C function reads",
        "pass (data, data_sizes, attributes, num_attributes, dev_ptr, count), or ask for each by itself",
    )


@calls.declare_overload("hipMemRangeGetAttributes", "C")
def _range_get_attributes(
    data: Any, data_sizes: Any, attributes: Any, num_attributes: int, dev_ptr: int, count: int
) -> None:
    refuse_none("num_attributes", num_attributes)
    pieces = managed.pieces("dev_ptr", dev_ptr, count)
    for number in range(num_attributes):
        target = int(data[number])
        refuse_null(f"data[{number}]", target)
        _write_attribute(
            target, int(data_sizes[number]), enumeration("hipMemRangeAttribute")(attributes[number]), pieces
        )


def _write_attribute(data: int, nbytes: int, attribute: Any, pieces: Pieces) -> None:
    _refuse_size(nbytes, attribute)
    if _is_list(attribute):
        room = nbytes // 4
        numbers = [*map(machine.id_of, pieces.accessed_by), *[INVALID_DEVICE] * room][:room]
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


def _common(name: str, pieces: Pieces) -> int:
    if name == "ReadMostly":
        return int(pieces.is_read_mostly)
    if name == "CoherencyMode":
        modes = {piece.is_coarse for piece in pieces}
        return _MIXED if len(modes) > 1 else _COARSE if modes == {True} else _FINE
    if name == "PreferredLocation":
        return machine.id_of(pieces.common(lambda piece: piece.preferred))
    return machine.id_of(pieces.common(lambda piece: piece.prefetched))


@calls.call("hipStreamAttachMemAsync")
def hipStreamAttachMemAsync(stream: int, dev_ptr: int, length: int, flags: int) -> None:
    """Do nothing: the host and every device reach all memory that HIP allocated.

    ``length`` is 0 or that of the whole allocation.

    Refuses: hipErrorInvalidValue NULL, flags, hipMemAttachSingle to the null stream, memory that was not allocated,
        another length; hipErrorContextIsDestroyed not a stream
    Basis: D; C for any allocated memory
    """
    managed.attach(stream, dev_ptr, length, flags)


@calls.call("hipMemPrefetchBatchAsync")
def hipMemPrefetchBatchAsync(
    dev_ptrs: Any, count: int, prefetch_locs: Any, num_prefetch_locs: int, flags: int, stream: int
) -> tuple[int, int]:
    """Note where many ranges of managed memory are wanted; none with the arguments of hip-python.

    hip-python makes outputs of the sizes and of where each location begins; C's arguments are taken as well:
    ``(dev_ptrs, sizes, count, prefetch_locs, prefetch_loc_idxs, num_prefetch_locs, flags, stream)``, lists or arrays
    and numbers.  A location holds from the range of its index on.

    Refuses: hipErrorInvalidValue NULL, also for the stream, no ranges, one of 0 bytes or with more than there are,
        memory of a device, registered or ordinary memory, indices that do not begin with 0 and rise, `flags` not 0,
        no device; the stream
    Basis: D; C: nothing moves
    """
    raise invalid(
        "hip-python makes outputs of `sizes` and `prefetch_loc_idxs`, which the C function reads: every size is 0",
        "pass (dev_ptrs, sizes, count, prefetch_locs, prefetch_loc_idxs, num_prefetch_locs, flags, stream)",
    )


@calls.declare_overload("hipMemPrefetchBatchAsync", "C")
def _prefetch_batch(
    dev_ptrs: Any,
    sizes: Any,
    count: NotNone,
    prefetch_locs: Any,
    prefetch_loc_idxs: Any,
    num_prefetch_locs: NotNone,
    flags: NoFlags,
    stream: NotNull,
) -> None:
    for name, array in (("dev_ptrs", dev_ptrs), ("sizes", sizes), ("prefetch_loc_idxs", prefetch_loc_idxs)):
        refuse_null(name, int(array))
    if num_prefetch_locs > count:
        raise invalid(
            f"there are {num_prefetch_locs:,} locations and {count:,} ranges", "pass a location for each"
        )
    starts = [int(prefetch_loc_idxs[at]) for at in range(num_prefetch_locs)]
    location_of = gpu.batches.group_of("prefetch_loc_idxs", starts, count)
    wanted = _wanted(prefetch_locs, num_prefetch_locs)
    stream_of(stream)
    ranges = [(int(dev_ptrs[at]), int(sizes[at])) for at in range(count)]
    managed.prefetch_each(ranges, lambda at: wanted[location_of(at)], "dev_ptrs")


def _wanted(locations: Any, count: int) -> list[int]:
    if locations is not None:
        refuse_fewer("prefetch_locs", locations, count)
    try:
        return [managed.ordinal_of(id_of_location(locations, at)) for at in range(count)]
    except (Refusal, Error) as error:
        raise invalid(f"prefetch_locs: {error}", "name devices that there are, or the host") from None


@calls.call("hipMemDiscardBatchAsync")
def hipMemDiscardBatchAsync(dev_ptrs: Any, count: int, flags: int, stream: int) -> int:
    """Check many ranges of managed memory that a program discards; the bytes stay (facts/hip 3.11).

    hip-python makes an output of the sizes, so that its arguments name no bytes; C's arguments are taken as well:
    ``(dev_ptrs, sizes, count, flags, stream)``, lists or arrays and numbers.

    Refuses: hipErrorInvalidValue NULL, also for the stream, no ranges, one of 0 bytes or with more than there are,
        `flags` not 0; hipErrorNotSupported memory that is not managed; the stream
    Basis: S, D; C: the bytes stay
    """
    raise invalid(
        "hip-python makes an output of `sizes`, which the C function reads: every size is 0",
        "pass (dev_ptrs, sizes, count, flags, stream)",
    )


@calls.declare_overload("hipMemDiscardBatchAsync", "C")
def _discard_batch(dev_ptrs: Any, sizes: Any, count: NotNone, flags: NoFlags, stream: NotNull) -> None:
    for name, array in (("dev_ptrs", dev_ptrs), ("sizes", sizes)):
        refuse_null(name, int(array))
    stream_of(stream)
    managed.discard_each([(int(dev_ptrs[at]), int(sizes[at])) for at in range(count)], "dev_ptrs")


calls.declare_alias("hipDrvMemDiscardBatchAsync", "hipMemDiscardBatchAsync", basis="S, D")
calls.declare_overload("hipDrvMemDiscardBatchAsync", "C")(_discard_batch)
