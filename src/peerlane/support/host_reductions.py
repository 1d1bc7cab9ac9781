"""Reductions computed on the host, for back-ends that have none of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_UFUNCS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def combined(
    mine: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8], dtype: str, op: str
) -> npt.NDArray[np.uint8]:
    """Return the bytes of ``mine OP other``, computed as :func:`peerlane.reduce` documents."""
    with np.errstate(all="ignore"):
        result: npt.NDArray[Any] = _UFUNCS[op](_values(mine, dtype), _values(other, dtype))
        if dtype == "bfloat16":
            return _rounded(result).view(np.uint8)
        return result.astype(dtype, copy=False).view(np.uint8)


def _values(raw: npt.NDArray[np.uint8], dtype: str) -> npt.NDArray[Any]:
    if dtype == "bfloat16":
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    elements = raw.view(dtype)
    return elements.astype(np.float32) if dtype == "float16" else elements


def _rounded(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Round to bfloat16, to the nearest even; NaN stays NaN."""
    bits = values.view(np.uint32)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), (bits >> 16) | 0x40, nearest).astype(np.uint16)
