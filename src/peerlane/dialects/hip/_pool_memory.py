"""``hip``: memory of pools, in the order of streams."""

from __future__ import annotations

from peerlane import Buffer
from peerlane.diagnostics.memory import allocations
from peerlane.dialects.gpu.streams import AnyStream
from peerlane.dialects.hip._convention import refusal
from peerlane.dialects.hip._ipc import Ipc
from peerlane.dialects.hip._pool import Pool, PoolHandle, Pools, refuse_imported
from peerlane.dialects.hip._results import device_array
from peerlane.dialects.hip._state import calls, gpu, machine
from peerlane.dialects.hip._stream import ValidStream
from peerlane.dialects.hip._types import DeviceArray


def allocate(size: int, pool: Pool, stream: AnyStream) -> DeviceArray | None:
    """Allocate memory that counts to a pool, to be used in the order of a stream."""
    found = pool.kept.take(size, stream)
    if found is not None:
        allocations.given_again(found.id, found.address, found.size, pool.device.name)
        return device_array(keep(found, pool), size)
    had = pool.most_reserved if pool.largest else pool.used
    most = pool.largest or pool.device.total_bytes
    if had + size > most:
        raise refusal(
            "hipErrorOutOfMemory",
            f"the pool has at most {most:,} bytes; {size:,} are asked for, and {had:,} "
            f"{'were reserved, of which it may have given some back' if pool.largest else 'are used'}",
            "free memory of the pool and set hipMemPoolAttrReservedMemHigh to 0, or create one with a larger maxSize",
        )
    made = gpu.reuse.with_room(pool.device, lambda: pool.device.allocate(size, peer=True))
    return device_array(keep(made, pool), size)


def keep(buffer: Buffer, pool: Pool) -> int:
    """Give out a buffer of a pool and return its address."""
    address = machine.enter(machine.context_of(pool.device.ordinal), buffer, peer=True)
    if address is None:
        raise machine.reset_meanwhile(pool.device.ordinal)
    pool.note(buffer)
    return address


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
    return allocate(size, machine.table(Pools).of(stream.context.device), stream) if size else None


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
    refuse_imported(mem_pool)
    return allocate(size, mem_pool, stream) if size else None


@calls.call("hipFreeAsync")
def hipFreeAsync(dev_ptr: int, stream: ValidStream) -> None:
    """Free memory of hipMallocAsync in the order of a stream; NULL does nothing.

    The pool keeps it for reuse: see hipMallocAsync and hipMemPoolSetAttribute.  Memory of another process, and what
    was exported, is not kept.  Memory of no pool is freed as hipFree does [D: the code].

    Refuses: hipErrorInvalidValue memory that was not allocated, or was freed; hipErrorInvalidHandle not
        a stream
    Basis: D; C for shared memory
    """
    if not dev_ptr:
        return
    buffer = machine.owned(dev_ptr, host=False)
    pool = None if buffer is None else machine.table(Pools).holding(buffer)
    if buffer is None or pool is None:
        gpu.memory.free(dev_ptr, "hipFreeAsync")
    elif not _is_kept(buffer, pool):
        machine.free(dev_ptr, host=False, call="hipFreeAsync", stream=stream.neutral)
    elif machine.take(dev_ptr, host=False) is buffer:
        allocations.forget(buffer.id, "hipFreeAsync")
        pool.keep(buffer, stream)


def _is_kept(buffer: Buffer, pool: Pool) -> bool:
    is_shared = buffer.is_imported or machine.table(Ipc).is_given(buffer)
    return not is_shared and machine.things.get(pool.handle) is pool
