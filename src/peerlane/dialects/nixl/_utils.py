"""``nixl._utils``: memory by address for tests (facts/nixl 1)."""

from __future__ import annotations

import ctypes

_libc = ctypes.CDLL(None)
_libc.malloc.restype = ctypes.c_void_p
_libc.malloc.argtypes = [ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]


def malloc_passthru(size: int) -> int:
    """Return the address of ``size`` new bytes."""
    return int(_libc.malloc(size) or 0)


def free_passthru(address: int) -> None:
    """Free what :func:`malloc_passthru` returned."""
    _libc.free(address)


def ba_buf(address: int, size: int) -> None:
    """Fill memory with the byte 0xBA."""
    ctypes.memset(address, 0xBA, size)


def verify_transfer(first: int, second: int, size: int) -> None:
    """Raise AssertionError unless both addresses have the same bytes."""
    one, other = ctypes.string_at(first, size), ctypes.string_at(second, size)
    if one != other:
        at = next(i for i in range(size) if one[i] != other[i])
        raise AssertionError(
            f"byte {at} of {size:,} differs: {one[at]:#04x} at {first:#x}, {other[at]:#04x} at {second:#x}"
        )
