"""Devices and contexts of HIP (facts/hip 1.4, 3.7)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import peerlane
from peerlane.dialects.hip import explain

TWO = "devices=2,memory=64MiB"
Enter = Callable[..., ModuleType]


def code(result: tuple[Any, ...]) -> str:
    return str(result[0].name)


def test_hip_get_device_count_returns_devices_of_node(hip_on: Enter) -> None:
    assert hip_on("devices=5").hipGetDeviceCount()[1] == 5


def test_hip_init_flags_other_than_0_return_invalid_value(hip: ModuleType) -> None:
    assert code(hip.hipInit(0)) == "hipSuccess"
    assert code(hip.hipInit(1)) == "hipErrorInvalidValue"


def test_hip_host_malloc_as_first_call_succeeds(hip: ModuleType) -> None:
    memory = hip.hipHostMalloc(8, 0)[1]
    assert code(hip.hipSetDevice(1)) == "hipSuccess"
    assert code(hip.hipHostFree(memory)) == "hipSuccess"


@pytest.mark.parametrize("device", [-1, 2])
def test_hip_device_calls_unknown_device_return_invalid_device(hip: ModuleType, device: int) -> None:
    attribute = hip.hipDeviceAttribute_t.hipDeviceAttributeWarpSize
    for result in (
        hip.hipSetDevice(device),
        hip.hipDeviceGet(device),
        hip.hipGetDeviceProperties(device),
        hip.hipDeviceGetAttribute(attribute, device),
        hip.hipDeviceGetName(64, device),
        hip.hipDeviceGetPCIBusId(64, device),
        hip.hipDeviceGetUuid(device),
        hip.hipDeviceTotalMem(device),
        hip.hipDeviceComputeCapability(device),
        hip.hipDevicePrimaryCtxRetain(device),
        hip.hipDevicePrimaryCtxGetState(device),
    ):
        assert code(result) == "hipErrorInvalidDevice"
    assert code(hip.hipCtxCreate(0, device)) == "hipErrorInvalidValue"
    assert hip.hipGetDevice()[1] == 0


def test_hip_set_device_is_per_thread(hip: ModuleType) -> None:
    hip.hipSetDevice(1)
    seen: list[int] = []
    other = threading.Thread(target=lambda: seen.append(hip.hipGetDevice()[1]))
    other.start()
    other.join(20)
    assert seen == [0]
    assert hip.hipGetDevice()[1] == 1


def test_hip_malloc_takes_memory_of_current_device(hip: ModuleType) -> None:
    before = hip.hipMemGetInfo()[1]
    hip.hipSetDevice(1)
    allocated = hip.hipMalloc(8 << 20)[1]
    assert hip.hipMemGetInfo()[1:] == (56 << 20, 64 << 20)
    hip.hipSetDevice(0)
    assert hip.hipMemGetInfo()[1] == before
    assert code(hip.hipFree(allocated)) == "hipSuccess"


def test_hip_device_reset_ends_memory_and_streams_and_keeps_device_current(hip: ModuleType) -> None:
    hip.hipSetDevice(1)
    allocated = hip.hipMalloc(1 << 20)[1]
    stream = hip.hipStreamCreate()[1]
    other = threading.Thread(target=hip.hipSetDevice, args=(1,))
    other.start()
    other.join(20)
    assert code(hip.hipDeviceReset()) == "hipSuccess"
    assert hip.hipGetDevice()[1] == 1
    assert code(hip.hipFree(allocated)) == "hipErrorInvalidValue"
    assert code(hip.hipStreamSynchronize(stream)) == "hipErrorContextIsDestroyed"
    assert hip.hipMemGetInfo()[1:] == (64 << 20, 64 << 20)
    again = hip.hipMalloc(1 << 20)
    assert code(again) == "hipSuccess"
    assert code(hip.hipMemcpy(again[1], bytes(64), 64, hip.hipMemcpyKind.hipMemcpyDefault)) == "hipSuccess"


def test_hip_get_device_properties_mi300x_returns_values_of_profile(hip_on: Enter) -> None:
    hip = hip_on("profile=mi300x")
    reported = hip.hipGetDeviceProperties(3)[1]
    assert reported.name == "Virtual MI300X"
    assert reported.gcnArchName.startswith("gfx942")
    assert reported.totalGlobalMem == 192 << 30 == hip.hipDeviceTotalMem(3)[1]
    assert (reported.warpSize, reported.maxThreadsDim, reported.major) == (64, [1024, 1024, 1024], 9)
    assert reported.isLargeBar == 1
    assert reported.pciBusID == 4
    assert reported.uuid.bytes == hip.hipDeviceGetUuid(3)[1].bytes != hip.hipDeviceGetUuid(2)[1].bytes


def test_hip_get_device_properties_name_is_bytes_before_10(hip_on: Enter) -> None:
    assert hip_on(VERSION="7.2").hipGetDeviceProperties(0)[1].name == b"Virtual"
    assert hip_on(VERSION="10.0").hipGetDeviceProperties(0)[1].name == "Virtual"


def test_hip_get_device_properties_older_shape_fills_the_callers_struct(hip_on: Enter) -> None:
    for version, name in (("7.2", b"Virtual"), ("10.0", "Virtual")):
        hip = hip_on(VERSION=version)
        arguments = hip.hipDeviceProp_t()
        assert hip.hipGetDeviceProperties(arguments, 1) == (hip.hipError_t.hipSuccess,)
        assert (arguments.name, arguments.pciBusID) == (name, 2)
        assert hip.hipGetDeviceProperties(arguments, 9) == (hip.hipError_t.hipErrorInvalidDevice,)


def test_hip_device_get_attribute_returns_documented_values(hip: ModuleType) -> None:
    kinds = hip.hipDeviceAttribute_t
    for name, value in {
        "WarpSize": 64,
        "VirtualMemoryManagementSupported": 1,
        "MemoryPoolsSupported": 1,
        "CanUseStreamWaitValue": 1,
        "UnifiedAddressing": 1,
        "PciBusId": 2,
        "MaxThreadsPerBlock": 1024,
        "MultiprocessorCount": 304,
    }.items():
        assert hip.hipDeviceGetAttribute(kinds[f"hipDeviceAttribute{name}"], 1) == (
            hip.hipError_t.hipSuccess,
            value,
        )
    properties = hip.hipGetDeviceProperties(1)[1]
    # Each is a second name of a member whose own name is not the name of a field.
    for name, field in (("EccEnabled", "ECCEnabled"), ("ClockInstructionRate", "clockInstructionRate")):
        reported = hip.hipDeviceGetAttribute(kinds.__members__[f"hipDeviceAttribute{name}"], 1)
        assert reported == (hip.hipError_t.hipSuccess, getattr(properties, field))
    assert code(hip.hipDeviceGetAttribute(kinds.hipDeviceAttributeUnused1, 0)) == "hipErrorInvalidValue"


def test_hip_device_get_name_and_pci_bus_id_return_texts(hip: ModuleType) -> None:
    assert hip.hipDeviceGetName(64, 0)[1].decode() == "Virtual"
    assert hip.hipDeviceGetName(4, 0)[1].decode() == "Vir"
    assert code(hip.hipDeviceGetName(0, 0)) == "hipErrorInvalidValue"
    bus_id = hip.hipDeviceGetPCIBusId(64, 1)[1].decode()
    assert bus_id == "0000:02:00.0"
    assert hip.hipDeviceGetByPCIBusId(bus_id)[1] == 1
    assert hip.hipDeviceGetByPCIBusId(b"0000:01:00.0")[1] == 0
    assert code(hip.hipDeviceGetByPCIBusId("0000:77:00.0")) == "hipErrorInvalidValue"
    assert code(hip.hipDeviceGetByPCIBusId(None)) == "hipErrorInvalidValue"


def test_hip_runtime_and_driver_get_version_equal_hip_version(hip: ModuleType) -> None:
    assert hip.hipRuntimeGetVersion()[1] == hip.hipDriverGetVersion()[1] == hip.HIP_VERSION


def test_hip_set_device_flags_valid_flags_are_read_back(hip: ModuleType) -> None:
    assert hip.hipGetDeviceFlags()[1] == 0
    assert code(hip.hipSetDeviceFlags(hip.hipDeviceScheduleBlockingSync)) == "hipSuccess"
    assert hip.hipGetDeviceFlags()[1] == hip.hipDeviceScheduleBlockingSync
    assert code(hip.hipSetDeviceFlags(3)) == "hipErrorInvalidValue"


def test_hip_ctx_calls_act_on_devices_and_refuse_unknown_contexts(hip: ModuleType) -> None:
    one = hip.hipCtxCreate(0, 1)[1]
    assert hip.hipGetDevice()[1] == hip.hipCtxGetDevice()[1] == 1
    assert int(hip.hipDevicePrimaryCtxRetain(1)[1]) == int(one) == int(hip.hipCtxGetCurrent()[1])
    zero = hip.hipDevicePrimaryCtxRetain(0)[1]
    assert code(hip.hipCtxPushCurrent(zero)) == "hipSuccess"
    assert hip.hipGetDevice()[1] == 0
    assert int(hip.hipCtxPopCurrent()[1]) == int(zero)
    assert hip.hipGetDevice()[1] == 1
    assert code(hip.hipCtxSetCurrent(zero)) == "hipSuccess"
    assert hip.hipCtxGetDevice()[1] == 0
    assert code(hip.hipCtxDestroy(zero)) == "hipSuccess"
    assert code(hip.hipCtxPopCurrent()) == "hipErrorInvalidContext"
    for call in (hip.hipCtxPushCurrent, hip.hipCtxSetCurrent):
        assert code(call(12345)) == "hipErrorInvalidContext"
    assert code(hip.hipCtxPushCurrent(None)) == "hipErrorInvalidContext"
    assert code(hip.hipCtxDestroy(None)) == "hipErrorInvalidValue"
    assert hip.hipDevicePrimaryCtxGetState(0)[1:] == (0, 1)
    assert code(hip.hipDevicePrimaryCtxRelease(1)) == code(hip.hipDevicePrimaryCtxReset(1)) == "hipSuccess"


def test_hip_ctx_synchronize_returns_not_supported_and_names_other_call(hip: ModuleType) -> None:
    refused = [
        hip.hipCtxSynchronize(),
        hip.hipCtxGetFlags(),
        hip.hipCtxSetCacheConfig(hip.hipFuncCache_t(0)),
        hip.hipCtxGetCacheConfig(),
        hip.hipCtxSetSharedMemConfig(hip.hipSharedMemConfig(0)),
        hip.hipCtxGetApiVersion(None),
    ]
    assert {code(each) for each in refused} == {"hipErrorNotSupported"}
    assert "call hipDeviceSynchronize or hipGetDeviceFlags" in explain()
    assert code(hip.hipDevicePrimaryCtxSetFlags(0, 0)) == "hipErrorContextAlreadyInUse"
    assert code(hip.hipDevicePrimaryCtxSetFlags(-1, 0)) == "hipErrorInvalidDevice"


def test_hip_device_get_pci_bus_id_length_below_13_returns_invalid_value(hip: ModuleType) -> None:
    whole = str(hip.hipDeviceGetPCIBusId(13, 1)[1])
    assert len(whole) == 12
    assert hip.hipDeviceGetByPCIBusId(whole.encode())[1] == 1
    for short in (12, 1):
        result, text = hip.hipDeviceGetPCIBusId(short, 1)
        assert (result.name, str(text)) == ("hipErrorInvalidValue", whole[: short - 1])
    for none in (0, -1):
        assert hip.hipDeviceGetPCIBusId(none, 1) == (hip.hipError_t.hipErrorInvalidValue, None)


def test_hip_ctx_create_flags_come_back_whole_until_the_device_is_reset(hip: ModuleType) -> None:
    flags = hip.hipDeviceMapHost | hip.hipDeviceLmemResizeToMax | hip.hipDeviceScheduleSpin
    assert code(hip.hipCtxCreate(flags, 1)) == "hipSuccess"
    assert hip.hipGetDeviceFlags()[1] == flags
    assert code(hip.hipDeviceReset()) == "hipSuccess"
    assert hip.hipGetDeviceFlags()[1] == 0


@pytest.mark.parametrize("flags", [0, 1, 2, 4, 9, 0x1C])
def test_hip_set_device_flags_as_first_call_keeps_low_3_bits(hip_on: Enter, flags: int) -> None:
    hip = hip_on(TWO)
    assert code(hip.hipSetDeviceFlags(flags)) == "hipSuccess"
    assert hip.hipGetDeviceFlags()[1] == flags & 7


def test_hip_host_register_and_enable_peer_access_as_first_call_are_kept(hip_on: Enter) -> None:
    hip = hip_on(TWO)
    numbers = np.zeros(8)
    assert code(hip.hipHostRegister(numbers, 64, 0)) == "hipSuccess"
    assert code(hip.hipHostUnregister(numbers)) == "hipSuccess"
    hip = hip_on(TWO)
    assert code(hip.hipDeviceEnablePeerAccess(1, 0)) == "hipSuccess"
    assert code(hip.hipDeviceEnablePeerAccess(1, 0)) == "hipErrorPeerAccessAlreadyEnabled"


def test_hip_get_device_after_entering_node_returns_0(hip: ModuleType) -> None:
    assert code(hip.hipSetDevice(1)) == "hipSuccess"
    peerlane.leave_node()
    peerlane.enter_node("devices=2")
    assert hip.hipGetDevice()[1] == 0


@pytest.mark.parametrize(
    ("call", "args"),
    [
        ("hipInit", (0,)),
        ("hipFree", (None,)),
        ("hipHostFree", (None,)),
        ("hipStreamGetFlags", (None,)),
        ("hipPointerGetAttributes", (None,)),
        ("hipDeviceGetStreamPriorityRange", ()),
        ("hipSetDeviceFlags", (99,)),
        ("hipDeviceCanAccessPeer", (9, 9)),
        ("hipGetDevice", ()),
        ("hipMalloc", (0,)),
        ("hipMemcpy", (None, None, 0, "kind")),
        ("hipStreamSynchronize", (None,)),
        ("hipEventDestroy", (None,)),
        ("hipGraphCreate", (0,)),  # that nothing answers
    ],
)
def test_hip_calls_without_visible_device_return_no_device(
    hip_on: Enter, monkeypatch: pytest.MonkeyPatch, call: str, args: tuple[Any, ...]
) -> None:
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "-1")
    hip = hip_on(TWO)
    arguments = [hip.hipMemcpyKind.hipMemcpyDefault if each == "kind" else each for each in args]
    for _ in range(2):
        assert code(getattr(hip, call)(*arguments)) == "hipErrorNoDevice"
    assert hip.hipRuntimeGetVersion() == (hip.hipError_t.hipSuccess, hip.hipDriverGetVersion()[1])
    assert hip.hipGetErrorName(hip.hipError_t.hipErrorNoDevice)[0] is hip.hipError_t.hipSuccess
