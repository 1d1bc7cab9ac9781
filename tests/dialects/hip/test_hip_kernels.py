"""Calls about kernels refuse wrong arguments as the vendor's do, and right ones because there are no kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from helpers import hip_c_calls
from peerlane.dialects.hip.binding import facts
from peerlane.dialects.hip.binding.enums import enumeration, is_enumeration

pytestmark = pytest.mark.any_schedule
Enter = Callable[..., ModuleType]
ELF = b"\x7fELF" + bytes(60)


def valid(kind: str) -> object:
    if is_enumeration(kind):
        return next(iter(enumeration(kind)))
    return 0x1230 if kind == "Pointer" or kind in facts()["structs"] else 0


def code(result: tuple[Any, ...]) -> str:
    return str(result[0].name)


def test_hip_module_calls_wrong_arguments_return_codes_of_the_vendor(hip: ModuleType, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("not a code object")
    for name, answer in (
        (None, "hipErrorInvalidValue"),
        ("", "hipErrorInvalidValue"),
        (str(tmp_path / "none"), "hipErrorFileNotFound"),
        (str(text), "hipErrorInvalidImage"),
    ):
        assert code(hip.hipModuleLoad(name)) == answer
    for load in (hip.hipModuleLoadData, hip.hipModuleLoadFatBinary):
        assert code(load(None)) == "hipErrorInvalidValue"
        assert code(load(b"text\0")) == "hipErrorInvalidImage"
    assert code(hip.hipModuleUnload(None)) == "hipErrorInvalidHandle"
    assert code(hip.hipModuleUnload(0x1230)) == "hipErrorNotFound"
    assert code(hip.hipModuleGetFunctionCount(None)) == "hipErrorInvalidHandle"
    assert code(hip.hipModuleGetFunction(None, b"name")) == "hipErrorInvalidHandle"
    assert code(hip.hipModuleGetFunction(None, b"")) == "hipErrorInvalidValue"


def test_hip_kernel_calls_no_function_return_invalid_device_function(hip: ModuleType) -> None:
    attribute = hip.hipFuncAttribute.hipFuncAttributeMaxDynamicSharedMemorySize
    for result in (
        hip.hipFuncSetAttribute(None, attribute, 0),
        hip.hipFuncSetCacheConfig(None, hip.hipFuncCache_t.hipFuncCachePreferNone),
        hip.hipLaunchByPtr(None),
        hip.hipGetFuncBySymbol(None),
        hip.hipOccupancyMaxActiveBlocksPerMultiprocessor(None, 64, 0),
    ):
        assert code(result) == "hipErrorInvalidDeviceFunction"


def test_hip_kernel_calls_right_arguments_return_not_supported(hip: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "code").write_bytes(ELF)
    assert code(hip.hipModuleLoad(str(tmp_path / "code"))) == "hipErrorNotSupported"
    assert code(hip.hipModuleLoadData(ELF)) == "hipErrorNotSupported"
    assert code(hip.hipLaunchByPtr(0x1230)) == "hipErrorNotSupported"


def test_hip_calls_that_refuse_null_alone_do_so_with_the_code_of_the_header(hip: ModuleType) -> None:
    for name, codes in facts()["refusals"].items():
        call = getattr(hip, name)
        values = {each: valid(kind) for each, kind in facts()["functions"][name]["parameters"]}
        for parameter, answer in codes.items():
            assert code(call(**values | {parameter: None})) == answer, name
        assert code(call(**values)) == "hipErrorNotSupported", name


def test_hip_c_library_refuses_calls_about_kernels_as_the_vendor_does() -> None:
    opened, word = hip_c_calls.library(), ctypes.c_uint64(7)
    pointer = ctypes.byref(word)
    assert opened.hipModuleLoad(None, b"file") == 1
    assert opened.hipModuleLoad(pointer, b"/no/such/file") == 301
    assert opened.hipModuleLoadData(pointer, b"") == 200
    assert opened.hipModuleGetFunctionCount(None, None) == 1
    none = ctypes.c_size_t()
    assert opened.hipOccupancyMaxPotentialBlockSize(None, pointer, ctypes.c_void_p(1), none, 0) == 1
    assert opened.hipFuncSetCacheConfig(ctypes.c_void_p(1), -1) == 1
    grid = (ctypes.c_uint32 * 3)(1, 1, 1)
    assert opened.hipSetupArgument(grid, ctypes.c_size_t(8), ctypes.c_size_t(0)) == 0
    assert opened.hipLaunchByPtr(None) == 98
    assert word.value == 7


def test_hip_calls_without_a_device_return_no_device_before_all_else(
    hip_on: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "-1")
    hip, opened = hip_on("devices=2"), hip_c_calls.library()
    for result in (
        hip.hipModuleLoad(None),
        hip.hipLaunchByPtr(None),
        hip.hipGraphCreate(0),
        hip.hipDeviceGetLimit(hip.hipLimit_t.hipLimitStackSize),
    ):
        assert code(result) == "hipErrorNoDevice"
    count = ctypes.c_int(7)
    assert opened.hipGetDeviceCount(ctypes.byref(count)) == 100
    assert count.value == 0
    assert opened.hipGetDevice(None) == 100
    assert opened.hipModuleLoadData(None, None) == 100
    assert opened.hipFreeArray(None) == 100
