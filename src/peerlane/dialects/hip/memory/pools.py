"""``hip``: memory pools."""

from __future__ import annotations

import struct as layout
from typing import Annotated, Any

from peerlane import Device
from peerlane.dialects._shared.call import Check
from peerlane.dialects._shared.checks import check
from peerlane.dialects.gpu.locations import DEVICE, NUMBERS
from peerlane.dialects.gpu.pools import MANAGED, PINNED, Pool
from peerlane.dialects.gpu.regions import HostAddress
from peerlane.dialects.gpu.reuse import REUSE
from peerlane.dialects.gpu.vendor import Reason
from peerlane.dialects.gpu.virtual_memory import FILE_DESCRIPTOR
from peerlane.dialects.hip.binding.checks import NotZero, required
from peerlane.dialects.hip.binding.convention import invalid
from peerlane.dialects.hip.binding.enums import enumeration
from peerlane.dialects.hip.binding.pointers import read, write
from peerlane.dialects.hip.binding.results import device_array
from peerlane.dialects.hip.binding.results import handle as handle_of
from peerlane.dialects.hip.binding.types import DeviceArray
from peerlane.dialects.hip.devices.peers import DeviceId
from peerlane.dialects.hip.memory.physical import Location
from peerlane.dialects.hip.memory.virtual import descriptions
from peerlane.dialects.hip.state import calls, gpu
from peerlane.dialects.hip.streams.stream import ValidStream

_PROPS = layout.Struct("<iiii8xQ")  # hipMemPoolProps: allocType, handleTypes, location, maxSize
_FLAG, _BYTES = layout.Struct("<i"), layout.Struct("<Q")


pools = gpu.pools
PoolHandle = Annotated[Pool, Check(lambda name: pools.of)]


def as_handle(pool: Pool) -> Any:
    """Return the handle of a pool."""
    return handle_of("ihipMemPoolHandle_t", pool.handle)


@calls.call("hipMemPoolCreate")
def hipMemPoolCreate(pool_props: Annotated[Any, required("hipMemPoolProps")]) -> Any:
    """Create a memory pool.  Memory of a managed one is the device's too.

    Gives: pool
    ``handleTypes`` are not looked at: a pool with others than a file descriptor is not exported (facts/hip 3.9).

    Refuses: hipErrorInvalidValue NULL, an allocType other than pinned and managed, no device
    Basis: D; C for managed memory
    """
    kind, handle_type, location, number, largest = _PROPS.unpack(pool_props._read(0, 0, _PROPS.size))
    if kind not in (PINNED, MANAGED):
        raise invalid(f"allocType is {kind}", "pass hipMemAllocationTypePinned, 1, or Managed, 2")
    device = gpu.locations.device(location, number, "pool_props")
    is_shareable = handle_type == FILE_DESCRIPTOR
    return as_handle(pools.create(device, kind=kind, is_shareable=is_shareable, largest=largest))


@calls.call("hipMemPoolDestroy")
def hipMemPoolDestroy(mem_pool: PoolHandle) -> None:
    """End a pool; its memory lives until it is freed.  If it was its device's current one, the default one is then.

    Refuses: hipErrorInvalidValue no pool, destroyed, a device's default one
    Basis: D
    """
    pools.destroy(mem_pool, "hipMemPoolDestroy")


@calls.call("hipMemPoolTrimTo")
def hipMemPoolTrimTo(mem_pool: PoolHandle, min_bytes_to_hold: int) -> None:
    """Give kept memory whose free is over back to the device, down to ``min_bytes_to_hold``.

    Refuses: hipErrorInvalidValue no pool
    Basis: D
    """
    pools.trim(mem_pool, min_bytes_to_hold)


@calls.call("hipMemPoolSetAttribute")
def hipMemPoolSetAttribute(mem_pool: PoolHandle, attr: Any, value: NotZero) -> None:
    """Set an attribute, of which ``value`` is the address: an int for the reuse flags, else 8 bytes.

    Memory that was freed is the device's again when a program has waited for a stream or an event of the device; as
    many bytes as the threshold says stay.  hipMemPoolReuseAllowInternalDependencies is kept and changes nothing.
    A high mark is 0 after it was reset, also while memory is in use, and counts again from the next allocation.

    Refuses: hipErrorInvalidValue NULL, no pool, an attribute that cannot be set, a high mark other than 0
    Basis: D
    """
    size = _sized(attr, value)
    pools.set(mem_pool, int(attr), size.unpack(read(value, size.size))[0])


@calls.call("hipMemPoolGetAttribute")
def hipMemPoolGetAttribute(mem_pool: PoolHandle, attr: Any, value: NotZero) -> None:
    """Write an attribute to an address; reserved memory is the memory in use, and freed memory that is kept.

    Refuses: hipErrorInvalidValue NULL, no pool
    Basis: D
    """
    write(value, _sized(attr, value).pack(mem_pool.get(int(attr))))


