"""hip-python's side of a call: arguments, classes and results.

All follow from a table of names, enumerations and layouts, which the build writes from the vendor's header.
"""

from __future__ import annotations

from typing import Any

from peerlane.support.libraries import binding


def facts() -> dict[str, Any]:
    """Return the table; callers do not change it."""
    return binding("hip")


def real_name(name: str) -> str:
    """Return the name that a class was defined under; ``name`` itself when it is not an alias."""
    aliases: dict[str, str] = facts()["aliases"]
    return aliases.get(name, name)
