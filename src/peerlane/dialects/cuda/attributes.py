"""What an address is: its attributes one by one or in a list (facts/cuda 4.10)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from peerlane.dialects.cuda.pools import handle_types
from peerlane.dialects.cuda.quick import quick
from peerlane.dialects.cuda.state import call, enums, gpu, invalid, machine
from peerlane.dialects.gpu.attributes import MemoryPointer
from peerlane.dialects.gpu.pools import Pool
from peerlane.dialects.gpu.virtual_memory import NO_HANDLE
from peerlane.errors import Error

attributes = gpu.attributes
_NAMES = {
    number: name.removeprefix("CU_POINTER_ATTRIBUTE_")
    for name, number in enums["CUpointer_attribute"].items()
}
_HOST, _DEVICE = (enums["CUmemorytype"][f"CU_MEMORYTYPE_{name}"] for name in ("HOST", "DEVICE"))
_NO_DEVICE = -2
_ACCESS = {
    right: enums["CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS"][f"CU_POINTER_ATTRIBUTE_ACCESS_FLAG_{name}"]
    for right, name in (("none", "NONE"), ("r", "READ"), ("rw", "READWRITE"))
}
_REGISTERED_READ_ONLY = 8  # a flag of cuMemHostRegister
_WORD, _INT, _SIGNED = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_int32
_BOOL = _SIGNED  # programs read a whole int, also one that nobody set before (facts/cuda 4.10)


def _context(pointer: MemoryPointer) -> int:
    return machine.context_of_memory(pointer.region.base, pointer.region.ordinal).handle


def _memory_type(pointer: MemoryPointer) -> int:
    return _DEVICE if pointer.region.is_device or pointer.region.is_managed else _HOST


def _pool(pointer: MemoryPointer) -> Pool | None:
    buffer = machine.owned(pointer.region.base, host=not pointer.region.is_device)
    return None if buffer is None else gpu.pools.holding(buffer)


def _pool_handle(pointer: MemoryPointer) -> int:
    pool = _pool(pointer)
    return 0 if pool is None else pool.handle


def _has_ipc_handle(pointer: MemoryPointer) -> bool:
    is_alone = pointer.region.is_device and _pool(pointer) is None
    return is_alone and gpu.virtual_memory.mapped_at(pointer.address) is None


def _handle_types(pointer: MemoryPointer) -> int:
    """Return the types of handles that share the memory: of virtual memory, and of a pool."""
    physical, pool = gpu.virtual_memory.mapped_at(pointer.address), _pool(pointer)
    if physical is not None:
        return physical.properties.handle_type
    return NO_HANDLE if pool is None else handle_types(pool)


def _access(pointer: MemoryPointer) -> int:
    region = pointer.region
    right = gpu.virtual_memory.right(machine.context().device, pointer.address)
    if right is None:
        right = "r" if region.is_registered and region.flags & _REGISTERED_READ_ONLY else "rw"
    return _ACCESS[right]


#: Of each attribute its type in the program's memory, and the value.
_ATTRIBUTES: dict[str, tuple[Any, Callable[[MemoryPointer], Any]]] = {
    "CONTEXT": (_WORD, _context),
    "MEMORY_TYPE": (_INT, _memory_type),
    "DEVICE_POINTER": (_WORD, lambda pointer: pointer.address),
    "HOST_POINTER": (_WORD, lambda pointer: pointer.host_address),
    "SYNC_MEMOPS": (_BOOL, lambda pointer: pointer.is_synchronous),
    "BUFFER_ID": (_WORD, lambda pointer: pointer.region.allocation % (1 << 64)),
    "IS_MANAGED": (_BOOL, lambda pointer: pointer.region.is_managed),
    "DEVICE_ORDINAL": (_SIGNED, lambda pointer: pointer.device),
    "IS_LEGACY_CUDA_IPC_CAPABLE": (_BOOL, _has_ipc_handle),
    "RANGE_START_ADDR": (_WORD, lambda pointer: pointer.region.base),
    "RANGE_SIZE": (_WORD, lambda pointer: pointer.region.size),
    "MAPPING_SIZE": (_WORD, lambda pointer: pointer.region.size),
    "MAPPING_BASE_ADDR": (_WORD, lambda pointer: pointer.region.base),
    "MEMORY_BLOCK_ID": (_WORD, lambda pointer: pointer.region.allocation % (1 << 64)),
    "IS_GPU_DIRECT_RDMA_CAPABLE": (_BOOL, lambda pointer: False),
    "IS_HW_DECOMPRESS_CAPABLE": (_BOOL, lambda pointer: False),
    "ACCESS_FLAGS": (_INT, _access),
    "MAPPED": (_BOOL, lambda pointer: True),
    "ALLOWED_HANDLE_TYPES": (_INT, _handle_types),
    "MEMPOOL_HANDLE": (_WORD, _pool_handle),
}


#: Those that all addresses of an allocation share as long as it lives.
_OF_ALLOCATIONS = {
    "CONTEXT",
    "MEMORY_TYPE",
    "SYNC_MEMOPS",
    "BUFFER_ID",
    "IS_MANAGED",
    "DEVICE_ORDINAL",
    "MAPPED",
    "ALLOWED_HANDLE_TYPES",
}


def _described(attribute: int) -> tuple[str, Any, Callable[[MemoryPointer], Any]]:
    name = _NAMES.get(attribute, "")
    if name not in _ATTRIBUTES:
        raise invalid(f"attribute {attribute} {name} is not one that virtual devices have", "ask for another")
    return name, *_ATTRIBUTES[name]


def pointer_at(address: int) -> MemoryPointer | None:
    """Return what an address points at; None for memory that the driver does not know."""
    try:
        return attributes.at(address) if address else None
    except Error:
        return None


@call
def cuPointerGetAttribute(data: int, attribute: int, ptr: int) -> None:
    name, kind, value_of = _described(attribute)
    pointer = pointer_at(ptr)
    value = None if pointer is None else value_of(pointer)
    if value is None:
        raise invalid(
            f"{machine.describe(ptr)} has no {name}", "ask for MEMORY_TYPE, or pass memory of the driver"
        )
    kind.from_address(data).value = value


@call
def cuPointerGetAttributes(
    numAttributes: int, attributes: Sequence[int], data: Sequence[int], ptr: int
) -> None:
    """Write many attributes; those that the address does not have are 0, its device -2."""
    if not all(data):
        raise invalid("an address of a value is NULL", "pass an address for each attribute")
    pointer, values = pointer_at(ptr), []
    for attribute in attributes:
        name, kind, value_of = _described(attribute)
        value = None if pointer is None else value_of(pointer)
        absent = _NO_DEVICE if name == "DEVICE_ORDINAL" else 0
        values.append((kind, absent if value is None else value))
    for target, (kind, value) in zip(data, values, strict=True):
        kind.from_address(target).value = value


@call
def cuPointerSetAttribute(value: int, attribute: int, ptr: int) -> None:
    if _NAMES.get(attribute) != "SYNC_MEMOPS" or not value:
        raise invalid(f"attribute {attribute} cannot be set", "set CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 6")
    gpu.attributes.set_synchronous(ptr, is_set=bool(ctypes.c_bool.from_address(value).value))


def record(then: int, numbers: Sequence[int], address: int) -> None:
    """Record attributes of an address for native code, as of an epoch."""
    pointer = pointer_at(address)
    if pointer is None or pointer.region.is_registered:
        return
    for number in numbers:
        name, kind, value_of = _described(number)
        if name in _OF_ALLOCATIONS:
            quick.attribute(then, number, pointer.region.allocation, bytes(kind(value_of(pointer))))
