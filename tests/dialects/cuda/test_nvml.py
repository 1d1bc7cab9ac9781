"""NVML for a program in C: devices, memory, processes, topology, NVLink, events and fields."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from ctypes import c_char, c_int, c_uint, c_ulong, c_ulonglong, c_ushort
from typing import Any

import pytest

from dialects.cuda.driver import WORD, Driver, code
from helpers.peers import peer
from helpers.promises import Node
from peerlane import devices, dialects
from peerlane.dialects._shared.c_names import declarations_of
from peerlane.dialects.cuda.nvml.state import calls, constants
from peerlane.dialects.cuda.paths import SWITCH, ends_of

SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE = 0, 1, 2, 3, 6, 7
TIMEOUT, VERSION_MISMATCH = 10, 25
MIB = 1 << 20


class Pci(ctypes.Structure):
    _fields_ = (
        ("busIdLegacy", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("pciDeviceId", c_uint),
        ("pciSubSystemId", c_uint),
        ("busId", c_char * 32),
    )


class Memory(ctypes.Structure):
    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class Memory2(ctypes.Structure):
    _fields_ = (("version", c_uint), ("total", c_ulonglong), ("reserved", c_ulonglong), *Memory._fields_[1:])


class Process(ctypes.Structure):
    _fields_ = (("pid", c_uint), ("used", c_ulonglong), ("gpuInstance", c_uint), ("computeInstance", c_uint))


class Value(ctypes.Union):
    _fields_ = (("d", ctypes.c_double), ("ui", c_uint), ("ull", c_ulonglong), ("us", c_ushort))


class Field(ctypes.Structure):
    _fields_ = (
        ("fieldId", c_uint),
        ("scopeId", c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("type", c_int),
        ("code", c_int),
        ("value", Value),
    )


@pytest.fixture
def fresh(node: Node) -> Iterator[Callable[..., Driver]]:
    """Make NVML of a new process on a node, before its start."""

    def make(spec: str = "devices=2") -> Driver:
        node(spec)
        dialects.begin_anew("cuda")
        return Driver("libnvidia-ml.so.1")

    yield make
    dialects.begin_anew("cuda")


@pytest.fixture
def started(fresh: Callable[..., Driver]) -> Callable[..., Driver]:
    def make(spec: str = "devices=2") -> Driver:
        nvml = fresh(spec)
        nvml.nvmlInit_v2()
        return nvml

    return make


def device(nvml: Driver, index: int = 0) -> int:
    handle: int = nvml.nvmlDeviceGetHandleByIndex_v2(index, WORD)
    return handle


def text(call: Callable[..., object], *arguments: object, length: int = 96) -> str:
    buffer = ctypes.create_string_buffer(length)
    call(*arguments, buffer, length)
    return buffer.value.decode()


def filled(kind: Any, call: Callable[..., object], *arguments: object) -> Any:
    struct = kind()
    call(*arguments, ctypes.byref(struct))
    return struct


def test_calls_before_the_start_and_after_the_end_are_refused(fresh: Callable[..., Driver]) -> None:
    nvml = fresh()
    assert code(nvml.nvmlDeviceGetCount_v2, c_uint) == UNINITIALIZED
    assert code(nvml.nvmlShutdown) == UNINITIALIZED
    nvml.nvmlInit_v2()
    nvml.nvmlInitWithFlags(1)
    assert code(nvml.nvmlInitWithFlags, 64) == INVALID_ARGUMENT
    nvml.nvmlShutdown()
    assert nvml.nvmlDeviceGetCount_v2(c_uint) == nvml.nvmlDeviceGetCount(c_uint) == 2
    nvml.nvmlShutdown()
    assert code(nvml.nvmlShutdown) == UNINITIALIZED
    assert code(nvml.nvmlDeviceGetCount_v2, c_uint) == UNINITIALIZED
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetCount_v2(c_uint) == 2


def test_text_of_a_code_needs_no_start(fresh: Callable[..., Driver]) -> None:
    function = fresh().library.nvmlErrorString
    function.restype = ctypes.c_char_p
    assert [function(number) for number in (0, 7, 12345)] == [b"success", b"insufficient size", b"unknown"]


def test_versions_and_names_of_processes(started: Callable[..., Driver]) -> None:
    nvml = started()
    driver = text(nvml.nvmlSystemGetDriverVersion)
    assert text(nvml.nvmlSystemGetNVMLVersion) == f"13.{driver}"
    assert nvml.nvmlSystemGetCudaDriverVersion_v2(c_int) == 13050
    assert "python" in text(nvml.nvmlSystemGetProcessName, os.getpid())
    buffer = ctypes.create_string_buffer(8)
    assert code(nvml.nvmlSystemGetProcessName, 1 << 22 | 1, buffer, 8) == NOT_FOUND
    assert code(nvml.nvmlSystemGetDriverVersion, buffer, 3) == INSUFFICIENT_SIZE


def test_devices_have_the_same_names_in_the_driver(started: Callable[..., Driver]) -> None:
    nvml = started("profile=h200-8,devices=2")
    driver = Driver()
    driver.cuInit(0)
    for index in range(2):
        handle = device(nvml, index)
        name, bus = ctypes.create_string_buffer(64), ctypes.create_string_buffer(16)
        driver.cuDeviceGetName(name, 64, index)
        driver.cuDeviceGetPCIBusId(bus, 16, index)
        pci = filled(Pci, nvml.nvmlDeviceGetPciInfo_v3, handle)
        assert text(nvml.nvmlDeviceGetName, handle) == name.value.decode() == "NVIDIA H200"
        assert pci.busIdLegacy.decode().lower() == bus.value.decode()
        assert (pci.pciDeviceId, pci.busIdLegacy) == (0x2335_10DE, pci.busId[4:])
        uuid, serial = text(nvml.nvmlDeviceGetUUID, handle), text(nvml.nvmlDeviceGetSerial, handle)
        assert nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), WORD) == handle
        assert nvml.nvmlDeviceGetHandleByUUID(uuid.removeprefix("GPU-").encode(), WORD) == handle
        assert nvml.nvmlDeviceGetHandleBySerial(serial.encode(), WORD) == handle
        for each in (pci.busId, pci.busIdLegacy, bus.value, bus.value[5:], bus.value[5:-2]):
            assert nvml.nvmlDeviceGetHandleByPciBusId_v2(each, WORD) == handle, each
        assert (
            nvml.nvmlDeviceGetIndex(handle, c_uint) == nvml.nvmlDeviceGetMinorNumber(handle, c_uint) == index
        )
        assert nvml.nvmlDeviceGetArchitecture(handle, c_uint) == 9
        assert nvml.nvmlDeviceGetCudaComputeCapability(handle, c_int, c_int) == [9, 0]


def test_devices_that_do_not_exist_are_refused(started: Callable[..., Driver]) -> None:
    nvml = started()
    assert code(nvml.nvmlDeviceGetHandleByIndex_v2, 2, WORD) == INVALID_ARGUMENT
    assert code(nvml.nvmlDeviceGetHandleByUUID, b"GPU-0", WORD) == NOT_FOUND
    assert code(nvml.nvmlDeviceGetHandleByPciBusId_v2, b"00000000:99:00.0", WORD) == NOT_FOUND
    assert code(nvml.nvmlDeviceGetHandleByPciBusId_v2, b"x", WORD) == INVALID_ARGUMENT
    assert code(nvml.nvmlDeviceGetIndex, 1, c_uint) == INVALID_ARGUMENT
    assert code(nvml.nvmlDeviceGetIndex, device(nvml), 0) == INVALID_ARGUMENT


def test_older_function_writes_no_more_than_its_struct_has(started: Callable[..., Driver]) -> None:
    nvml = started()
    for function, size in (("nvmlDeviceGetPciInfo", 32), ("nvmlDeviceGetPciInfo_v2", 36)):
        memory = (c_char * 68)(*b"\xff" * 68)
        getattr(nvml, function)(device(nvml), memory)
        assert memory.raw[:12] == b"0000:01:00.0"
        assert memory.raw[size:] == b"\xff" * (68 - size)


def test_visible_devices_do_not_count(
    started: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert started().nvmlDeviceGetCount_v2(c_uint) == 2


def test_memory_is_that_of_all_processes(started: Callable[..., Driver]) -> None:
    spec = f"name=nvml-{os.getpid()},devices=2,memory=64MiB"
    nvml = started(spec)
    handle, count, infos = device(nvml), c_uint(0), (Process * 4)()
    with peer(spec) as other, devices()[0].allocate(4 * MIB):
        other.run(f"held = devices[0].allocate({8 * MIB})")
        memory = filled(Memory, nvml.nvmlDeviceGetMemoryInfo, handle)
        assert (memory.total, memory.free, memory.used) == (64 * MIB, 52 * MIB, 12 * MIB)
        newer = Memory2(ctypes.sizeof(Memory2) | 2 << 24)
        nvml.nvmlDeviceGetMemoryInfo_v2(handle, ctypes.byref(newer))
        assert (newer.total, newer.used) == (64 * MIB, 12 * MIB)
        running = nvml.nvmlDeviceGetComputeRunningProcesses_v3
        assert code(running, handle, ctypes.byref(count), 0) == INSUFFICIENT_SIZE
        assert count.value == 2
        running(handle, ctypes.byref(count), infos)
        held = {each.pid: each.used for each in infos[: count.value]}
        assert held == {os.getpid(): 4 * MIB, other.pid: 8 * MIB}
        assert infos[0].gpuInstance == (1 << 32) - 1
        running(device(nvml, 1), ctypes.byref(count), infos)
        assert count.value == 0


def test_struct_of_another_version_is_refused(started: Callable[..., Driver]) -> None:
    nvml = started()
    memory = Memory2(ctypes.sizeof(Memory2) | 9 << 24)
    assert code(nvml.nvmlDeviceGetMemoryInfo_v2, device(nvml), ctypes.byref(memory)) == VERSION_MISMATCH
    assert memory.total == 0


def test_paths_and_rights_are_those_of_the_node(started: Callable[..., Driver]) -> None:
    nvml = started("devices=4,switch=2,link=0-1:PXB")
    a, b, c = (device(nvml, index) for index in range(3))
    ancestor = nvml.nvmlDeviceGetTopologyCommonAncestor
    assert [ancestor(a, each, c_int) for each in (a, b, c)] == [0, 20, 50]
    count, handles = c_uint(0), (WORD * 4)()
    nvml.nvmlDeviceGetTopologyNearestGpus(a, 50, ctypes.byref(count), 0)
    assert count.value == 2
    nvml.nvmlDeviceGetTopologyNearestGpus(a, 50, ctypes.byref(count), handles)
    assert list(handles)[:2] == [c, device(nvml, 3)]
    status = [nvml.nvmlDeviceGetP2PStatus(a, each, index, c_int) for each in (b, c) for index in range(5)]
    assert status == [0, 0, 5, 5, 0, *[3] * 5]
    assert code(nvml.nvmlDeviceGetP2PStatus, a, a, 0, c_int) == INVALID_ARGUMENT
    assert code(nvml.nvmlDeviceGetP2PStatus, a, b, 9, c_int) == INVALID_ARGUMENT


def test_all_processors_are_near_each_device(started: Callable[..., Driver]) -> None:
    nvml = started()
    words = (c_ulong * 80)()
    nvml.nvmlDeviceGetCpuAffinity(device(nvml), 80, words)
    assert sum(bin(each).count("1") for each in words) == os.cpu_count()
    nvml.nvmlDeviceGetMemoryAffinity(device(nvml), 80, words, 0)
    assert words[0] == 1
    count = c_uint(0)
    nvml.nvmlSystemGetTopologyGpuSet(0, ctypes.byref(count), 0)
    assert count.value == 2


def test_links_of_eight_joined_devices_end_at_a_switch(started: Callable[..., Driver]) -> None:
    nvml = started("profile=h100-8")
    a, b = device(nvml), device(nvml, 1)
    assert [nvml.nvmlDeviceGetNvLinkState(a, link, c_int) for link in range(18)] == [1] * 18
    assert nvml.nvmlDeviceGetNvLinkRemoteDeviceType(a, 3, c_int) == 2
    ends = [filled(Pci, nvml.nvmlDeviceGetNvLinkRemotePciInfo_v2, each, 17).busId for each in (a, b)]
    assert ends[0] == ends[1] == b"00000000:00:01.0"
    assert nvml.nvmlDeviceGetNvLinkVersion(a, 0, c_uint) == 6
    capabilities = [nvml.nvmlDeviceGetNvLinkCapability(a, 0, each, c_uint) for each in range(6)]
    assert capabilities == [1, 0, 1, 0, 0, 1]
    assert code(nvml.nvmlDeviceGetNvLinkState, a, 18, c_int) == INVALID_ARGUMENT
    assert [nvml.nvmlDeviceGetP2PStatus(a, b, index, c_int) for index in range(5)] == [0, 0, 0, 0, 5]
    memory = (c_char * 68)(*b"\xff" * 68)
    nvml.nvmlDeviceGetNvLinkRemotePciInfo(a, 0, memory)
    assert memory.raw[36:] == b"\xff" * 32


def test_device_without_links_does_not_support_them(started: Callable[..., Driver]) -> None:
    nvml = started()
    assert code(nvml.nvmlDeviceGetNvLinkState, device(nvml), 0, c_int) == NOT_SUPPORTED


@pytest.mark.parametrize(
    ("joined", "links", "ends"),
    [
        ({(0, 1)}, 4, [1, 1, 1, 1]),
        ({(0, 1), (0, 2)}, 5, [1, 1, 2, 2, None]),
        ({(0, 1), (0, 2), (1, 2)}, 2, [SWITCH, SWITCH]),
        ({(0, 1), (0, 2), (1, 2), (2, 3)}, 2, [1, 2]),
        ({(0, 1), (1, 2), (1, 3)}, 6, [1, 1, None, None, None, None]),
        ({(1, 2)}, 2, [None, None]),
    ],
)
def test_links_end_at_peers_or_at_a_switch(
    joined: set[tuple[int, int]], links: int, ends: list[int | None]
) -> None:
    pairs = joined | {(b, a) for a, b in joined}
    assert ends_of(0, [{b for a, b in pairs if a == each} for each in range(4)], links) == ends


def test_each_field_has_a_code_of_its_own(started: Callable[..., Driver]) -> None:
    nvml = started("profile=h100-8,devices=2")
    names = ("NVLINK_LINK_COUNT", "NVLINK_SPEED_MBPS_COMMON", "ECC_CURRENT", "TOTAL_ENERGY_CONSUMPTION")
    fields = (Field * 4)(*((constants[f"NVML_FI_DEV_{name}"],) for name in names))
    nvml.nvmlDeviceGetFieldValues(device(nvml), 4, fields)
    assert [each.code for each in fields] == [SUCCESS, SUCCESS, SUCCESS, NOT_SUPPORTED]
    assert [each.value.ui for each in fields][:3] == [18, 26_562, 1]
    assert code(nvml.nvmlDeviceGetFieldValues, device(nvml), 0, fields) == INVALID_ARGUMENT


def test_wait_for_events_ends_with_its_time(started: Callable[..., Driver]) -> None:
    nvml = started()
    events = nvml.nvmlEventSetCreate(WORD)
    nvml.nvmlDeviceRegisterEvents(
        device(nvml), nvml.nvmlDeviceGetSupportedEventTypes(device(nvml), WORD), events
    )
    start, data = time.monotonic(), (c_ulonglong * 4)()
    assert code(nvml.nvmlEventSetWait_v2, events, data, 30) == TIMEOUT
    assert time.monotonic() - start >= 0.03
    assert code(nvml.nvmlDeviceRegisterEvents, device(nvml), 1 << 40, events) == NOT_SUPPORTED
    nvml.nvmlEventSetFree(events)
    assert code(nvml.nvmlEventSetWait_v2, events, data, 0) == INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("function", "value"),
    [
        ("nvmlDeviceGetPersistenceMode", 1),
        ("nvmlDeviceGetComputeMode", 0),
        ("nvmlDeviceGetVirtualizationMode", 0),
        ("nvmlDeviceGetNumGpuCores", 132 * 128),
        ("nvmlDeviceGetMemoryBusWidth", 5120),
        ("nvmlDeviceGetBrand", 14),
    ],
)
def test_figure_of_a_device(function: str, value: int, started: Callable[..., Driver]) -> None:
    nvml = started()
    assert getattr(nvml, function)(device(nvml), c_uint) == value


@pytest.mark.parametrize(("profile", "modes"), [("h100-8", [0, 0]), ("rtx4090-2", None)])
def test_only_some_chips_have_mig(
    profile: str, modes: list[int] | None, started: Callable[..., Driver]
) -> None:
    nvml = started(f"profile={profile}")
    if modes is None:
        assert code(nvml.nvmlDeviceGetMigMode, device(nvml), c_uint, c_uint) == NOT_SUPPORTED
    else:
        assert nvml.nvmlDeviceGetMigMode(device(nvml), c_uint, c_uint) == modes


def test_what_no_virtual_device_has_is_not_supported(started: Callable[..., Driver]) -> None:
    nvml = started()
    assert code(nvml.nvmlDeviceGetTemperature, device(nvml), 0, c_uint) == NOT_SUPPORTED
    assert code(nvml.nvmlDeviceGetGpuFabricInfoV, device(nvml), (c_char * 64)()) == NOT_SUPPORTED
    assert code(nvml.nvmlDeviceSetPersistenceMode, device(nvml), 1) == NOT_SUPPORTED


def test_each_row_that_is_not_refused_has_a_body() -> None:
    declared = declarations_of("cuda", "nvml").functions
    older = {"nvmlDeviceGetPciInfo", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo"}
    served = {name for name, each in declared.items() if not each.is_refused}
    assert served == {*calls.functions("")} | older
