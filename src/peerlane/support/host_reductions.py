"""Reductions computed on the host, for back-ends that have none of their own."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

_UFUNCS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
#: Of the types of 8 bits: those of the fraction, the exponent's bias, the largest number, the first that is none.
_EIGHT_BITS = {"float8_e4m3fn": (3, 7, 0x7E, 0x7F), "float8_e5m2": (2, 15, 0x7B, 0x7D)}
_NO_NUMBER = 0x7F


def combined(
    mine: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8], dtype: str, op: str
) -> npt.NDArray[np.uint8]:
    """Return the bytes of ``mine OP other``, computed as :func:`peerlane.reduce` documents."""
    with np.errstate(all="ignore"):
        left, right = _values(mine, dtype), _values(other, dtype)
        if dtype in _EIGHT_BITS and op in ("max", "min"):
            is_mine = left > right if op == "max" else left < right
            return np.where(is_mine | np.isnan(left), mine, other)
        return rounded(_UFUNCS[op](left, right), dtype)


def rounded(values: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.uint8]:
    """Return the bytes of values of a type, each rounded to the nearest, to the even one of two; NaN stays NaN."""
    if dtype in _EIGHT_BITS:
        return _rounded_to_eight_bits(values, dtype)
    elements: npt.NDArray[Any]
    if dtype == "bfloat16":
        bits = values.astype(np.float32, copy=False).view(np.uint32)
        nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        elements = np.where(np.isnan(values), (bits >> 16) | 0x40, nearest).astype(np.uint16)
    else:
        elements = values.astype(dtype, copy=False)
    raw: npt.NDArray[np.uint8] = elements.view(np.uint8)
    return raw


def _values(raw: npt.NDArray[np.uint8], dtype: str) -> npt.NDArray[Any]:
    if dtype in _EIGHT_BITS:
        values: npt.NDArray[np.float32] = np.where(raw < 0x80, 1, -1) * _sizes(dtype)[raw & 0x7F]
        return values.astype(np.float32, copy=False)
    if dtype == "bfloat16":
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    elements = raw.view(dtype)
    return elements.astype(np.float32) if dtype == "float16" else elements


@cache
def _sizes(dtype: str) -> npt.NDArray[np.float32]:
    """Return what the first 128 elements of a type stand for, those without the sign."""
    mantissa, bias, largest, first_nan = _EIGHT_BITS[dtype]
    bits = np.arange(0x80)
    exponent, fraction = bits >> mantissa, bits & (1 << mantissa) - 1
    normal = np.ldexp(1.0 + fraction / (1 << mantissa), exponent - bias)
    values = np.where(exponent > 0, normal, np.ldexp(1.0 * fraction, 1 - bias - mantissa))
    values[largest + 1 :], values[first_nan:] = np.inf, np.nan
    sizes: npt.NDArray[np.float32] = values.astype(np.float32)
    return sizes


def _rounded_to_eight_bits(values: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.uint8]:
    largest = _EIGHT_BITS[dtype][2]
    numbers = _sizes(dtype)[: largest + 1].astype(np.float64)
    sizes = np.minimum(np.abs(values).astype(np.float64), numbers[-1])
    above = np.minimum(np.searchsorted(numbers, sizes), largest)
    below = np.maximum(above - 1, 0)
    over, under = numbers[above] - sizes, sizes - numbers[below]
    bits = np.where((under < over) | ((under == over) & (below % 2 == 0)), below, above)
    signed = bits | np.where(np.signbit(values), 0x80, 0)
    return np.where(np.isnan(values), _NO_NUMBER, signed).astype(np.uint8)
