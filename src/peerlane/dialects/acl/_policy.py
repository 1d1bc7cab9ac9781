"""Whether the kind of a copy on a stream may contradict the addresses: ``PEERLANE_ACL_POLICY`` (facts/acl 4.2)."""

from __future__ import annotations

import os

from peerlane.errors import BadArgument, Fault, InvalidValue

VARIABLE = "PEERLANE_ACL_POLICY"
_CHOICES = ("kinds=checked", "kinds=corrected")
CORRECTED = f"{VARIABLE}={_CHOICES[1]}"


def corrects_kinds() -> bool:
    """Tell whether the addresses decide: only with ``PEERLANE_ACL_POLICY=kinds=corrected``.

    Raises
    ------
    InvalidValue
        The variable has another value than ``kinds=checked`` and ``kinds=corrected``.
    """
    chosen = os.environ.get(VARIABLE) or _CHOICES[0]
    if chosen not in _CHOICES:
        raise InvalidValue(
            f"{VARIABLE} is {chosen!r}; valid are {', '.join(_CHOICES)}",
            fault=Fault.BAD_CONFIG,
            detail=BadArgument(VARIABLE, chosen, choices=_CHOICES),
        )
    return chosen == _CHOICES[1]
