"""Arguments as the vendor's bindings read them: another type is a ``TypeError`` (facts/mooncake 2)."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

#: Gets the names of the call and of its parameter, and the value.
Reader = Callable[[str, str, Any], Any]
_WORDS = 1 << 64


def word(call: str, name: str, value: Any) -> int:
    """Return a number of 64 bits."""
    if type(value) is not int:
        if isinstance(value, float) or not hasattr(type(value), "__index__"):
            raise TypeError(f"{call}: {name} is an int, not {type(value).__name__} ({value!r:.60})")
        value = operator.index(value)
    if not 0 <= value < _WORDS:
        raise TypeError(f"{call}: {name} is a number of 0 to 2**64 - 1, not {value}")
    return int(value)


def words(call: str, name: str, values: Any) -> list[int]:
    """Return numbers of 64 bits."""
    if isinstance(values, (str, bytes, dict)) or not hasattr(type(values), "__getitem__"):
        raise TypeError(f"{call}: {name} is a list of ints, not {type(values).__name__} ({values!r:.60})")
    return [word(call, f"{name}[{at}]", value) for at, value in enumerate(values)]


def text(call: str, name: str, value: Any) -> str:
    """Return a text; bytes that are not UTF-8 become U+FFFD."""
    return content(call, name, value).decode(errors="replace")


def content(call: str, name: str, value: Any) -> bytes:
    """Return the bytes of a text, in UTF-8."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if not isinstance(value, str):
        raise TypeError(f"{call}: {name} is a str, not {type(value).__name__} ({value!r:.60})")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise TypeError(f"{call}: {name} has no UTF-8 ({value!a:.60}): {error.reason}") from None


def kind(wanted: type) -> Reader:
    """Return what reads an object of a class."""

    def read(call: str, name: str, value: Any) -> Any:
        if not isinstance(value, wanted):
            raise TypeError(
                f"{call}: {name} is a {wanted.__name__}, not {type(value).__name__} ({value!r:.60})"
            )
        return value

    return read


def optional(reader: Reader) -> Reader:
    """Return what reads None as None."""
    return lambda call, name, value: None if value is None else reader(call, name, value)
