"""Pointers, arrays and lists of the hip dialect, where the measured expressions do not cover them."""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle
import subprocess
import sys
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import peerlane as pl
from helpers.promises import Node
from peerlane.dialects.hip.binding import lists
from peerlane.dialects.hip.binding.structs import struct
from peerlane.dialects.hip.binding.types import (
    CStr,
    DeviceArray,
    ListOfPointer,
    NDBuffer,
    Pointer,
    address_of,
    extent_of,
)

pytestmark = pytest.mark.any_schedule

ListOfInt: Any = lists.__dict__["ListOfInt"]
PointerToInt: Any = lists.__dict__["PointerToInt"]


class Interface:
    def __init__(self, **described: object) -> None:
        self.__cuda_array_interface__ = described


def test_hip_address_of_returns_address_or_raises_by_type() -> None:
    array = np.arange(4, dtype=np.int32)
    assert address_of(None) == 0 and address_of(7) == 7 and address_of(True) == 1
    assert address_of(-1) == 2**64 - 1
    assert address_of(Pointer(9)) == address_of(DeviceArray(9)) == address_of(ctypes.c_void_p(9)) == 9
    assert address_of(array) == address_of(memoryview(array)) == array.ctypes.data
    assert address_of(np.asfortranarray(np.ones((3, 3)))) != 0
    assert address_of(Interface(data=(5, False))) == 5
    assert address_of(struct("hipStream_t")(11)) == 11
    for wrong in ("a", 1.5, [1], (1,), {}, object()):
        with pytest.raises(TypeError, match="unsupported input type"):
            address_of(wrong)
    with pytest.raises(OverflowError):
        address_of(2**64)
    with pytest.raises(ValueError):
        address_of(array[::2])
    with pytest.raises(BufferError):
        address_of(memoryview(array)[::2])


def test_hip_extent_of_returns_size_only_where_known() -> None:
    array = np.arange(4, dtype=np.int32)
    assert extent_of(array) == (array.ctypes.data, 16)
    assert extent_of(array[1:]) == (array.ctypes.data + 4, 12)
    assert extent_of(b"abc")[1] == 3
    assert extent_of(Interface(data=(5, False), shape=(2, 3), typestr="<f4")) == (5, 24)
    assert extent_of(Interface(data=(5, False), shape=(2,), typestr="<f4", strides=(8,))) == (5, None)
    assert extent_of(Interface(data=(5, False))) == (5, None)
    for unknown in (None, 7, Pointer(7), DeviceArray(7), ctypes.c_void_p(7), struct("hipStream_t")(7)):
        assert extent_of(unknown) == (address_of(unknown), None)


def test_hip_pointer_keeps_its_object_alive() -> None:
    data = bytearray(b"abcd")
    part = Pointer(data)[1]
    with pytest.raises(BufferError):
        data.append(1)  # `part` exports its buffer
    assert ctypes.string_at(int(part), 3) == b"bcd"
    del part
    gc.collect()
    data.append(1)
    owner = Interface(data=(5, False))
    pointer, alive = Pointer(owner), weakref.ref(owner)
    del owner
    gc.collect()
    assert alive() is not None
    del pointer
    gc.collect()
    assert alive() is None


def test_hip_pointer_create_ref_points_to_its_address() -> None:
    pointer = DeviceArray(5)
    reference = pointer.createRef()
    assert ctypes.c_size_t.from_address(int(reference)).value == 5
    ctypes.c_size_t.from_address(int(reference)).value = 4096
    assert int(pointer) == address_of(pointer) == 4096
    assert int(pointer.createRef()) == int(reference)


@pytest.mark.parametrize(
    "instance",
    [Pointer(5), DeviceArray(5), CStr(b"a"), ListOfInt([1]), PointerToInt([1]), struct("hipExtent")()],
)
def test_hip_types_do_not_pickle_or_copy(instance: object) -> None:
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(instance)
    with pytest.raises(TypeError, match="cannot pickle"):
        copy.copy(instance)
    assert instance == instance and instance != Pointer(int(instance))  # type: ignore[call-overload]


