"""``acl.util``: host memory (facts/acl 2.10).  Addresses of device memory are refused, and named in the message."""

from __future__ import annotations

import ctypes
import math
import os
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

from peerlane import Kind
from peerlane.diagnostics.memory.addresses import is_mapped
from peerlane.dialects._shared.call import Address, Int32, Object, Word, as_index
from peerlane.dialects.acl._codes import REMEDIES
from peerlane.dialects.acl._state import acl, machine
from peerlane.errors import Error, Fault
from peerlane.memory import raw

if TYPE_CHECKING:
    import numpy as np

_END = 1 << 64
_CALLER = 3  # warn, body, wrapper, caller
_PIECE = 16 << 20
_LIBC = ctypes.CDLL(None)
_LIBC.write.restype = ctypes.c_ssize_t


@acl.value("acl.util.bytes_to_ptr")
def bytes_to_ptr(data: Object) -> int:
    """Return the address of the bytes object's own buffer (facts/acl 2.10).

    Gives: bare int
    Refuses: `ValueError`
    Basis: S
    """
    if not isinstance(data, bytes):
        raise ValueError(f"acl.util.bytes_to_ptr: needs bytes, not {type(data).__name__}")
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


@acl.value("acl.util.ptr_to_bytes")
def ptr_to_bytes(ptr: Address, size: Word) -> bytes:
    """Return a copy of ``size`` bytes of host memory (facts/acl 2.10).

    Gives: bare bytes
    Refuses: `ValueError`
    Basis: S; C for device addresses
    """
    import numpy as np

    try:
        machine.check_fork()
    except Error:
        return _of_forked("acl.util.ptr_to_bytes", ptr, size)
    _check_host("acl.util.ptr_to_bytes", ptr, size)
    taken = np.empty(size, np.uint8)
    raw.copy(taken.ctypes.data, ptr, size)
    return taken.tobytes()


@acl.value("acl.util.numpy_to_ptr")
def numpy_to_ptr(array: Object) -> int:
    """Return the address of an array's data, with the binding's ``Warning`` (facts/acl 2.10).

    Gives: bare int
    Refuses: `ValueError`; warns
    Basis: S
    """
    warnings.warn(
        "acl.util.numpy_to_ptr is deprecated by the vendor; use acl.util.bytes_to_ptr",
        Warning,
        stacklevel=_CALLER,
    )
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
    """Return the address of a contiguous array, and that array: a copy if need be (facts/acl 2.10).

    Gives: bare int, array
    Refuses: `ValueError`
    Basis: S
    """
    import numpy as np

    contiguous = np.require(_array("acl.util.numpy_contiguous_to_ptr", array), requirements="C")
    return int(contiguous.ctypes.data), contiguous


@acl.value("acl.util.ptr_to_numpy")
def ptr_to_numpy(ptr: Address, shape: Object, npy_type: Int32) -> Any:
    """Return an array on host memory, without a copy (facts/acl 2.10).

    The array keeps pinned memory alive; the caller must keep other memory alive.

    Gives: bare array
    Refuses: `ValueError`
    Basis: S; C for device addresses
    """
    call = "acl.util.ptr_to_numpy"
    lengths = _lengths(call, shape)
    dtype = _types().get(npy_type)
    if dtype is None:
        raise ValueError(
            f"{call}: {npy_type} is not a numpy type number of plain numbers; see numpy.dtype(...).num"
        )
    size = math.prod(lengths) * dtype.itemsize
    _check_host(call, ptr, size)
    try:
        return _array_on(ptr, lengths, dtype, size)
    except (
        OverflowError,
        TypeError,
        ValueError,
    ) as error:  # numpy's own limits: dimensions, lengths beside a 0
        raise ValueError(f"{call}: numpy makes no array of shape {lengths}: {error}") from None


def _lengths(call: str, shape: object) -> tuple[int, ...]:
    """Return the shape as ints; a bool counts as 0 or 1, as for every int of the binding."""
    if isinstance(shape, tuple):
        try:
            lengths = tuple(as_index(length) for length in shape)
        except TypeError:
            pass
        else:
            if all(length >= 0 for length in lengths):
                return lengths
    raise ValueError(f"{call}: the shape must be a tuple of ints from 0 on, not {shape!r}")


@cache
def _types() -> dict[int, np.dtype[Any]]:
    """Return NumPy's types of plain numbers by their numbers."""
    import numpy as np

    return {int(np.dtype(code).num): np.dtype(code) for code in np.typecodes["All"] if code not in "OSUV"}


def _array_on(ptr: int, shape: tuple[int, ...], dtype: np.dtype[Any], size: int) -> np.ndarray[Any, Any]:
    import numpy as np

    if not size:
        return np.empty(shape, dtype)
    location = raw.locate(ptr)
    owner = machine.owned(location.base, host=True) if location.kind is Kind.PINNED else None
    if owner is not None:
        offset = ptr - location.base
        return owner[offset : offset + size].view(dtype, shape)
    return np.frombuffer(memoryview((ctypes.c_uint8 * size).from_address(ptr)), dtype).reshape(shape)


def _check_host(call: str, ptr: int, size: int) -> None:
    """Refuse addresses that are not host memory of that size."""
    if not size:
        return
    if ptr + size > _END:
        raise ValueError(f"{call}: {size:,} bytes from {ptr:#x} on reach beyond the address space")
    try:
        location = raw.locate(ptr)
    except Error as error:
        raise ValueError(f"{call}: {error}") from None
    if location.kind is Kind.DEVICE:
        raise ValueError(
            f"{call}: {machine.describe(ptr)} is device memory, which the host cannot touch; copy it to host "
            "memory first: acl.rt.memcpy(host_ptr, size, device_ptr, size, 2)"
        )
    if location.kind is Kind.PINNED and ptr + size > location.base + location.size:
        raise ValueError(
            f"{call}: {size:,} bytes from {machine.describe(ptr)} on end "
            f"{ptr + size - location.base - location.size:,} bytes beyond it"
        )
    for address in (ptr, ptr + size - 1):
        if not is_mapped(address):
            raise ValueError(
                f"{call}: {address:#x} is not an address of host memory: nothing is mapped there"
            )


def _of_forked(call: str, ptr: int, size: int) -> bytes:
    """Read memory in a forked child, through the system, which refuses addresses that are not mapped."""
    with open(os.memfd_create("peerlane-read"), "w+b", buffering=0) as copied:  # noqa: PTH123
        done = 0
        while done < size:
            at = ptr + done
            written = _LIBC.write(
                copied.fileno(), ctypes.c_void_p(at), ctypes.c_size_t(min(size - done, _PIECE))
            )
            if written <= 0 or at >= _END:
                raise ValueError(
                    f"{call}: {f'{at:#x}' if at else 'NULL (0)'} is not host memory of this process, which was forked"
                    f" after its parent had used a device and has none of its memory; {REMEDIES[Fault.FORKED]}"
                ) from None
            done += written
        copied.seek(0)
        return copied.read()


def _array(call: str, value: object) -> np.ndarray[Any, Any]:
    import numpy as np

    if not isinstance(value, np.ndarray):
        raise ValueError(f"{call}: needs a numpy.ndarray, not {type(value).__name__}")
    return value
