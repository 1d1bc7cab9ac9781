"""Which device a program gets that does not name one: hipChooseDevice and hipSetValidDevices."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.any_schedule


def code(result: tuple[Any, ...]) -> str:
    return str(result[0].name)


def test_hip_choose_device_finds_a_device_that_has_what_is_asked(hip: ModuleType) -> None:
    for device in range(2):
        assert hip.hipChooseDevice(hip.hipGetDeviceProperties(device)[1]) == (hip.hipError_t.hipSuccess, 0)
    assert hip.hipChooseDevice(hip.hipDeviceProp_t())[1] == 0
    more = hip.hipDeviceProp_t(totalGlobalMem=1 << 60)
    assert hip.hipChooseDevice(more) == (hip.hipError_t.hipSuccess, 0)
    assert code(hip.hipChooseDevice(None)) == "hipErrorInvalidValue"


def test_hip_set_valid_devices_makes_the_first_current_unless_the_thread_chose_one(hip: ModuleType) -> None:
    assert hip.hipSetValidDevices([1, 0], 2)[0].name == "hipSuccess"
    assert hip.hipGetDevice()[1] == 1
    assert code(hip.hipSetDevice(0)) == "hipSuccess"
    assert code(hip.hipSetValidDevices([1], 1)) == "hipSuccess"
    assert hip.hipGetDevice()[1] == 0
    seen: list[int] = []

    def other() -> None:
        hip.hipSetValidDevices([1, 0], 2)
        seen.append(hip.hipGetDevice()[1])

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [1]


def test_hip_set_valid_devices_wrong_lists_are_refused(hip: ModuleType) -> None:
    assert hip.hipSetValidDevices(0) == (hip.hipError_t.hipSuccess, 0)
    assert code(hip.hipSetValidDevices(1)) == "hipErrorInvalidValue"
    assert code(hip.hipSetValidDevices(None, 1)) == "hipErrorInvalidValue"
    for wrong in (-1, 3):
        assert code(hip.hipSetValidDevices([0, 1, 0], wrong)) == "hipErrorInvalidValue"
    for unknown in (-1, 2):
        assert code(hip.hipSetValidDevices([1, unknown], 2)) == "hipErrorInvalidDevice"
    assert hip.hipGetDevice()[1] == 0
