"""Objects of ctypes as host memory: each kind gives its bytes, except those that refer to Python objects."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest

import peerlane as pl

Node = Callable[..., tuple[pl.Device, ...]]


class Bits(ctypes.Structure):
    _fields_ = [("low", ctypes.c_int, 3), ("high", ctypes.c_int, 5)]


class Wide(ctypes.Structure):
    _fields_ = [("text", ctypes.c_wchar * 3), ("number", ctypes.c_longdouble), ("flag", ctypes.c_bool)]


class Pointers(ctypes.Structure):
    _fields_ = [("to", ctypes.POINTER(ctypes.c_int)), ("text", ctypes.c_char_p), ("bits", Bits * 2)]


class Packed(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"  # Python 3.14 requires the name
    _fields_ = [("byte", ctypes.c_char), ("number", ctypes.c_int)]


class Either(ctypes.Union):
    _fields_ = [("number", ctypes.c_int), ("wide", Wide)]


class Foreign(ctypes.BigEndianStructure):
    _fields_ = [("number", ctypes.c_int)]


class Nothing(ctypes.Structure):
    _fields_ = []


class O(ctypes.Structure):  # noqa: E742 - a name that looks like the format of a Python object
    _fields_ = [("O", ctypes.c_int)]


class Inner(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("byte", ctypes.c_char), ("held", ctypes.py_object)]


class Inherited(Inner):
    _fields_ = [("more", ctypes.c_int)]


class EitherHeld(ctypes.Union):
    _fields_ = [("number", ctypes.c_int), ("held", Inherited * 2)]


PLAIN = [
    ctypes.c_wchar,
    ctypes.c_wchar * 4,
    ctypes.c_wchar * 4 * 2,
    ctypes.c_void_p * 2,
    ctypes.c_char_p * 2,
    ctypes.c_wchar_p * 2,
    ctypes.POINTER(ctypes.c_int) * 2,
    ctypes.CFUNCTYPE(ctypes.c_int) * 2,
    ctypes.c_int * 0,
    Bits,
    Bits * 3,
    Wide,
    Pointers * 2,
    Packed * 3,
    Either,
    Foreign,
    Nothing,
    O,
]
HOLDING = [ctypes.py_object, ctypes.py_object * 2, Inner, Inner * 2, Inherited, EitherHeld]


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.__name__)
def test_ctypes_object_copied_to_device_and_back_keeps_bytes(
    node: Node, kind: type[ctypes.Structure]
) -> None:
    source, target = kind(), kind()
    size = ctypes.sizeof(kind)
    there = pl.as_buffer(source)
    assert (there.size, there.device) == (size, pl.Host())
    if not size:
        return
    assert there.address == ctypes.addressof(source)
    pattern = bytes(range(1, size + 1))
    ctypes.memmove(ctypes.addressof(source), pattern, size)
    d0, _ = node()
    on_device = d0.allocate(size)
    pl.copy(on_device, source)
    pl.copy(target, on_device)
    assert ctypes.string_at(ctypes.addressof(target), size) == pattern
    ctypes.memset(ctypes.addressof(source), 0, size)
    ctypes.memset(ctypes.addressof(target), 0, size)


@pytest.mark.parametrize("kind", HOLDING, ids=lambda kind: kind.__name__)
def test_as_buffer_of_ctypes_object_holding_python_objects_raises(kind: type[ctypes.Structure]) -> None:
    held = kind()
    for obj in (held, memoryview(held)):
        with pytest.raises(TypeError, match="holds Python objects"):
            pl.as_buffer(obj)


def test_as_buffer_of_strided_view_raises_with_strides() -> None:
    with pytest.raises(pl.InvalidValue, match=r"not contiguous.*strides \(8,\)"):
        pl.as_buffer(memoryview((ctypes.c_int * 4)())[::2])
    with pytest.raises(pl.InvalidValue, match=r"strides \(-1,\)"):
        pl.as_buffer(memoryview(b"abc")[::-1])


def test_fill_of_read_only_ctypes_view_raises_access_denied() -> None:
    with pytest.raises(pl.AccessDenied, match="read-only"):
        pl.fill(memoryview((ctypes.c_wchar * 2)()).toreadonly(), 1)
