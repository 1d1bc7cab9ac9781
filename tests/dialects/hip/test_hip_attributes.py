"""Attributes of pointers in HIP: the rows of facts/hip 3.4."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.hip_client import code, done, on
from helpers.hip_memory import G, mapped

Enter = Callable[..., ModuleType]
INTS = 100 * 4
GLOBAL = 1


def allocated(hip: ModuleType, kind: str, nbytes: int) -> Any:
    if kind == "host":
        return done(hip.hipHostMalloc(nbytes, 0))
    if kind == "managed":
        return done(hip.hipMallocManaged(nbytes, GLOBAL))
    return done(hip.hipMalloc(nbytes))


@pytest.mark.parametrize("offset", [0, 20, 40, 60, 80])
@pytest.mark.parametrize("kind", ["host", "device", "managed"])
def test_hip_mem_get_address_range_inside_allocation_returns_base_and_size(
    hip: ModuleType, kind: str, offset: int
) -> None:
    memory = allocated(hip, kind, INTS)
    base, size = done(hip.hipMemGetAddressRange(int(memory) + 4 * offset))
    assert (int(base), size) == (int(memory), INTS)
    assert isinstance(base, type(done(hip.hipHostMalloc(8, 0))))


def test_hip_mem_get_address_range_pitched_memory_returns_whole_allocation(hip: ModuleType) -> None:
    memory, pitch = done(hip.hipMallocPitch(100, 7))
    assert pitch == 256
    base, size = done(hip.hipMemGetAddressRange(int(memory) + 3 * pitch))
    assert (int(base), size) == (int(memory), pitch * 7)
    box = done(hip.hipMalloc3D(hip.hipExtent(300, 4, 5)))
    assert (box.pitch, box.xsize, box.ysize) == (512, 300, 4)
    assert done(hip.hipMemGetAddressRange(box.ptr))[1] == 512 * 4 * 5


@pytest.mark.parametrize("kind", ["host", "device", "managed"])
def test_hip_mem_get_address_range_past_end_or_freed_has_no_allocation(hip: ModuleType, kind: str) -> None:
    memory = allocated(hip, kind, INTS)
    assert hip.hipMemGetAddressRange(int(memory) + INTS) == (hip.hipError_t.hipErrorNotFound, None, 0)
    done(hip.hipFree(memory))
    assert code(hip.hipMemGetAddressRange(memory)) == "hipErrorNotFound"


def test_hip_mem_get_address_range_mapped_memory_returns_that_mapping(hip: ModuleType) -> None:
    address, nbytes = mapped(hip, (0, G), (1, 2 * G), (0, G))
    for start, size in ((0, G), (G, 2 * G), (3 * G, G)):
        for inside in (0, 5, size - 1):
            base, attributes = done(hip.hipMemGetAddressRange(address + start + inside))
            assert (int(base), attributes) == (address + start, size)
            assert done(hip.hipMemPtrGetInfo(address + start + inside)) == size
            assert asked(hip, "RANGE_START_ADDR", address + start + inside, WORD)[1] == address + start
    done(hip.hipMemUnmap(address + G, 2 * G))
    for gone in (address + G, address + nbytes):  # reserved without a mapping; beyond the reservation
        assert hip.hipMemGetAddressRange(gone) == (hip.hipError_t.hipErrorNotFound, None, 0)


def test_hip_mem_get_address_range_knows_host_memory_only_if_registered(hip: ModuleType) -> None:
    assert int(hip.hipMemGetAddressRange(None)[0]) == 500
    numbers = np.zeros(8)
    assert code(hip.hipMemGetAddressRange(numbers)) == "hipErrorNotFound"
    done(hip.hipHostRegister(numbers, 64, 0))
    base, size = done(hip.hipMemGetAddressRange(numbers[3:]))
    assert (int(base), size) == (numbers.ctypes.data, 64)


def test_hip_mem_ptr_get_info_returns_size_of_allocation(hip: ModuleType) -> None:
    memory = allocated(hip, "device", INTS)
    assert done(hip.hipMemPtrGetInfo(memory)) == INTS
    assert done(hip.hipMemPtrGetInfo(int(memory) + 5)) == INTS
    assert done(hip.hipMemPtrGetInfo(None)) == 0
    assert code(hip.hipMemPtrGetInfo(np.zeros(1))) == "hipErrorInvalidValue"


@pytest.mark.parametrize("offset", [0, 100, INTS - 1])
@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("kind", ["host", "device", "managed"])
def test_hip_pointer_get_attributes_returns_type_device_and_addresses(
    hip: ModuleType, kind: str, device: int, offset: int
) -> None:
    done(hip.hipSetDevice(device))
    memory = allocated(hip, kind, INTS)
    done(hip.hipSetDevice(0))
    attributes = done(hip.hipPointerGetAttributes(int(memory) + offset))
    kinds = {"host": "Host", "device": "Device", "managed": "Managed"}
    assert attributes.type == hip.hipMemoryType[f"hipMemoryType{kinds[kind]}"]
    assert (attributes.device, int(attributes.devicePointer)) == (device, int(memory) + offset)
    assert int(attributes.hostPointer) == (0 if kind == "device" else int(memory) + offset)
    assert (attributes.isManaged, attributes.allocationFlags) == (
        int(kind == "managed"),
        GLOBAL if kind == "managed" else 0,
    )


@pytest.mark.parametrize("beyond", [0, 1])
def test_hip_pointer_get_attributes_at_or_past_end_returns_invalid_value(
    hip: ModuleType, beyond: int
) -> None:
    memory = allocated(hip, "device", INTS)
    assert code(hip.hipPointerGetAttributes(int(memory) + INTS + beyond)) == "hipErrorInvalidValue"


def test_hip_pointer_get_attributes_null_or_freed_returns_invalid_value(hip: ModuleType) -> None:
    assert code(hip.hipPointerGetAttributes(None)) == "hipErrorInvalidValue"
    memory = allocated(hip, "device", INTS)
    assert code(hip.hipPointerGetAttributes(None, memory)) == "hipErrorInvalidValue"
    done(hip.hipFree(memory))
    assert code(hip.hipPointerGetAttributes(memory)) == "hipErrorInvalidValue"


def test_hip_pointer_get_attributes_pageable_memory_is_unregistered(hip: ModuleType) -> None:
    numbers = np.zeros(8)
    attributes = done(hip.hipPointerGetAttributes(numbers))
    assert attributes.type == hip.hipMemoryType.hipMemoryTypeUnregistered == 0
    assert (attributes.device, int(attributes.devicePointer), int(attributes.hostPointer)) == (-2, 0, 0)
    done(hip.hipHostRegister(numbers, 64, 2))
    attributes = done(hip.hipPointerGetAttributes(numbers))
    assert attributes.type == hip.hipMemoryType.hipMemoryTypeHost
    assert (int(attributes.hostPointer), attributes.allocationFlags) == (numbers.ctypes.data, 2)


def test_hip_pointer_get_attributes_hip_python_7_shape_fills_the_callers_struct(hip_on: Enter) -> None:
    hip = hip_on(VERSION="7.2")
    memory = on(hip, 1, INTS)
    attributes = hip.hipPointerAttribute_t()
    assert hip.hipPointerGetAttributes(attributes, memory) == (hip.hipError_t.hipSuccess,)
    assert (attributes.device, int(attributes.devicePointer)) == (1, int(memory))


def asked(hip: ModuleType, name: str, ptr: Any, kind: Any) -> tuple[str, Any]:
    value = kind(77)
    member = hip.hipPointer_attribute[f"HIP_POINTER_ATTRIBUTE_{name}"]
    result = hip.hipPointerGetAttribute(ctypes.addressof(value), member, ptr)
    return code(result), value.value


WORD, INT, BOOL = ctypes.c_uint64, ctypes.c_int32, ctypes.c_bool


def test_hip_pointer_get_attribute_device_memory_returns_each_value(hip: ModuleType) -> None:
    memory = on(hip, 1, INTS)
    inside = int(memory) + 8
    expected = {
        "MEMORY_TYPE": (INT, 2),
        "DEVICE_POINTER": (WORD, inside),
        "SYNC_MEMOPS": (BOOL, False),
        "IS_MANAGED": (BOOL, False),
        "DEVICE_ORDINAL": (INT, 1),
        "RANGE_START_ADDR": (WORD, int(memory)),
        "RANGE_SIZE": (INT, INTS),
        "MAPPED": (BOOL, True),
        "ACCESS_FLAGS": (INT, 0),
    }
    for name, (kind, value) in expected.items():
        assert asked(hip, name, inside, kind) == ("hipSuccess", value), name
    assert asked(hip, "CONTEXT", inside, WORD)[0] == "hipErrorNotSupported"
    first, second = (asked(hip, "BUFFER_ID", each, INT)[1] for each in (memory, on(hip, 1, 8)))
    assert first != second
    assert asked(hip, "HOST_POINTER", inside, WORD) == ("hipErrorInvalidValue", 0)


@pytest.mark.parametrize("kind", ["host", "managed"])
def test_hip_pointer_get_attribute_host_memory_returns_each_value(hip: ModuleType, kind: str) -> None:
    memory = allocated(hip, kind, INTS)
    assert asked(hip, "HOST_POINTER", memory, WORD) == ("hipSuccess", int(memory))
    assert asked(hip, "IS_MANAGED", memory, BOOL) == ("hipSuccess", kind == "managed")
    assert asked(hip, "MEMORY_TYPE", memory, INT)[1] == (3 if kind == "managed" else 1)


def test_hip_pointer_get_attribute_pageable_memory_has_no_device_or_range(hip: ModuleType) -> None:
    numbers = np.zeros(8)
    assert asked(hip, "DEVICE_ORDINAL", numbers, INT) == ("hipErrorInvalidValue", -2)
    assert asked(hip, "RANGE_SIZE", numbers, INT) == ("hipErrorInvalidValue", 0)
    assert asked(hip, "ACCESS_FLAGS", numbers, INT) == ("hipSuccess", 0)
    assert asked(hip, "MEMORY_TYPE", numbers, INT) == ("hipSuccess", 0)


@pytest.mark.parametrize(
    "name",
    [
        "P2P_TOKENS",
        "ALLOWED_HANDLE_TYPES",
        "IS_GPU_DIRECT_RDMA_CAPABLE",
        "IS_LEGACY_HIP_IPC_CAPABLE",
        "MEMPOOL_HANDLE",
    ],
)
def test_hip_pointer_get_attribute_unsupported_member_returns_not_supported(
    hip: ModuleType, name: str
) -> None:
    assert asked(hip, name, allocated(hip, "device", 8), WORD) == ("hipErrorNotSupported", 77)


def test_hip_pointer_get_attribute_null_target_or_pointer_returns_invalid_value(hip: ModuleType) -> None:
    member = hip.hipPointer_attribute.HIP_POINTER_ATTRIBUTE_MAPPED
    memory = allocated(hip, "device", 8)
    assert code(hip.hipPointerGetAttribute(None, member, memory)) == "hipErrorInvalidValue"
    assert code(hip.hipPointerGetAttribute(bytearray(8), member, None)) == "hipErrorInvalidValue"


def test_hip_drv_pointer_get_attributes_fills_values_and_refuses_bad_lists(hip: ModuleType) -> None:
    attribute = hip.hipPointer_attribute
    members = [
        attribute.HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        attribute.HIP_POINTER_ATTRIBUTE_HOST_POINTER,
        attribute.HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR,
    ]
    memory = on(hip, 1, 64)
    values = [INT(7), WORD(7), WORD(7)]
    targets = [ctypes.addressof(value) for value in values]
    assert hip.hipDrvPointerGetAttributes(3, members, targets, int(memory) + 1) == (hip.hipError_t(0),)
    assert [value.value for value in values] == [1, 0, int(memory)]
    assert code(hip.hipDrvPointerGetAttributes(0, members, targets, memory)) == "hipErrorInvalidValue"
    assert code(hip.hipDrvPointerGetAttributes(1, members, [None], memory)) == "hipErrorInvalidValue"
    assert code(hip.hipDrvPointerGetAttributes(3, memory)) == "hipErrorNotSupported"
    assert code(hip.hipDrvPointerGetAttributes(3, None)) == "hipErrorInvalidValue"


def test_hip_pointer_set_attribute_sets_sync_memops_and_no_other_member(hip: ModuleType) -> None:
    attribute = hip.hipPointer_attribute
    sync = attribute.HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS
    memory = allocated(hip, "device", 64)
    for wanted in (1, 0):
        done(hip.hipPointerSetAttribute(np.array([wanted], np.uint32), sync, memory))
        assert asked(hip, "SYNC_MEMOPS", memory, BOOL) == ("hipSuccess", bool(wanted))
    one, two = np.array([1], np.uint32), np.array([2], np.uint32)
    assert code(hip.hipPointerSetAttribute(two, sync, memory)) == "hipErrorInvalidValue"
    assert code(hip.hipPointerSetAttribute(None, sync, memory)) == "hipErrorInvalidValue"
    assert code(hip.hipPointerSetAttribute(one, sync, None)) == "hipErrorInvalidValue"
    assert (
        code(hip.hipPointerSetAttribute(one, attribute.HIP_POINTER_ATTRIBUTE_MAPPED, memory))
        == "hipErrorInvalidValue"
    )
    assert code(hip.hipPointerSetAttribute(one, sync, np.zeros(4))) == "hipErrorInvalidDevicePointer"