def _sized(attr: Any, value: int) -> layout.Struct:
    size = _FLAG if int(attr) in REUSE else _BYTES
    if isinstance(value, HostAddress) and value.nbytes < size.size:
        raise invalid(
            f"value is a host object of {value.nbytes} bytes, and {attr.name} has {size.size}",
            "pass a ctypes.c_int for the reuse flags, else a ctypes.c_uint64",
        )
    return size


@calls.call("hipMemPoolSetAccess")
def hipMemPoolSetAccess(mem_pool: PoolHandle, desc_list: Any, count: int) -> None:
    """Note which other devices may use a pool's memory; copies do not ask for it, but with ``peer_copies=strict``.

    Refuses: hipErrorInvalidValue NULL, no pool, flags that there are not; hipErrorInvalidDevice a device that there
        is not, more descriptions than devices, none for the pool's own device, a device out of reach;
        hipErrorNotSupported only to read for its own
    Basis: D; C for out of reach
    """
    pools.set_access(mem_pool, descriptions(desc_list, count, reason=Reason.INVALID_DEVICE))


@calls.call("hipMemPoolGetAccess")
def hipMemPoolGetAccess(mem_pool: PoolHandle, location: Location) -> Any:
    """Return the access of a device to a pool's memory; the pool's own device has full access.

    Gives: hipMemAccessFlags
    Refuses: hipErrorInvalidValue NULL, no pool, no device
    Basis: D
    """
    return enumeration("hipMemAccessFlags")(NUMBERS[pools.access(mem_pool, location)])


@calls.call("hipDeviceGetDefaultMemPool")
def hipDeviceGetDefaultMemPool(device: DeviceId) -> Any:
    """Return a device's own pool.

    Gives: pool
    Refuses: hipErrorInvalidDevice
    Basis: D
    """
    return as_handle(pools.default(device))


_Device = Annotated[
    Device, Check(lambda name: lambda number: gpu.locations.device(DEVICE, number, "the call"))
]


@calls.call("hipDeviceGetMemPool")
def hipDeviceGetMemPool(device: _Device) -> Any:
    """Return the pool that hipMallocAsync takes memory of.

    Gives: pool
    Refuses: hipErrorInvalidValue for an id
    Basis: D
    """
    return as_handle(pools.current(device))


@calls.call("hipDeviceSetMemPool")
def hipDeviceSetMemPool(device: _Device, mem_pool: PoolHandle) -> None:
    """Let hipMallocAsync take memory of a pool.

    Refuses: hipErrorInvalidValue an id, no pool, an imported one; hipErrorInvalidDevice the pool of another device
    Basis: D; S for imported pools
    """
    pools.use(device, PINNED, mem_pool, Reason.INVALID_DEVICE)


def _kind(name: str, kind: Any) -> int:
    if int(kind) not in (PINNED, MANAGED):
        raise invalid(
            f"{name} is {kind.name}", "pass hipMemAllocationTypePinned or hipMemAllocationTypeManaged"
        )
    return int(kind)


_Kind = Annotated[int, check(_kind)]


@calls.call("hipMemGetDefaultMemPool", first=("type",))
def hipMemGetDefaultMemPool(location: Location, type: _Kind) -> Any:
    """Return a device's own pool of an allocation type.

    Gives: pool
    Refuses: hipErrorInvalidValue NULL, no device, a type other than pinned and managed
    Basis: D
    """
    return as_handle(pools.default(location, type))


@calls.call("hipMemGetMemPool", first=("type",))
def hipMemGetMemPool(location: Location, type: _Kind) -> Any:
    """Return a device's current pool of an allocation type: hipMallocAsync takes memory of the pinned one.

    Gives: pool
    Refuses: as `hipMemGetDefaultMemPool`
    Basis: S
    """
    return as_handle(pools.current(location, type))


@calls.call("hipMemSetMemPool", first=("type",))
def hipMemSetMemPool(location: Location, type: _Kind, pool: PoolHandle) -> None:
    """Make a pool a device's current one of its allocation type.

    Refuses: as `hipMemGetDefaultMemPool`; hipErrorInvalidValue also no pool, one of another device or type, an
        imported one
    Basis: S
    """
    if pool.kind != type:
        raise invalid(
            f"the pool was created with allocType {pool.kind}, and type is {type}",
            "pass the allocType of the pool",
        )
    pools.use(location, type, pool)


@calls.call("hipMallocAsync")
def hipMallocAsync(size: int, stream: ValidStream) -> DeviceArray | None:
    """Allocate memory of the current pool of the stream's device; of size 0 it is None.

    The pool reuses freed memory: for the stream of the free at once, for streams that waited for an event behind the
    free (hipMemPoolReuseFollowEventDependencies), and for others once the free is over
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
