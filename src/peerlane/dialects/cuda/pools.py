"""Memory pools, and memory that is allocated and freed in the order of streams (facts/cuda 4.5)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from peerlane import Device, Host
from peerlane.dialects.cuda.state import call, enums, gpu, invalid, refuse_flags
from peerlane.dialects.gpu.locations import DEVICE, HOST, HOST_NUMA, NUMBERS
from peerlane.dialects.gpu.pools import MANAGED, PINNED, Location, Pool
from peerlane.dialects.gpu.regions import CPU
from peerlane.dialects.gpu.reuse import REUSE
from peerlane.dialects.gpu.streams import AnyStream
from peerlane.dialects.gpu.vendor import Reason
from peerlane.dialects.gpu.virtual_memory import FILE_DESCRIPTOR, NO_HANDLE

pools, sharing = gpu.pools, gpu.pool_sharing
Fields = Mapping[str, Any]
_NOWHERE = 0
_NODES = 1  # of the host's memory
_ATTRIBUTES = {
    number: name.removeprefix("CU_MEMPOOL_ATTR_") for name, number in enums["CUmemPool_attribute"].items()
}
_NOT_LOCALIZED = -1


def location_of(described: Fields, what: str) -> Location:
    """Return the device or the host that a CUmemLocation names."""
    if not described:
        raise invalid(f"{what} is NULL", "pass a CUmemLocation")
    kind, number = described["type"], described["id"]
    if kind == HOST_NUMA and not 0 <= number < _NODES:
        raise invalid(
            f"the node of {what} is {number}; the host has one, 0", "pass CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID"
        )
    if kind in (HOST, HOST_NUMA):
        return CPU
    return gpu.locations.device(kind, number, what, Reason.INVALID_DEVICE)


def _location_of_pool(described: Fields, kind: int, what: str) -> Location:
    """Return the location of a pool's memory: of managed memory it is a wish, and NONE counts as the host."""
    if described and kind == MANAGED and described["type"] == _NOWHERE:
        return CPU
    return location_of(described, what)


def rights_of(descriptions: Sequence[Fields] | None, count: int) -> list[tuple[Device | Host, str]]:
    """Return the rights of devices and the host that an array of CUmemAccessDesc names."""
    listed = descriptions or []

    def read(index: int) -> tuple[int, int, int]:
        each = listed[index]
        return each["location"]["type"], each["location"]["id"], each["flags"]

    types = (HOST, HOST_NUMA)
    return gpu.locations.rights(read, count, reason=Reason.INVALID_DEVICE, hosts=count, host_types=types)


def rights_of_devices(descriptions: Sequence[Fields] | None, count: int) -> list[tuple[Device, str]]:
    """Return the rights of devices alone that an array of CUmemAccessDesc names."""
    rights = rights_of(descriptions, count)
    return [(device, right) for device, right in rights if isinstance(device, Device)]


def refuse_other_handles(kind: int) -> None:
    """Refuse a type of handle that no Linux has, or that needs a fabric."""
    if kind != FILE_DESCRIPTOR:
        raise gpu.vendor.refusal(
            Reason.UNSUPPORTED,
            f"handles of type {kind} are not part of peerlane",
            "ask for {file_descriptor}, 1",
        )


@call
def cuMemPoolCreate(poolProps: Fields) -> int:
    if not poolProps:
        raise invalid("poolProps is NULL", "pass a CUmemPoolProps")
    kind, handles, described = (poolProps[name] for name in ("allocType", "handleTypes", "location"))
    if kind not in (PINNED, MANAGED):
        raise invalid(f"allocType is {kind}", "pass CU_MEM_ALLOCATION_TYPE_PINNED, 1, or MANAGED, 2")
    if handles:
        refuse_other_handles(handles)
    location = _location_of_pool(described, kind, "poolProps")
    largest = poolProps["maxSize"]
    if (kind == MANAGED and (largest or handles)) or (described["type"] == HOST and handles):
        raise invalid(
            "only memory of a device or a node has a handle, and managed memory has no size",
            "pass 0 for both, or a location of type CU_MEM_LOCATION_TYPE_HOST_NUMA, 3",
        )
    pool = pools.create(location, kind=kind, is_shareable=bool(handles), largest=largest)
    pool.location_type = described["type"]
    return pool.handle


@call
def cuMemPoolDestroy(pool: Pool) -> None:
    pools.destroy(pool, "cuMemPoolDestroy")


@call
def cuMemPoolTrimTo(pool: Pool, minBytesToKeep: int) -> None:
    pools.trim(pool, minBytesToKeep)


def _location_type(pool: Pool) -> int:
    if pool.location_type is not None:
        return pool.location_type
    if isinstance(pool.location, Device):
        return DEVICE
    return HOST_NUMA if pool.maker else HOST


