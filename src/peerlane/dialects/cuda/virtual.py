"""Virtual memory: reserved addresses, physical memory and its handles, mappings and access (facts/cuda 4.6)."""

from __future__ import annotations

import ctypes
from typing import Any

from peerlane import Device, Host
from peerlane.dialects.cuda.pools import Fields, location_of, refuse_other_handles, rights_of
from peerlane.dialects.cuda.state import call, enums, gpu, invalid, refuse_flags
from peerlane.dialects.gpu.locations import HOST, NUMBERS
from peerlane.dialects.gpu.pools import PINNED
from peerlane.dialects.gpu.virtual_memory import NO_HANDLE, PhysicalProperties

memory = gpu.virtual_memory
_DESCRIPTOR = 0xFFFF_FFFF  # the part of a pointer that has a descriptor
_OPTIONS = frozenset(enums["CUmemAllocationGranularity_flags"].values())


def _properties(prop: Fields) -> PhysicalProperties:
    if not prop:
        raise invalid("prop is NULL", "pass a CUmemAllocationProp")
    kind, handles = prop["type"], prop["requestedHandleTypes"]
    if kind != PINNED:
        raise invalid(f"type of prop is {kind}", "pass CU_MEM_ALLOCATION_TYPE_PINNED, 1")
    if handles != NO_HANDLE:
        refuse_other_handles(handles)
    described = prop["location"]
    location = location_of(described, "prop")
    if isinstance(location, Device):
        return PhysicalProperties(location, kind, handles)
    if described["type"] == HOST and handles != NO_HANDLE:
        raise invalid(
            f"requestedHandleTypes is {handles}, and memory of no node of the host has no handle",
            "pass 0, or a location of type CU_MEM_LOCATION_TYPE_HOST_NUMA, 3",
        )
    return PhysicalProperties(Host(), kind, handles, described["type"])


@call
def cuMemGetAllocationGranularity(prop: Fields, option: int) -> int:
    if option not in _OPTIONS:
        raise invalid(f"option is {option}", "pass 0 or 1")
    _properties(prop)
    return memory.granularity


@call
def cuMemCreate(size: int, prop: Fields, flags: int) -> int:
    refuse_flags(flags)
    if not size:
        raise invalid("0 bytes are asked for", "ask for a multiple of {granularity}")
    return memory.create(size, _properties(prop))


@call
def cuMemRelease(handle: int) -> None:
    memory.release(handle, "cuMemRelease")


@call
def cuMemRetainAllocationHandle(addr: int) -> int:
    return memory.retain(addr)


@call
def cuMemGetAllocationPropertiesFromHandle(handle: int) -> dict[str, Any]:
    properties = memory.physical(handle).properties
    location = {"type": properties.location_type, "id": gpu.locations.id_of(properties.device)}
    return {"type": properties.kind, "requestedHandleTypes": properties.handle_type, "location": location}


@call
def cuMemExportToShareableHandle(shareableHandle: int, handle: int, handleType: int, flags: int) -> None:
    refuse_other_handles(handleType)
    refuse_flags(flags)
    physical = memory.physical(handle)
    if physical.properties.handle_type != handleType:
        raise invalid(
            f"requestedHandleTypes of the memory is {physical.properties.handle_type}",
            "create it with {file_descriptor}, 1",
        )
    ctypes.c_int.from_address(shareableHandle).value = physical.neutral.export_fd()


@call
def cuMemImportFromShareableHandle(osHandle: int, shHandleType: int) -> int:
    refuse_other_handles(shHandleType)
    return memory.open_descriptor(osHandle & _DESCRIPTOR)


@call
def cuMemGetHandleForAddressRange(handle: int, dptr: int, size: int, handleType: int, flags: int) -> None:
    memory.refuse_dma_buf(dptr, size)


@call
def cuMemAddressReserve(size: int, alignment: int, addr: int, flags: int) -> int:
    refuse_flags(flags)
    return memory.reserve(size, alignment, addr)


@call
def cuMemAddressFree(ptr: int, size: int) -> None:
    memory.free(ptr, size, "cuMemAddressFree")


@call
def cuMemMap(ptr: int, size: int, offset: int, handle: int, flags: int) -> None:
    refuse_flags(flags)
    if offset:
        raise invalid(f"offset is {offset}; it is reserved", "pass 0")
    memory.map(ptr, size, handle)


@call
def cuMemUnmap(ptr: int, size: int) -> None:
    memory.unmap(ptr, size)


@call
def cuMemSetAccess(ptr: int, size: int, desc: Any, count: int) -> None:
    memory.set_access(ptr, size, dict(rights_of(desc, count)))


@call
def cuMemGetAccess(location: Fields, ptr: int) -> int:
    home = location_of(location, "location")
    return NUMBERS[memory.access(home if isinstance(home, Device) else Host(), ptr)]
