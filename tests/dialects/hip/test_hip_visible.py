"""Device ids are positions in the list of visible devices, in every call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import peerlane
from peerlane.dialects.hip import explain

Enter = Callable[..., ModuleType]
SIZE = 2 << 20
FREE = 64 << 20


@pytest.fixture
def hip(hip_on: Enter, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return HIP that shows devices 2 and 1 of the node as 0 and 1."""
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "2,1")
    return hip_on("devices=3,memory=64MiB")


def free() -> list[int]:
    return [device.free_bytes for device in peerlane.devices()]


def properties(hip: ModuleType, number: int) -> Any:
    prop = hip.hipMemAllocationProp()
    prop.type = hip.hipMemAllocationType.hipMemAllocationTypePinned
    prop.location.type = hip.hipMemLocationType.hipMemLocationTypeDevice
    prop.location.id = number
    return prop


def test_hip_visible_devices_physical_memory_calls_use_visible_ids(hip: ModuleType) -> None:
    _, handle = hip.hipMemCreate(SIZE, properties(hip, 0), 0)
    assert free() == [FREE, FREE, FREE - SIZE]
    assert hip.hipMemGetAllocationPropertiesFromHandle(handle)[1].location.id == 0
    _, start = hip.hipMemAddressReserve(SIZE, 0, None, 0)
    assert hip.hipMemMap(start, SIZE, 0, handle, 0)[0].name == "hipSuccess"
    desc = hip.hipMemAccessDesc()
    desc.location.type, desc.location.id = hip.hipMemLocationType.hipMemLocationTypeDevice, 0
    desc.flags = hip.hipMemAccessFlags.hipMemAccessFlagsProtReadWrite
    assert hip.hipMemSetAccess(start, SIZE, desc, 1)[0].name == "hipSuccess"
    assert hip.hipMemGetAccess(desc.location, start)[1] == 3
    assert hip.hipPointerGetAttributes(start)[1].device == 0
    desc.location.id = 1
    assert hip.hipMemGetAccess(desc.location, start)[1] == 0
    desc.location.id = 2
    assert hip.hipMemGetAccess(desc.location, start)[0].name == "hipErrorInvalidValue"
    assert "2 are visible, numbered 0 to 1" in explain()
    assert hip.hipMemCreate(SIZE, properties(hip, 2), 0)[0].name == "hipErrorInvalidDevice"
    assert hip.hipMemCreate(SIZE, properties(hip, 1), 0)[0].name == "hipSuccess"
    assert free() == [FREE, FREE - SIZE, FREE - SIZE]


def test_hip_visible_devices_pool_calls_use_visible_ids(hip: ModuleType) -> None:
    props = hip.hipMemPoolProps()
    props.allocType = hip.hipMemAllocationType.hipMemAllocationTypePinned
    props.location.type, props.location.id = hip.hipMemLocationType.hipMemLocationTypeDevice, 1
    _, pool = hip.hipMemPoolCreate(props)
    _, memory = hip.hipMallocFromPoolAsync(100, pool, None)
    assert hip.hipPointerGetAttributes(memory)[1].device == 1
    assert free() == [FREE, FREE - SIZE, FREE]
    assert hip.hipDeviceSetMemPool(0, pool)[0].name == "hipErrorInvalidDevice"
    assert "the pool is of device 1, not of device 0" in explain()
    assert hip.hipDeviceSetMemPool(1, pool)[0].name == "hipSuccess"
    assert int(hip.hipDeviceGetMemPool(1)[1]) == int(pool)
    assert hip.hipDeviceGetMemPool(2)[0].name == "hipErrorInvalidValue"
    assert hip.hipMemPoolGetAccess(pool, props.location)[1].value == 3
    desc = hip.hipMemAccessDesc()
    desc.location.type, desc.location.id = hip.hipMemLocationType.hipMemLocationTypeDevice, 2
    desc.flags = hip.hipMemAccessFlags.hipMemAccessFlagsProtReadWrite
    assert hip.hipMemPoolSetAccess(pool, desc, 1)[0].name == "hipErrorInvalidDevice"


def test_hip_visible_devices_prefetch_uses_visible_ids(hip: ModuleType) -> None:
    _, memory = hip.hipMallocManaged(4096, 1)
    assert hip.hipMemPrefetchAsync(memory, 4096, 1, None)[0].name == "hipSuccess"
    count = ctypes.c_int()
    attribute = hip.hipMemRangeAttribute.hipMemRangeAttributeLastPrefetchLocation
    assert hip.hipMemRangeGetAttribute(count, 4, attribute, memory, 4096)[0].name == "hipSuccess"
    assert count.value == 1
    assert hip.hipMemPrefetchAsync(memory, 4096, 2, None)[0].name == "hipErrorInvalidDevice"


def test_hip_visible_devices_messages_use_visible_ids(hip: ModuleType) -> None:
    _, event = hip.hipEventCreate()
    hip.hipSetDevice(1)
    assert hip.hipEventRecord(event, None)[0].name == "hipErrorInvalidHandle"
    assert "belongs to device 0, and the stream to device 1" in explain()
    hip.hipDeviceDisablePeerAccess(0)
    assert "make device 1 current, and enable access to device 0 with hipDeviceEnablePeerAccess" in explain()


def test_hip_message_enumeration_argument_names_member(hip: ModuleType) -> None:
    hip.hipDeviceGetP2PAttribute(hip.hipDeviceP2PAttr.hipDevP2PAttrAccessSupported, 0, 7)
    assert "attr=hipDevP2PAttrAccessSupported (1), srcDevice=0, dstDevice=7" in explain()
