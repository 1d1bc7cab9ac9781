"""Documented codes that no other test provokes: each call with each of its codes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.hip_calls import Gate
from helpers.hip_client import code, done, neutral
from helpers.hip_memory import location

HUGE, INVENTED, WILD = 1 << 50, 1 << 20, 0x1000
HOST = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: None)
ADDED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(lambda *words: None)

Result = tuple[Any, ...]
pytestmark = pytest.mark.timeout(60)


def box(hip: ModuleType, name: str = "hipMemcpy3DParms") -> Any:
    """Return parameters that copy a box of 64 bytes from device 0 to itself."""
    struct = getattr(hip, name)()
    for end in ("src", "dst"):
        memory = getattr(struct, f"{end}Ptr")
        memory.ptr, memory.pitch, memory.xsize, memory.ysize = done(hip.hipMalloc(64)), 64, 64, 1
    struct.extent.width, struct.extent.height, struct.extent.depth = 64, 1, 1
    if name == "hipMemcpy3DParms":
        struct.kind = hip.hipMemcpyKind.hipMemcpyDefault
    return struct


def narrow(hip: ModuleType) -> Any:
    struct = box(hip)
    struct.srcPtr.pitch = 63
    return struct


def of_array(hip: ModuleType) -> Any:
    struct = box(hip)
    struct.srcArray, struct.srcPtr.ptr = 64, 0
    return struct


def described(hip: ModuleType) -> Any:
    kinds = hip.hipMemoryType
    return hip.HIP_MEMCPY3D(
        srcMemoryType=kinds.hipMemoryTypeArray, srcArray=64, dstMemoryType=kinds.hipMemoryTypeHost,
        dstHost=np.zeros(64), dstPitch=64, WidthInBytes=8, Height=1, Depth=1,
    )  # fmt: skip


def prefetched(
    hip: ModuleType, device_location: tuple[int, str], stream: int | None = None, *, plain: bool = False
) -> Result:
    memory = np.zeros(64, np.uint8) if plain else done(hip.hipMallocManaged(64, 1))
    result: Result = hip.hipMemPrefetchAsync_v2(memory, 64, location(hip, *device_location), 0, stream)
    return result


def cancelled(hip: ModuleType) -> Result:
    """Return the result of a wait for an event whose record was cancelled."""
    stream, event, gate = done(hip.hipStreamCreate()), done(hip.hipEventCreate()), Gate(hip)
    gate.close(stream)
    done(hip.hipEventRecord(event, stream))
    neutral(stream).abort()
    result: Result = hip.hipEventSynchronize(event)
    return result


def viewed(hip: ModuleType) -> Result:
    """Return the result of an export of small memory while a view of it lives."""
    array = done(hip.hipMallocAsync(64, None))
    with memoryview(array):
        result: Result = hip.hipMemPoolExportPointer(array)
    done(hip.hipMemPoolExportPointer(array))
    return result


CASES: dict[str, dict[str, Callable[[ModuleType], Result]]] = {
    "hipErrorInvalidHandle": {
        "hipMallocFromPoolAsync": lambda hip: hip.hipMallocFromPoolAsync(
            64, done(hip.hipDeviceGetDefaultMemPool(0)), INVENTED
        ),
    },
    "hipErrorContextIsDestroyed": {
        "hipMemcpy3DAsync": lambda hip: hip.hipMemcpy3DAsync(box(hip), INVENTED),
        "hipMemcpy3DAsync_spt": lambda hip: hip.hipMemcpy3DAsync_spt(box(hip), INVENTED),
        "hipMemcpy3DPeerAsync": lambda hip: hip.hipMemcpy3DPeerAsync(
            box(hip, "hipMemcpy3DPeerParms"), INVENTED
        ),
        "hipMemPrefetchAsync_v2": lambda hip: prefetched(hip, (0, "Device"), INVENTED),
        "hipEventRecord_spt": lambda hip: hip.hipEventRecord_spt(done(hip.hipEventCreate()), INVENTED),
        "hipLaunchHostFunc_spt": lambda hip: hip.hipLaunchHostFunc_spt(INVENTED, HOST, None),
        "hipStreamAddCallback_spt": lambda hip: hip.hipStreamAddCallback_spt(INVENTED, ADDED, None, 0),
    },
    "hipErrorInvalidValue": {
        "hipLaunchHostFunc_spt": lambda hip: hip.hipLaunchHostFunc_spt(None, None, None),
        "hipStreamAddCallback_spt": lambda hip: hip.hipStreamAddCallback_spt(None, ADDED, None, 1),
    },
    "hipErrorInvalidPitchValue": {
        "hipMemcpy3D_spt": lambda hip: hip.hipMemcpy3D_spt(narrow(hip)),
        "hipMemcpy3DAsync_spt": lambda hip: hip.hipMemcpy3DAsync_spt(narrow(hip), None),
    },
    "hipErrorNotSupported": {
        "hipDrvMemcpy3D": lambda hip: hip.hipDrvMemcpy3D(described(hip)),
        "hipDrvMemcpy3DAsync": lambda hip: hip.hipDrvMemcpy3DAsync(described(hip), None),
        "hipMemcpy3D_spt": lambda hip: hip.hipMemcpy3D_spt(of_array(hip)),
        "hipMemcpy3DAsync_spt": lambda hip: hip.hipMemcpy3DAsync_spt(of_array(hip), None),
        "hipMemPrefetchAsync_v2": lambda hip: prefetched(hip, (0, "Device"), plain=True),
    },
    "hipErrorInvalidDevice": {
        "hipMemPrefetchAsync_v2": lambda hip: prefetched(hip, (2, "Device")),
    },
    "hipErrorOutOfMemory": {
        "hipExtMallocWithFlags": lambda hip: hip.hipExtMallocWithFlags(HUGE, 0),
        "hipHostMalloc": lambda hip: hip.hipHostMalloc(HUGE, 0),
        "hipMallocManaged": lambda hip: hip.hipMallocManaged(HUGE, 1),
        "hipMallocHost": lambda hip: hip.hipMallocHost(HUGE),
        "hipMalloc3D": lambda hip: hip.hipMalloc3D(hip.hipExtent(1 << 20, 1 << 10, 1 << 10)),
    },
    "hipErrorLaunchFailure": {"hipEventSynchronize": cancelled},
    "hipErrorIllegalState": {"hipMemPoolExportPointer": viewed},
    "hipErrorIllegalAddress": {
        "hipExtStreamCreateWithCUMask": lambda hip: hip.hipExtStreamCreateWithCUMask(1, WILD),
        "hipExtStreamGetCUMask": lambda hip: hip.hipExtStreamGetCUMask(None, 64, WILD),
    },
}


@pytest.mark.parametrize(("name", "call"), [(name, call) for name, calls in CASES.items() for call in calls])
def test_hip_calls_provoked_return_documented_code(hip: ModuleType, name: str, call: str) -> None:
    assert code(CASES[name][call](hip)) == name
