"""Limits of a device, and how its caches and shared memory are set."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.any_schedule


def code(result: tuple[Any, ...]) -> str:
    return str(result[0].name)


def test_hip_device_limits_are_read_as_they_were_set_for_the_current_device(hip: ModuleType) -> None:
    limit = hip.hipLimit_t
    for each, asked, got in (
        (limit.hipLimitStackSize, 4097, 4112),
        (limit.hipLimitMallocHeapSize, 4097, 4097),
        (limit.hipExtLimitScratchCurrent, 12345, 12345),
    ):
        _, before = hip.hipDeviceGetLimit(each)
        assert code(hip.hipDeviceSetLimit(each, asked)) == "hipSuccess"
        assert hip.hipDeviceGetLimit(each)[1] == got
        hip.hipSetDevice(1)
        assert hip.hipDeviceGetLimit(each)[1] == before
        hip.hipSetDevice(0)
    assert hip.hipDeviceGetLimit(limit.hipExtLimitScratchMin)[1] == 0
    assert hip.hipDeviceGetLimit(limit.hipExtLimitScratchMax)[1] > 0


def test_hip_device_limits_that_there_are_not_are_refused(hip: ModuleType) -> None:
    limit, stack = hip.hipLimit_t, hip.hipLimit_t.hipLimitStackSize
    assert code(hip.hipDeviceGetLimit(limit.hipLimitRange)) == "hipErrorInvalidValue"
    assert code(hip.hipDeviceSetLimit(limit.hipLimitRange, 1)) == "hipErrorInvalidValue"
    assert code(hip.hipDeviceGetLimit(limit.hipLimitPrintfFifoSize)) == "hipErrorUnsupportedLimit"
    for each in (limit.hipLimitPrintfFifoSize, limit.hipExtLimitScratchMin, limit.hipExtLimitScratchMax):
        assert code(hip.hipDeviceSetLimit(each, 1)) == "hipErrorUnsupportedLimit"
    _, before = hip.hipDeviceGetLimit(stack)
    assert code(hip.hipDeviceSetLimit(stack, 1 << 40)) == "hipErrorInvalidValue"
    assert hip.hipDeviceGetLimit(stack)[1] == before


def test_hip_device_cache_and_shared_memory_stay_as_they_are(hip: ModuleType) -> None:
    four = hip.hipSharedMemConfig.hipSharedMemBankSizeFourByte
    for each in hip.hipFuncCache_t:
        assert code(hip.hipDeviceSetCacheConfig(each)) == "hipSuccess"
        assert hip.hipDeviceGetCacheConfig()[1] is hip.hipFuncCache_t.hipFuncCachePreferNone
    for each in hip.hipSharedMemConfig:
        assert code(hip.hipDeviceSetSharedMemConfig(each)) == "hipSuccess"
        assert hip.hipDeviceGetSharedMemConfig()[1] is hip.hipCtxGetSharedMemConfig()[1] is four
    assert code(hip.hipFuncSetSharedMemConfig(None, four)) == "hipErrorInvalidDeviceFunction"
