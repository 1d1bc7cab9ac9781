"""The table of names, enumerations and layouts that the build makes of the vendor's header, ``hip.h.txt``."""

from __future__ import annotations

import marshal
from functools import cache
from pathlib import Path
from typing import Any

from peerlane.support import libraries


@cache
def facts() -> dict[str, Any]:
    """Return the table, read at the first use.

    Returns
    -------
    dict
        What ``_binding.binding_of`` returns.  Callers do not change it.
    """
    table: dict[str, Any] = marshal.loads(Path(libraries.tables(), "hip.binding").read_bytes())
    return table


def real_name(name: str) -> str:
    """Return the name that a class was defined under; ``name`` itself when it is not an alias."""
    aliases: dict[str, str] = facts()["aliases"]
    return aliases.get(name, name)
