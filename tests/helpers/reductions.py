"""The results of reductions, computed by NumPy, and for bfloat16 by integers, for types of 8 bits by ml_dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
TYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"),
)
EIGHT_BITS: dict[str, Any] = {each: getattr(ml_dtypes, each) for each in ("float8_e4m3fn", "float8_e5m2")}
OPERATIONS = ("sum", "prod", "max", "min")
COMBINED = {"sum": np.add, "prod": np.multiply}
QUIET = {"float16": 0x200, "float32": 1 << 22, "float64": 1 << 51}


def expected(dtype: str, op: str, a: Array, b: Array) -> Array:
    """Return the result of a reduction of two byte arrays of a type; bfloat16 is computed by integers."""
    if dtype == "bfloat16":
        return _brain(op, a.view(np.uint16), b.view(np.uint16)).view(np.uint8)
    if dtype in EIGHT_BITS:
        return _of_eight_bits(EIGHT_BITS[dtype], op, a, b)
    x, y = a.view(dtype), b.view(dtype)
    if dtype[0] != "f":
        function = {**COMBINED, "max": np.maximum, "min": np.minimum}[op]
        return np.asarray(function(x, y)).view(np.uint8)
    with np.errstate(all="ignore"):
        if op in COMBINED:
            bits = f"u{x.dtype.itemsize}"
            quiet = (x.view(bits) | np.array(QUIET[dtype], bits)).view(dtype)
            return np.where(np.isnan(x), quiet, COMBINED[op](x, y)).view(np.uint8)
        better = {"max": np.greater, "min": np.less}[op](x, y)
        if dtype == "float16":
            better |= x == y
        return np.where(better | np.isnan(x), x, y).view(np.uint8)


def _brain(op: str, a: Array, b: Array) -> Array:
    wide = [(each.astype(np.uint32) << 16).view(np.float32) for each in (a, b)]
    x = expected("float32", op, *(each.view(np.uint8) for each in wide)).view(np.uint32).astype(np.uint64)
    nan = (x & 0x7FFFFFFF) > 0x7F800000
    rest, kept = x & 0xFFFF, x >> 16
    up = (rest > 0x8000) | ((rest == 0x8000) & (kept % 2 == 1))
    return np.where(nan, kept | 0x40, kept + up).astype(np.uint16)


def _of_eight_bits(kind: Any, op: str, a: Array, b: Array) -> Array:
    x, y = (each.view(kind).astype(np.float32) for each in (a, b))
    with np.errstate(all="ignore"):
        if op not in COMBINED:
            better = {"max": np.greater, "min": np.less}[op](x, y)
            return np.where(better | np.isnan(x), a, b)
        most = float(ml_dtypes.finfo(kind).max)
        result = np.clip(COMBINED[op](x, y), -most, most)
        return np.where(np.isnan(result), 0x7F, result.astype(kind).view(np.uint8)).astype(np.uint8)


def combined(dtype: str, op: str, a: bytearray, b: bytearray) -> bytes:
    """Return the bytes that a reduction of two byte strings gives."""
    return expected(dtype, op, *(np.frombuffer(bytes(each), np.uint8) for each in (a, b))).tobytes()


def special(dtype: str) -> Array:
    """Return the special values of a type as bytes: zeros, extremes, denormals, infinities, NaNs."""
    if dtype in EIGHT_BITS:
        return np.arange(256, dtype=np.uint8)
    width = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
    top = 1 << 8 * width - 1
    bits = [0, 1, 2, 3, top - 1, top, top + 1, 2 * top - 1]
    if "float" in dtype:
        mantissa = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}[dtype]
        one, infinity = (top >> 1) - (1 << mantissa), top - (1 << mantissa)
        sizes = [
            one,
            one + 1,
            one - 1,
            1 << mantissa,
            (1 << mantissa) - 1,
            infinity,
            infinity - 1,
            infinity + 1,
        ]
        sizes += [
            infinity + 3,
            infinity + (1 << mantissa - 1),
            infinity + (1 << mantissa - 1) + 5,
            3 * one // 2,
        ]
        bits += sizes + [top + each for each in sizes]
    return np.array(bits, f"u{width}")


def material(dtype: str, count: int, seed: int) -> tuple[Array, Array]:
    """Return two byte arrays: all pairs of special values, then random bits."""
    random, chosen = np.random.default_rng(seed), special(dtype)
    pairs = [each.ravel() for each in np.meshgrid(chosen, chosen)]
    rest = count * chosen.itemsize
    both = [
        np.concatenate([each.view(np.uint8), random.integers(0, 256, rest, np.uint8)])[:rest]
        for each in pairs
    ]
    return both[0], both[1]
