"""Structs that programs pass: the shapes of hip-python 7.2, too few bytes, and unmapped addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from peerlane.dialects.hip import explain
from peerlane.dialects.hip.binding import facts

pytestmark = pytest.mark.any_schedule

Enter = Callable[..., ModuleType]
FILLING = (
    "hipGetDeviceProperties",
    "hipIpcGetEventHandle",
    "hipMalloc3D",
    "hipMemGetAllocationPropertiesFromHandle",
    "hipMemPoolExportPointer",
    "hipPointerGetAttributes",
)


def older(call: str) -> list[str]:
    return [name for name, _ in facts()["older"]["parameters"][call]]


@pytest.mark.parametrize("version", ["10.0", "7.2"])
def test_hip_get_device_properties_older_shape_accepts_keywords(hip_on: Enter, version: str) -> None:
    hip = hip_on(VERSION=version)
    for args, names in (((), ("prop", "deviceId")), (("prop",), ("deviceId",))):
        properties = hip.hipDeviceProp_t()
        values: dict[str, Any] = {"prop": properties, "deviceId": 1}
        result = hip.hipGetDeviceProperties(
            *(values[name] for name in args), **{name: values[name] for name in names}
        )
        assert result[0] is hip.hipError_t.hipSuccess
        assert len(result) == 1
        assert properties.totalGlobalMem == hip.hipDeviceTotalMem(1)[1]
    for wrong in (
        {"prop": properties},
        {"prop": properties, "deviceId": 0, "more": 1},
        {"prop": properties, "device": 0},
    ):
        with pytest.raises(TypeError):
            hip.hipGetDeviceProperties(**wrong)


@pytest.mark.parametrize("version", ["10.0", "7.2"])
@pytest.mark.parametrize("call", FILLING)
def test_hip_struct_filling_calls_null_target_returns_invalid_value(
    hip_on: Enter, call: str, version: str
) -> None:
    hip = hip_on(VERSION=version)
    count = len(older(call)) - 1
    for nothing in (None, 0):
        result = getattr(hip, call)(nothing, *[0] * count)
        assert result == (hip.hipError_t.hipErrorInvalidValue,)
    with pytest.raises(TypeError, match="unsupported input type"):
        getattr(hip, call)("text", *[0] * count)


def test_hip_get_device_properties_small_or_unmapped_target_returns_code(hip: ModuleType) -> None:
    explain()
    assert hip.hipGetDeviceProperties(bytearray(8), 0)[0].name == "hipErrorInvalidValue"
    assert "does not lie in the 8 bytes that it was made of" in explain()
    assert hip.hipGetDeviceProperties(4096, 0)[0].name == "hipErrorIllegalAddress"


@pytest.mark.parametrize(
    ("call", "before", "after"),
    [
        ("hipMemcpy3D", (), ()),
        ("hipMemcpy3DPeer", (), ()),
        ("hipMemcpyParam2D", (), ()),
        ("hipDrvMemcpy3D", (), ()),
        ("hipMalloc3D", (), ()),
        ("hipMemPoolCreate", (), ()),
        ("hipMemset3D", (), (0, bytes(24))),
        ("hipMemCreate", (1 << 21,), (0,)),
    ],
)
def test_hip_struct_calls_too_few_bytes_return_invalid_value(
    hip: ModuleType, call: str, before: tuple[Any, ...], after: tuple[Any, ...]
) -> None:
    explain()
    result = getattr(hip, call)(*before, b"abc", *after)
    assert result[0].name == "hipErrorInvalidValue"
    assert len(result) == 1 + len(facts()["functions"][call]["outputs"])
    assert "3 bytes" in explain()


def test_hip_struct_calls_refuse_a_number_that_is_no_member(hip: ModuleType) -> None:
    _, array = hip.hipMalloc(64)
    box = hip.hipMemcpy3DParms()
    box.srcPtr.ptr = box.dstPtr.ptr = array
    at = int(box) + next(
        field[3] for field in facts()["structs"]["hipMemcpy3DParms"]["fields"] if field[0] == "kind"
    )
    ctypes.c_int.from_address(at).value = 77
    with pytest.raises(ValueError, match="77 is not a valid hipMemcpyKind"):
        _ = box.kind
    one = hip.hipMemcpy3DBatchOp()
    one.extent.width = one.extent.height = one.extent.depth = 1
    assert hip.hipMemcpy3D(box)[0].name == "hipErrorInvalidMemcpyDirection"
    batched = hip.hipMemcpy3DBatchAsync(1, one, 0, hip.hipStreamCreate()[1])
    assert batched[0].name == "hipErrorInvalidValue"
    assert explain().count("is not a valid hipMemcpy") == 2


def test_hip_device_get_by_pci_bus_id_unmapped_address_returns_illegal_address(hip: ModuleType) -> None:
    assert hip.hipDeviceGetByPCIBusId(4096) == (hip.hipError_t.hipErrorIllegalAddress, 0)


def test_hip_free_wrong_array_interface_raises_type_error(hip: ModuleType) -> None:
    class Wrong:
        __cuda_array_interface__ = 5

    with pytest.raises(TypeError):
        hip.hipFree(Wrong())
