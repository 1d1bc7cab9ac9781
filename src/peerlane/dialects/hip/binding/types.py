"""Pointers, arrays and lists: served as ``rocm.bindings.util.types`` and ``hip._util.types``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peerlane.dialects.hip.binding import lists
from peerlane.dialects.hip.binding.arrays import DeviceArray, NDBuffer
from peerlane.dialects.hip.binding.lists import CStr, ListOfBytes, ListOfPointer
from peerlane.dialects.hip.binding.pointers import Pointer, address_of, extent_of, view_of

if TYPE_CHECKING:
    ListOfInt: Any
    ListOfLong: Any
    ListOfUnsigned: Any
    ListOfUnsignedLong: Any
    ListOfInt64: Any
    ListOfUInt64: Any
    PointerToInt: Any
    PointerToLong: Any
    PointerToUnsigned: Any
    PointerToUnsignedLong: Any
    PointerToInt64: Any
    PointerToUInt64: Any

__all__ = [
    "CStr",
    "DeviceArray",
    "ListOfBytes",
    "ListOfInt",
    "ListOfInt64",
    "ListOfLong",
    "ListOfPointer",
    "ListOfUInt64",
    "ListOfUnsigned",
    "ListOfUnsignedLong",
    "NDBuffer",
    "Pointer",
    "PointerToInt",
    "PointerToInt64",
    "PointerToLong",
    "PointerToUInt64",
    "PointerToUnsigned",
    "PointerToUnsignedLong",
    "address_of",
    "extent_of",
    "view_of",
]

globals().update({name: getattr(lists, name) for name in __all__ if name.startswith(("ListOf", "PointerTo"))})
