"""Whether mistakes that the vendor lets pass are refused: ``PEERLANE_NIXL_POLICY`` (facts/nixl 9)."""

from __future__ import annotations

import os

from peerlane.errors import BadArgument, Fault, InvalidValue

VARIABLE = "PEERLANE_NIXL_POLICY"
REFUSED = f"the vendor lets this pass; {VARIABLE}=vendor does too"

_CHOICES = ("strict", "vendor")


def is_strict() -> bool:
    """Return whether mistakes are refused that the vendor lets pass: unless ``PEERLANE_NIXL_POLICY=vendor``.

    Raises
    ------
    InvalidValue
        The variable has another value than ``strict`` and ``vendor``.
    """
    chosen = os.environ.get(VARIABLE) or _CHOICES[0]
    if chosen not in _CHOICES:
        raise InvalidValue(
            f"{VARIABLE} is {chosen!r}; valid are {', '.join(_CHOICES)}",
            fault=Fault.BAD_CONFIG,
            detail=BadArgument(VARIABLE, chosen, choices=_CHOICES),
        )
    return chosen == "strict"
