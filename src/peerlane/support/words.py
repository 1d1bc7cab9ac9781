"""Integers of 64 bits, as programs give them."""

from __future__ import annotations

import operator

from peerlane.errors import BadArgument, InvalidValue

_WORD = 1 << 64


def checked_words(call: str, **values: object) -> list[int]:
    """Return the values as ints of 64 bits.

    Raises TypeError, InvalidValue: a value is not an integer, is negative, or exceeds 64 bits; the text names it.
    """
    words = []
    for name, value in values.items():
        if type(value) is int and 0 <= value < _WORD:
            words.append(value)
            continue
        if not hasattr(type(value), "__index__"):
            hint = "; take its address" if hasattr(value, "address") else ""
            raise TypeError(f"{call}: {name} must be an int, not {type(value).__name__}{hint}")
        number = operator.index(value)  # type: ignore[arg-type]  # it has __index__
        if not 0 <= number < _WORD:
            raise InvalidValue(
                f"{call}: {name} is {number}; valid are 0 to 2**64 - 1",
                call=call,
                detail=BadArgument(name, number, least=0, most=(1 << 64) - 1),
            )
        words.append(number)
    return words


_PITCHES = {"destination": "dst_pitch", "source": "src_pitch"}


def checked_pitch(name: str, pitch: int, width: int) -> int:
    """Return the pitch of one end of a rectangle; InvalidValue if it is less than the width."""
    (number,) = checked_words("copy_2d", **{f"{name} pitch": pitch})
    if number < width:
        raise InvalidValue(
            f"copy_2d: {name} pitch is {number:,} bytes, less than the width of {width:,}",
            call="copy_2d",
            detail=BadArgument(_PITCHES[name], number, least=width),
        )
    return number
