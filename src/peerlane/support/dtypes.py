"""Element types that NumPy alone does not have: those of ml_dtypes and torch."""

from __future__ import annotations

import importlib
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from peerlane.errors import Refused, Unsupported
from peerlane.support.spelling import did_you_mean

if TYPE_CHECKING:
    import numpy as np

_SHORT = {"bf": "bfloat", "fp": "float", "f": "float", "i": "int", "s": "int", "u": "uint"}
# The types that NumPy has only with the package ml_dtypes.
_EXTENSIONS = frozenset(
    (
        *("bfloat16", "bcomplex32", "complex32", "int1", "int2", "int4", "uint1", "uint2", "uint4"),
        *(
            "float4_e2m1fn",
            "float6_e2m3fn",
            "float6_e3m2fn",
            "float8_e3m4",
            "float8_e4m3",
            "float8_e4m3b11fnuz",
        ),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    )
)


def name_of(dtype: object) -> str | None:
    """Return the name of another library's element type (``"bfloat16"`` for ``torch.bfloat16``), or None.

    Such a type prints as the library and the name, so that nothing need be imported.
    """
    library, dot, name = str(dtype).rpartition(".")
    ours = type(dtype).__module__.partition(".")[0]
    return name if dot and library.partition(".")[0] == ours else None


def hint_for(dtype: object, names: Collection[str]) -> str:
    """Return what an error adds behind another library's name of a type: of ``fp32`` and ``torch.float32``."""
    name = str(dtype).rpartition(".")[2]
    short = re.fullmatch(f"({'|'.join(_SHORT)})([0-9]+)", name)
    full = f"{_SHORT[short[1]]}{short[2]}" if short else name
    return f" (did you mean {full!r}?)" if full in names else ""


def extension(call: str, dtype: Any) -> np.dtype[Any]:
    """Return the NumPy type for a name of ml_dtypes or a type of torch, which ``numpy.dtype()`` alone does not take.

    Raises Unsupported: the type needs ml_dtypes, which is not installed.
    Raises TypeError: there is no such type.
    """
    import numpy as np

    name = dtype if isinstance(dtype, str) else name_of(dtype)
    if name is None:
        raise TypeError(
            f"{call}: dtype must be what numpy.dtype() takes, the name of a type of ml_dtypes, or a type of torch, "
            f"not {dtype!r}{'; a shape stands behind the type' if isinstance(dtype, tuple) else ''}"
        )
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        element = getattr(importlib.import_module("ml_dtypes"), name, None)
    except ImportError:
        if name in _EXTENSIONS:
            raise Unsupported(
                f"{call}: NumPy has {name} only with the package ml_dtypes, which is not installed; install it (pip "
                "install ml_dtypes), or take the bytes as uint8",
                call=call,
                detail=Refused(reason="not_installed", name=name, package="ml_dtypes"),
            ) from None
        element = None
    if not (isinstance(element, type) and issubclass(element, np.generic)):
        known = {each for each in (*np.sctypeDict, *_EXTENSIONS) if isinstance(each, str)}
        hint = hint_for(name, known) or did_you_mean(name, known)
        raise TypeError(
            f"{call}: neither NumPy nor ml_dtypes has the type {dtype!s}{hint}; take the bytes as uint8"
        )
    return np.dtype(element)
