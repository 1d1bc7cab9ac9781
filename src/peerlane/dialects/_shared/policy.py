"""Policies: environment variables whose value is one of a few words; the first word is the default."""

from __future__ import annotations

import os
from collections.abc import Sequence

from peerlane.errors import BadArgument, Fault, InvalidValue


def chosen(variable: str, choices: Sequence[str]) -> str:
    """Return the value of a variable, or the first choice if it is not set.

    Raises
    ------
    InvalidValue
        The value of the variable is not one of the choices.
    """
    value = os.environ.get(variable) or choices[0]
    if value not in choices:
        raise no_choice(variable, value, choices)
    return value


def no_choice(variable: str, value: str, choices: Sequence[str], verb: str = "is") -> InvalidValue:
    """Return the refusal of a value; ``verb`` is ``has`` if the variable has several."""
    return InvalidValue(
        f"{variable} {verb} {value!r}; valid are {', '.join(choices)}",
        fault=Fault.BAD_CONFIG,
        detail=BadArgument(variable, value, choices=tuple(choices)),
    )
