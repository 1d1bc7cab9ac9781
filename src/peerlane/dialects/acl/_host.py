"""``acl.util``: host memory (spec acl 2.10).  Device memory is never read here, but named."""

from __future__ import annotations

import ctypes
import math
import warnings
from typing import Any

import numpy as np

from peerlane import Kind, raw
from peerlane.dialects._call import Address, Int32, Object, Word
from peerlane.dialects.acl._state import acl, machine
from peerlane.errors import Error

_END = 1 << 64
_TYPES: dict[int, np.dtype[Any]] = {
    int(np.dtype(code).num): np.dtype(code) for code in np.typecodes["All"] if code not in "OSUV"
}
_CALLER = 3  # warn, body, wrapper, caller


@acl.value("acl.util.bytes_to_ptr")
def bytes_to_ptr(data: Object) -> int:
    """Return the address of the bytes object's own buffer (spec acl 2.10 [S])."""
    if not isinstance(data, bytes):
        raise ValueError(f"acl.util.bytes_to_ptr: needs bytes, not {type(data).__name__}")
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


@acl.value("acl.util.ptr_to_bytes")
def ptr_to_bytes(ptr: Address, size: Word) -> bytes:
    """Return a copy of ``size`` bytes of host memory (spec acl 2.10 [S])."""
    _check_host("acl.util.ptr_to_bytes", ptr, size)
    taken = np.empty(size, np.uint8)
    raw.copy(taken.ctypes.data, ptr, size)
    return taken.tobytes()


@acl.value("acl.util.numpy_to_ptr")
def numpy_to_ptr(array: Object) -> int:
    """Return the address of an array's data, with the binding's ``Warning`` (spec acl 2.10 [S])."""
    _warn_deprecated("numpy_to_ptr", "bytes_to_ptr")
    checked = _array("acl.util.numpy_to_ptr", array)
    if not checked.flags.c_contiguous:
        warnings.warn(
            f"acl.util.numpy_to_ptr: the array is not contiguous (strides {checked.strides}); the pointer leads "
            "to its first element only",
            Warning,
            stacklevel=_CALLER,
        )
    return int(checked.ctypes.data)


@acl.value("acl.util.numpy_contiguous_to_ptr")
def numpy_contiguous_to_ptr(array: Object) -> tuple[int, Any]:
    """Return the address of a contiguous array, and that array: a copy if need be (spec acl 2.10)."""
    _warn_deprecated("numpy_contiguous_to_ptr", "bytes_to_ptr")
    contiguous = np.require(_array("acl.util.numpy_contiguous_to_ptr", array), requirements="C")
    return int(contiguous.ctypes.data), contiguous


@acl.value("acl.util.ptr_to_numpy")
def ptr_to_numpy(ptr: Address, shape: Object, npy_type: Int32) -> Any:
    """Return an array on host memory, without a copy (spec acl 2.10).

    Pinned memory lives as long as the array; other memory is the caller's to keep.
    """
    _warn_deprecated("ptr_to_numpy", "ptr_to_bytes")
    call = "acl.util.ptr_to_numpy"
    if not isinstance(shape, tuple) or not all(isinstance(length, int) and length >= 0 for length in shape):
        raise ValueError(f"{call}: the shape must be a tuple of ints from 0 on, not {shape!r}")
    dtype = _TYPES.get(npy_type)
    if dtype is None:
        raise ValueError(
            f"{call}: {npy_type} is no numpy type number of plain numbers; see numpy.dtype(...).num"
        )
    size = math.prod(shape) * dtype.itemsize
    _check_host(call, ptr, size)
    if not size:
        return np.empty(shape, dtype)
    place = raw.locate(ptr)
    owner = machine.owned(place.base, host=True) if place.kind is Kind.PINNED else None
    if owner is not None:
        offset = ptr - place.base
        return owner[offset : offset + size].view(dtype, shape)
    return np.frombuffer(memoryview((ctypes.c_uint8 * size).from_address(ptr)), dtype).reshape(shape)


def _check_host(call: str, ptr: int, size: int) -> None:
    """Refuse what is not host memory of that size; the ends are read under the guard."""
    if not size:
        return
    if ptr + size > _END:
        raise ValueError(f"{call}: {size:,} bytes from {ptr:#x} on reach beyond the address space")
    try:
        place = raw.locate(ptr)
    except Error as error:
        raise ValueError(f"{call}: {error}") from None
    if place.kind is Kind.DEVICE:
        raise ValueError(
            f"{call}: {machine.describe(ptr)} is device memory, which the host cannot touch; copy it to host "
            "memory first: acl.rt.memcpy(host_ptr, size, device_ptr, size, 2)"
        )
    if place.kind is Kind.PINNED and ptr + size > place.base + place.size:
        raise ValueError(
            f"{call}: {size:,} bytes from {machine.describe(ptr)} on end {ptr + size - place.base - place.size:,} "
            "bytes beyond it"
        )
    probe = bytearray(1)
    view = (ctypes.c_char * 1).from_buffer(probe)
    for address in (ptr, ptr + size - 1):
        raw.copy(ctypes.addressof(view), address, 1)


def _array(call: str, value: object) -> np.ndarray[Any, Any]:
    if not isinstance(value, np.ndarray):
        raise ValueError(f"{call}: needs a numpy.ndarray, not {type(value).__name__}")
    return value


def _warn_deprecated(name: str, instead: str) -> None:
    warnings.warn(
        f"acl.util.{name} is deprecated by the vendor; use acl.util.{instead}",
        Warning,
        stacklevel=_CALLER + 1,
    )
