"""Results of calls: texts, handles, arrays, and structs as the chosen version of hip-python has them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from peerlane.dialects.hip.binding import facts, real_name, structs
from peerlane.dialects.hip.binding.types import CStr, DeviceArray, Pointer
from peerlane.dialects.hip.policy import policy

_TEXT_SINCE = (10, 0)  # before it names were bytes, and bytes ended at their first NUL (facts/hip 0.6)


def struct(name: str) -> Any:
    """Return the class of a struct or a handle, as the chosen version has it."""
    return structs.struct(name, as_text=policy.version >= _TEXT_SINCE)


def put(target: Any, name: str, data: bytes) -> None:
    """Write the bytes of a struct's field, also of one that programs cannot set."""
    for field, _, _, offset, nbytes in facts()["structs"][real_name(target._name())]["fields"]:
        if field == name:
            assert len(data) <= nbytes, name
            ctypes.memmove(int(target) + offset, data, len(data))
            return
    raise KeyError(name)


def put_fields(target: Any, fields: Mapping[str, Any]) -> None:
    """Write whole numbers to fields of a struct, and to those of structs within it."""
    sizes = {
        field: nbytes for field, _, _, _, nbytes in facts()["structs"][real_name(target._name())]["fields"]
    }
    for name, value in fields.items():
        if isinstance(value, Mapping):
            put_fields(getattr(target, name), value)
        else:
            put(target, name, value.to_bytes(sizes[name], "little"))


def text(value: str) -> CStr:
    """Return a C string of its own."""
    return CStr(value)


def handle(name: str, number: int) -> Any:
    """Return a handle: ``handle("ihipStream_t", 64)``."""
    return struct(name).fromObj(number)


def device_array(address: int, nbytes: int) -> DeviceArray | None:
    """Return what hipMalloc does: bytes at an address, None for NULL."""
    return DeviceArray._of_bytes(address, nbytes) if address else None


def pointer(address: int) -> Pointer | None:
    """Return a pointer, None for NULL."""
    return Pointer(address) if address else None


def fill(target: Any, source: Any) -> None:
    """Copy a struct into the one that a program of hip-python 7.2 passed (facts/hip 0.2)."""
    target._write(0, 0, ctypes.string_at(int(source), source.c_sizeof()))