def test_hip_device_array_views_device_memory_until_it_ends(node: Node) -> None:
    d0, _ = node()
    buffer = d0.allocate(64)
    buffer.fill(0)
    array = DeviceArray._of_bytes(buffer.address, 64)
    assert (array.shape, array.typestr, array.size) == ((64,), "B", 64)
    np.asarray(array[16:32])[:] = 7
    assert bytes(buffer) == bytes(16) + b"\7" * 16 + bytes(32)
    floats = np.asarray(array.configure(typestr="<f4", shape=(4, 4)))
    assert floats.dtype == np.float32 and floats.shape == (4, 4)
    array.configure(read_only=True)
    assert memoryview(array).readonly
    buffer.close()
    assert floats.nbytes == 64  # the view has the bytes
    with pytest.raises(pl.BadAddress):
        memoryview(array)


def test_hip_device_array_view_of_host_memory_keeps_array_alive() -> None:
    data = np.arange(8, dtype=np.uint8)
    alive = weakref.ref(data)
    view = memoryview(DeviceArray(data))
    del data
    gc.collect()
    assert alive() is not None and view.tolist() == list(range(8))
    del view
    gc.collect()
    assert alive() is None


def test_hip_types_unmapped_address_raises_bad_address() -> None:
    with pytest.raises(pl.BadAddress):
        memoryview(DeviceArray(64))
    with pytest.raises(pl.BadAddress):
        str(CStr(64))
    with pytest.raises(pl.BadAddress):
        PointerToInt(64).value  # noqa: B018
    assert str(CStr(None)) == "" and bytes(CStr(None)) == b""


def test_hip_device_array_configure_bad_setting_changes_nothing() -> None:
    array = DeviceArray(bytearray(8))
    before = repr(array)
    for settings in (
        {"typestr": "|u1", "shape": (8,)},
        {"typestr": "<f4", "shape": (8,)},
        {"shape": (8,), "stream": 0},
        {"shape": (-8,), "_force": True},
        {"typestr": "S"},
    ):
        with pytest.raises(ValueError):
            array.configure(**settings)
        assert repr(array) == before


def test_hip_cstr_converts_text_and_owns_allocated_memory() -> None:
    text = CStr("h\N{LATIN SMALL LETTER E WITH ACUTE}")
    assert (str(text), bytes(text), len(text), text[-1]) == ("h\xe9", b"h\xc3\xa9", 3, "\xe9")
    assert int(CStr(b"same")) == int(CStr("same"))
    copied = ctypes.create_string_buffer(b"raw address")
    assert str(CStr(ctypes.addressof(copied))) == "raw address"
    owner = CStr(None)
    owner.malloc(4)
    ctypes.memmove(int(owner), b"four", 4)
    assert str(owner) == "four"
    with pytest.raises(RuntimeError):
        owner.malloc(4)
    owner.free()
    assert owner.is_ptr_null
    with pytest.raises(RuntimeError):
        owner.free()
    with pytest.raises(ValueError):
        owner.malloc(-1)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, "M8[s]"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_hip_pointer_of_array_without_buffer_format_has_its_address(dtype: Any, order: Any) -> None:
    array = np.zeros((2, 4), dtype, order)
    pointer, described_array = Pointer(array), NDBuffer(array)
    assert int(pointer) == int(described_array) == array.ctypes.data
    assert (described_array.shape, described_array.itemsize, described_array.is_read_only) == (
        (2, 4),
        array.itemsize,
        False,
    )
    assert memoryview(described_array).nbytes == array.nbytes
    alive = weakref.ref(array)
    del array
    gc.collect()
    assert alive() is not None
    del pointer, described_array
    gc.collect()
    assert alive() is None


def test_hip_list_types_store_values_in_memory() -> None:
    numbers = ListOfInt([1, -2, 3])
    assert ctypes.string_at(int(numbers), 12) == np.array([1, -2, 3], np.int32).tobytes()
    scalar = PointerToInt([4])
    scalar.value = -9
    assert scalar.to_list() == [-9] and scalar.value == -9
    texts = ListOfPointer([CStr("a"), None, 5])
    assert [int(each) for each in texts][1:] == [0, 5]
    outside = ctypes.c_int(8)
    assert PointerToInt(outside).value == 8


def test_hip_structs_import_makes_no_struct() -> None:
    program = "import peerlane.dialects.hip.binding.structs as s\nprint(s._class_of.cache_info().currsize)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "0\n"
