"""Element types that NumPy alone does not have: those of ml_dtypes and torch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from peerlane.errors import Refused, Unsupported

if TYPE_CHECKING:
    import numpy as np

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
            f"not {dtype!r}"
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
        raise TypeError(
            f"{call}: neither NumPy nor ml_dtypes has the type {dtype!s}; take the bytes as uint8"
        )
    return np.dtype(element)
