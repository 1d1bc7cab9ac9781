"""hip-python's side of a call: arguments, classes and results.

All follow from a table of names, enumerations and layouts, which the build writes from the vendor's header.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peerlane.support.libraries import binding

_UNSIGNED_INT = (1 << 32) - 1


def facts() -> dict[str, Any]:
    """Return the table; callers do not change it."""
    return binding("hip")


def numbers(*names: str) -> tuple[int, ...]:
    """Return constants of the header, as an ``unsigned int`` has them."""
    constants = facts()["constants"]
    return tuple(constants[name] & _UNSIGNED_INT for name in names)


def members(name: str) -> Mapping[str, int]:
    """Return the numbers of an enumeration's members."""
    declared: Mapping[str, int] = facts()["enums"][real_name(name)]["members"]
    return declared


def real_name(name: str) -> str:
    """Return the name that a class was defined under; ``name`` itself when it is not an alias."""
    aliases: dict[str, str] = facts()["aliases"]
    return aliases.get(name, name)
