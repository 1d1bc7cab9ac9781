"""Structs and handles of the hip dialect, where the measured expressions do not cover them."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from typing import Any

import pytest

import peerlane as pl
from helpers.each import for_each
from helpers.promises import Node
from peerlane.dialects.hip.binding import facts
from peerlane.dialects.hip.binding.enums import enumeration
from peerlane.dialects.hip.binding.structs import struct
from peerlane.dialects.hip.binding.types import DeviceArray, Pointer

pytestmark = pytest.mark.any_schedule

NAMES = sorted(facts()["structs"])


def raw_bytes(instance: Any) -> bytes:
    return ctypes.string_at(int(instance), instance.c_sizeof())


@for_each("name", NAMES)
def test_hip_struct_fields_equal_those_of_the_wheel(name: str) -> None:
    described, kind = facts()["structs"][name], struct(name)
    assert kind.PROPERTIES() == [field[0] for field in described["fields"]]
    assert kind.__name__ == name and issubclass(kind, Pointer)
    if not described["fields"]:
        assert int(kind(5)) == 5 and not hasattr(kind, "c_sizeof")
        return
    instance = kind()
    assert instance.c_sizeof() == described["size"] and len(raw_bytes(instance)) == described["size"]
    for field, _, settable, *_ in described["fields"]:
        assert hasattr(kind, f"get_{field}") and hasattr(kind, f"set_{field}") == settable
        if not settable:
            with pytest.raises(AttributeError):
                setattr(instance, field, 0)


@for_each("name", [each for each in NAMES if facts()["structs"][each]["fields"]])
def test_hip_struct_number_fields_lie_at_measured_offsets(name: str) -> None:
    for field, kind, settable, offset, nbytes in facts()["structs"][name]["fields"]:
        if not settable or kind.startswith(("enum", "bit", "float", "double")):
            continue
        instance = struct(name).allocate()
        setattr(instance, field, 65)
        expected = bytearray(instance.c_sizeof())
        expected[offset : offset + nbytes] = (65).to_bytes(nbytes, "little")
        assert raw_bytes(instance) == expected
        assert int(getattr(instance, field)) == 65


def test_hip_struct_alias_names_give_one_class() -> None:
    assert struct("hipStream_t") is struct("ihipStream_t")
    assert struct("hipExtent") is not struct("hipExtent", as_text=False)
    with pytest.raises(KeyError):
        struct("hipNoSuchThing")


def test_hip_struct_from_eight_threads_gives_one_class() -> None:
    structs: list[type] = []
    threads = [threading.Thread(target=lambda: structs.append(struct("hipMemPoolProps"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(structs) == 8 and len(set(structs)) == 1


def test_hip_struct_nested_struct_shares_memory_and_keeps_it_alive() -> None:
    prop = struct("hipMemAllocationProp")()
    prop.location.id = 3
    prop.location.type = enumeration("hipMemLocationType")["hipMemLocationTypeDevice"]
    assert raw_bytes(prop)[8:16] == b"\1\0\0\0\3\0\0\0"
    location, block = prop.location, weakref.ref(prop._kept)
    del prop
    gc.collect()
    assert block() is not None and location.id == 3
    del location
    gc.collect()
    assert block() is None


def test_hip_struct_bit_fields_change_independently() -> None:
    arch = struct("hipDeviceArch_t")(hasDoubles=1, hasWarpVote=1)
    assert raw_bytes(arch) == b"\x80\x01\0\0"
    arch.hasDoubles = 0
    assert (arch.hasDoubles, arch.hasWarpVote) == (0, 1)


def test_hip_struct_enumeration_field_without_0_raises_when_unset() -> None:
    operation = enumeration("hipStreamBatchMemOpType")["hipStreamMemOpWriteValue64"]
    instance = struct("hipStreamBatchMemOpParams")(operation=operation)
    assert instance.writeValue.operation is operation and instance.pad[0] & 0xFFFFFFFF == int(operation)
    with pytest.raises(ValueError):
        struct("hipStreamBatchMemOpParams")().operation  # noqa: B018


def test_hip_struct_text_fields_are_str_or_bytes_by_version() -> None:
    data = bytearray(1472)
    data[:5] = b"gfx\0z"
    assert struct("hipDeviceProp_t").fromObj(data).name == "gfx"
    assert struct("hipDeviceProp_t", as_text=False).fromObj(data).name == b"gfx"
    handle = b"ab\0" + bytes(range(61))
    assert struct("hipIpcMemHandle_t").fromObj(handle).reserved == handle
    assert struct("hipIpcMemHandle_t", as_text=False).fromObj(handle).reserved == b"ab"


def test_hip_struct_over_device_memory_raises_after_memory_ends(node: Node) -> None:
    d0, _ = node()
    kind = struct("hipExtent")
    with d0.allocate(48) as buffer:
        buffer.fill(0)
        instance = kind.fromObj(DeviceArray._of_bytes(buffer.address, 48))
        instance.set_height(1, 9)
        assert bytes(buffer) == bytes(32) + b"\t" + bytes(15)
    with pytest.raises(pl.BadAddress):
        instance.get_height(1)
    with pytest.raises(pl.BadAddress):
        kind.fromObj(64).width  # noqa: B018
    for null in (None, 0):
        with pytest.raises(ValueError, match="NULL"):
            kind.fromObj(null).width  # noqa: B018


def test_hip_struct_access_beyond_its_memory_raises_index_error() -> None:
    kind = struct("hipExtent")
    three = kind.allocate(3)
    three.set_depth(2, 5)
    assert three.get_depth(2) == 5
    for at in (-1, 3):
        with pytest.raises(IndexError):
            three.get_depth(at)
        with pytest.raises(IndexError):
            three.set_depth(at, 1)
    with pytest.raises(IndexError):
        struct("hipIpcMemHandle_t").fromObj(bytes(63)).reserved  # noqa: B018


def test_hip_struct_pointer_field_keeps_object_alive() -> None:
    data = bytearray(8)
    instance = struct("hipPointerAttribute_t")(devicePointer=data)
    gc.collect()
    with pytest.raises(BufferError):
        data.append(1)
    structs = instance.devicePointer
    instance.devicePointer = None
    assert instance.devicePointer.is_ptr_null
    with pytest.raises(BufferError):
        data.append(1)  # `found` is alive
    assert int(structs)


def test_hip_handle_from_obj_accepts_every_form_of_number() -> None:
    stream = struct("hipStream_t")
    for value, number in (
        (5, 5),
        (None, 0),
        (ctypes.c_void_p(7), 7),
        (struct("hipEvent_t")(3), 3),
        (Pointer(9), 9),
    ):
        assert int(stream.fromObj(value)) == number
    assert stream.fromObj(stream(5)).as_c_void_p().value == 5
    assert stream().is_ptr_null and not stream()
    with pytest.raises(TypeError):
        stream.fromObj("a")
