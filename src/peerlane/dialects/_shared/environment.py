"""Environment variables of vendors: a choice of a few words, and a list of devices."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from peerlane.errors import BadArgument, Fault, InvalidValue


def chosen(variable: str, choices: Sequence[str]) -> str:
    """Return the value of a variable, or the first choice if it is not set.

    Raises InvalidValue: the value of the variable is not one of the choices.
    """
    value = os.environ.get(variable) or choices[0]
    if value not in choices:
        raise no_choice(variable, value, choices)
    return value


def rule(variable: str, name: str, choices: Sequence[str]) -> str:
    """Return the rule of a name in a variable with several (``"kinds=checked,peers=node"``), else its first choice.

    ``choices``: each valid rule, ``"name=value"``; the first one of a name is the default.
    Raises InvalidValue: the variable has a rule that is not one of the choices.
    """
    words = [word.strip() for word in os.environ.get(variable, "").split(",") if word.strip()]
    for word in words:
        if word not in choices:
            raise no_choice(variable, word, choices, "has")
    return next(each for each in (*words, *choices) if each.startswith(f"{name}="))


def no_choice(variable: str, value: str, choices: Sequence[str], verb: str = "is") -> InvalidValue:
    """Return the refusal of a value; ``verb`` is ``has`` if the variable has several."""
    return InvalidValue(
        f"{variable} {verb} {value!r}; valid are {', '.join(choices)}",
        fault=Fault.BAD_CONFIG,
        detail=BadArgument(variable, value, choices=tuple(choices)),
    )


def positions(text: str, count: int, position_of: Callable[[str], int | None]) -> Iterator[int]:
    """Yield the positions that the entries of a list name, until an entry names none of ``count`` devices."""
    for entry in text.split(","):
        position = position_of(entry)
        if position is None or not 0 <= position < count:
            return
        yield position
