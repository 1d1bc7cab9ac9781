"""``hip``: memory of pools, in the order of streams."""

from __future__ import annotations

from peerlane.dialects.hip._pool import PoolHandle, pools
from peerlane.dialects.hip._results import device_array
from peerlane.dialects.hip._state import calls
from peerlane.dialects.hip._stream import ValidStream
from peerlane.dialects.hip._types import DeviceArray


@calls.call("hipMallocAsync")
def hipMallocAsync(size: int, stream: ValidStream) -> DeviceArray | None:
    """Allocate memory of the current pool of the stream's device; of size 0 it is None.

    Freed memory of the pool is given again: to the stream of the free at once, to streams that waited for an event
    behind it (hipMemPoolReuseFollowEventDependencies), and to others once the free's turn has come
    (hipMemPoolReuseAllowOpportunistic).  New memory may be used at once, by other streams too.

    Gives: DeviceArray of bytes
    Refuses: hipErrorOutOfMemory; hipErrorInvalidHandle not a stream
    Basis: S, D for reuse; C for at once
    """
    return device_array(pools.allocate(size, stream), size)


@calls.call("hipMallocFromPoolAsync")
def hipMallocFromPoolAsync(size: int, mem_pool: PoolHandle, stream: ValidStream) -> DeviceArray | None:
    """Allocate memory of a pool; of size 0 it is None.

    New memory counts to maxSize on top of hipMemPoolAttrReservedMemHigh, thus also what the pool gave back [D: the
    code].

    Gives: DeviceArray of bytes
    Refuses: hipErrorInvalidValue no pool, an imported one; hipErrorOutOfMemory also beyond its maxSize;
        hipErrorInvalidHandle not a stream
    Basis: D; C for imported pools
    """
    return device_array(pools.allocate(size, stream, mem_pool), size)


@calls.call("hipFreeAsync")
def hipFreeAsync(dev_ptr: int, stream: ValidStream) -> None:
    """Free memory of hipMallocAsync in the order of a stream; NULL does nothing.

    The pool keeps it for reuse: see hipMallocAsync and hipMemPoolSetAttribute.  Memory of another process, and what
    was exported, is not kept.  Memory of no pool is freed as hipFree does [D: the code].

    Refuses: hipErrorInvalidValue memory that was not allocated, or was freed; hipErrorInvalidHandle not
        a stream
    Basis: D; C for shared memory
    """
    pools.free(dev_ptr, stream, "hipFreeAsync")
