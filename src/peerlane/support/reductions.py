"""Element types and operations of reductions by name, and the texts of their refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peerlane.errors import BadArgument, InvalidValue, Refused
from peerlane.support import dtypes

if TYPE_CHECKING:
    import numpy.typing as npt

# In the order of native code.
_TYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"),
)
_WIDTHS = (1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 1, 1)
_OPERATIONS = ("sum", "prod", "max", "min")
_NUMBERS = {
    (dtype, op): number
    for number, (dtype, op) in enumerate((dtype, op) for dtype in _TYPES for op in _OPERATIONS)
}


def number_of(call: str, dtype: npt.DTypeLike, op: str) -> int:
    """Return the number by which native code knows a reduction.

    Raises InvalidValue: there is no such type or operation.
    Raises TypeError: ``dtype`` is None, or neither a type that ``numpy.dtype()`` takes nor a type of torch; ``op`` is
        not a str.
    """
    try:
        return _NUMBERS[dtype, op]  # type: ignore[index]  # any other pair is not in the table
    except (KeyError, TypeError):
        pass
    if not isinstance(op, str):
        raise TypeError(f"{call}: op must be a str, not {type(op).__name__}")
    if op not in _OPERATIONS:
        raise InvalidValue(
            f"{call}: op is {op!r}; valid are {', '.join(_OPERATIONS)}",
            call=call,
            detail=BadArgument("op", op, choices=tuple(_OPERATIONS)),
        )
    return _NUMBERS[_name(call, dtype), op]


def names_of(number: int) -> tuple[str, str]:
    """Return the names of type and operation for a number of :func:`number_of`."""
    return _TYPES[number // len(_OPERATIONS)], _OPERATIONS[number % len(_OPERATIONS)]


def is_number(number: int) -> bool:
    """Return whether a number stands for a reduction."""
    return 0 <= number < len(_NUMBERS)


def width_of(number: int) -> int:
    """Return the bytes of an element for a number of :func:`number_of`."""
    return _WIDTHS[number // len(_OPERATIONS)]


def _name(call: str, dtype: Any) -> str:
    if isinstance(dtype, str) and dtype in _TYPES:
        return dtype
    if dtype is None:  # NumPy takes None as float64, which nobody means
        raise TypeError(f"{call}: dtype must be the name of a type or a NumPy dtype, not None")
    import numpy as np

    try:
        element = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        name = dtype if isinstance(dtype, str) else dtypes.name_of(dtype)
        if name is None:
            raise TypeError(f"{call}: dtype must be the name of a type or a NumPy dtype: {error}") from error
        if name not in _TYPES:
            raise _no_type(call, name) from None
        return name
    if not element.isnative or element.name not in _TYPES:
        raise _no_type(call, element.str if not element.isnative else element.name)
    return str(element.name)


def _no_type(call: str, dtype: str) -> InvalidValue:
    return InvalidValue(
        f"{call}: dtype is {dtype!r}{dtypes.hint_for(dtype, _TYPES)}; valid are {', '.join(_TYPES)}, in this "
        "machine's byte order",
        call=call,
        detail=BadArgument("dtype", dtype, choices=tuple(_TYPES)),
    )


def misaligned(role: str, address: int, width: int) -> InvalidValue:
    """Return the exception for an address that is not a multiple of an element's size."""
    end = "destination" if role == "dst" else "source"
    return _refused(
        f"the {end} address {address:#x} is not a multiple of {width}, the bytes of an element",
        Refused(reason="misaligned", role=role, address=address, width=width),
    )


def partly_overlapping(address: int, other: int, size: int) -> InvalidValue:
    """Return the exception for source and destination that overlap and are not the same."""
    return _refused(
        f"{size:,} bytes at {address:#x} and as many at {other:#x} overlap and are not the same; use one address "
        "for both, or copy one of them away first",
        Refused(reason="partly_overlapping", dst=address, src=other, size=size),
    )


def no_whole_elements(size: int, width: int) -> InvalidValue:
    """Return the exception for a size that is not a whole number of elements."""
    return _refused(
        f"{size:,} bytes are not a whole number of elements of {width} bytes; {size % width} are left over",
        Refused(reason="no_whole_elements", size=size, width=width),
    )


def _refused(text: str, detail: Refused) -> InvalidValue:
    return InvalidValue(f"reduce: {text}", call="reduce", detail=detail)
