"""Addresses of functions by their names."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from helpers import hip_c_calls

pytestmark = pytest.mark.any_schedule
DEFAULT, LEGACY, PER_THREAD = 0, 1, 2
SIX, BEFORE_SIX = 602, 502

Enter = Callable[..., ModuleType]


def address(symbol: str) -> int:
    return ctypes.cast(hip_c_calls.library()[symbol], ctypes.c_void_p).value or 0


@pytest.mark.parametrize(
    ("call", "flags", "expected"),
    [
        ("hipGetProcAddress", DEFAULT, "hipMemcpy"),
        ("hipGetProcAddress", LEGACY, "hipMemcpy"),
        ("hipGetProcAddress", PER_THREAD, "hipMemcpy_spt"),
        ("hipGetProcAddress_spt", DEFAULT, "hipMemcpy_spt"),
        ("hipGetProcAddress_spt", LEGACY, "hipMemcpy"),
        ("hipGetDriverEntryPoint", DEFAULT, "hipMemcpy"),
        ("hipGetDriverEntryPoint", PER_THREAD, "hipMemcpy_spt"),
        ("hipGetDriverEntryPoint_spt", DEFAULT, "hipMemcpy_spt"),
    ],
)
def test_hip_functions_by_name_are_those_of_the_c_library(
    hip: ModuleType, call: str, flags: int, expected: str
) -> None:
    version = (SIX,) if "Proc" in call else ()
    result, pointer, status = getattr(hip, call)("hipMemcpy", *version, flags)
    assert (result.name, int(pointer), int(status)) == ("hipSuccess", address(expected), 0)


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("hipGetDeviceProperties", SIX, "hipGetDevicePropertiesR0600"),
        ("hipChooseDevice", SIX, "hipChooseDeviceR0600"),
        ("hipGetDeviceProperties", BEFORE_SIX, "hipGetDeviceProperties"),
        ("hipMalloc", BEFORE_SIX, "hipMalloc"),
    ],
)
def test_hip_functions_by_name_are_of_the_version_asked(
    hip: ModuleType, name: str, version: int, expected: str
) -> None:
    assert int(hip.hipGetProcAddress(name, version, DEFAULT)[1]) == address(expected)


def test_hip_functions_by_name_that_there_are_not_are_refused(hip: ModuleType) -> None:
    for name, flags, status in (("", 0, None), (None, 0, None), ("hipMemcpy", 3, None), ("hipMem", 0, 1)):
        for result in (hip.hipGetProcAddress(name, SIX, flags), hip.hipGetDriverEntryPoint(name, flags)):
            assert (result[0].name, result[1:]) == ("hipErrorInvalidValue", (None, status))


def test_hip_functions_by_name_are_written_to_the_outputs_of_calls_of_7_2(hip_on: Enter) -> None:
    hip, output = hip_on("devices=1", VERSION="7.2"), ctypes.c_void_p()
    calls: list[tuple[Any, tuple[int, ...]]] = [
        (hip.hipGetProcAddress, (SIX,)),
        (hip.hipGetDriverEntryPoint, ()),
    ]
    for call, version in calls:
        output.value = None
        assert call("hipFree", ctypes.addressof(output), *version, DEFAULT)[0].name == "hipSuccess"
        assert output.value == address("hipFree")
        assert call("hipMem", ctypes.addressof(output), *version, DEFAULT)[1] == 1
        assert call("hipFree", None, *version, DEFAULT)[0].name == "hipErrorInvalidValue"


def test_hip_c_library_reports_an_unknown_name() -> None:
    opened, expected, status = hip_c_calls.library(), ctypes.c_void_p(7), ctypes.c_int(7)
    flags = ctypes.c_uint64(0)
    assert opened.hipGetProcAddress(b"hipFree", ctypes.byref(expected), SIX, flags, None) == 0
    assert expected.value == address("hipFree")
    assert opened.hipGetProcAddress(b"hipMem", ctypes.byref(expected), SIX, flags, ctypes.byref(status)) == 1
    assert (expected.value, status.value) == (address("hipFree"), 1)
    status.value = 7
    assert opened.hipGetProcAddress(b"", ctypes.byref(expected), SIX, flags, ctypes.byref(status)) == 1
    assert status.value == 7
    assert opened.hipGetProcAddress(b"hipFree", None, SIX, flags, ctypes.byref(status)) == 1
