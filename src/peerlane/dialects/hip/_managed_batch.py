"""``hip``: where many ranges of managed memory are wanted, said with one call."""

from __future__ import annotations

from typing import Any

from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.hip._checks import NoFlags, NotNone, NotNull, refuse_null
from peerlane.dialects.hip._convention import invalid, refuse_fewer
from peerlane.dialects.hip._managed import id_of_location, managed
from peerlane.dialects.hip._state import calls, gpu
from peerlane.dialects.hip._stream import stream_of
from peerlane.errors import Error


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


@calls.also("hipMemPrefetchBatchAsync", "C")
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
    for name, given in (("dev_ptrs", dev_ptrs), ("sizes", sizes), ("prefetch_loc_idxs", prefetch_loc_idxs)):
        refuse_null(name, int(given))
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