def handle_types(pool: Pool) -> int:
    """Return the types of handles that the memory of a pool can be shared by: none of an imported one."""
    return FILE_DESCRIPTOR if pool.is_shareable and not pool.maker else NO_HANDLE


#: What a pool was created with, by the names of attributes that no program can set.
_PROPERTIES: Mapping[str, Callable[[Pool], int]] = MappingProxyType(
    {
        "ALLOCATION_TYPE": lambda pool: pool.kind,
        "EXPORT_HANDLE_TYPES": handle_types,
        "LOCATION_ID": lambda pool: gpu.locations.id_of(pool.location),
        "LOCATION_TYPE": _location_type,
        "MAX_POOL_SIZE": lambda pool: pool.largest,
        "HW_DECOMPRESS_ENABLED": lambda pool: 0,
        "LOCALITY_DOMAIN_ID": lambda pool: _NOT_LOCALIZED,
    }
)


def _attribute_name(attr: int) -> str:
    name = _ATTRIBUTES.get(attr)
    if name is None:
        raise invalid(f"{attr} is not an attribute of pools", "pass a member of CUmemPool_attribute")
    return name


def _word_at(attr: int, address: int) -> Any:
    """Return the word of an attribute's value: 8 bytes for a size, else an int."""
    is_int = attr in REUSE or (_ATTRIBUTES[attr] in _PROPERTIES and _ATTRIBUTES[attr] != "MAX_POOL_SIZE")
    return (ctypes.c_int32 if is_int else ctypes.c_uint64).from_address(address)


@call
def cuMemPoolSetAttribute(pool: Pool, attr: int, value: int) -> None:
    if not value:
        raise invalid("value is NULL", "pass the address of the value")
    name = _attribute_name(attr)
    if name in _PROPERTIES:
        raise invalid(f"{name} is as the pool was created", "create another pool")
    pools.set(pool, attr, _word_at(attr, value).value)


@call
def cuMemPoolGetAttribute(pool: Pool, attr: int, value: int) -> None:
    property_of = _PROPERTIES.get(_attribute_name(attr))
    _word_at(attr, value).value = property_of(pool) if property_of else pool.get(attr)


@call
def cuMemPoolSetAccess(pool: Pool, map: Any, count: int) -> None:
    pools.set_access(pool, rights_of_devices(map, count))


@call
def cuMemPoolGetAccess(memPool: Pool, location: Fields) -> int:
    return NUMBERS[pools.access(memPool, location_of(location, "location"))]


@call
def cuDeviceGetDefaultMemPool(dev: Device) -> int:
    return pools.default(dev).handle


@call
def cuDeviceGetMemPool(dev: Device) -> int:
    return pools.current(dev).handle


@call
def cuDeviceSetMemPool(dev: Device, pool: Pool) -> None:
    pools.use(dev, PINNED, pool)


@call
def cuMemGetDefaultMemPool(location: Fields, type: int) -> int:
    return pools.default(_location_of_pool(location, type, "location"), type).handle


@call
def cuMemGetMemPool(location: Fields, type: int) -> int:
    return pools.current(_location_of_pool(location, type, "location"), type).handle


@call
def cuMemSetMemPool(location: Fields, type: int, pool: Pool) -> None:
    pools.use(_location_of_pool(location, type, "location"), type, pool)


@call
def cuMemAllocAsync(bytesize: int, hStream: AnyStream) -> int:
    return pools.allocate(bytesize, hStream)


@call
def cuMemAllocFromPoolAsync(bytesize: int, pool: Pool, hStream: AnyStream) -> int:
    return pools.allocate(bytesize, hStream, pool)


@call
def cuMemFreeAsync(dptr: int, hStream: AnyStream) -> None:
    pools.free(dptr, hStream, "cuMemFreeAsync")


@call
def cuMemPoolExportToShareableHandle(handle_out: int, pool: Pool, handleType: int, flags: int) -> None:
    refuse_other_handles(handleType)
    refuse_flags(flags)
    ctypes.c_int.from_address(handle_out).value = sharing.export(pool)


@call
def cuMemPoolImportFromShareableHandle(handle: int, handleType: int, flags: int) -> int:
    refuse_other_handles(handleType)
    refuse_flags(flags)
    return sharing.open(handle & 0xFFFF_FFFF).handle


@call
def cuMemPoolExportPointer(ptr: int) -> dict[str, list[int]]:
    return {"reserved": list(sharing.export_pointer(ptr))}


@call
def cuMemPoolImportPointer(pool: Pool, shareData: Fields) -> int:
    key = gpu.ipc.key("shareData", bytes(shareData["reserved"]) if shareData else None)
    return sharing.import_pointer(pool, key)
