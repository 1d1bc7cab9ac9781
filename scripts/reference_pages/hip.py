"""HIP: the list of calls that refuse."""

from __future__ import annotations

import re
import textwrap

from peerlane.dialects.hip import hip  # noqa: F401 - it declares the calls
from peerlane.dialects.hip.binding import facts
from peerlane.dialects.hip.binding.names import names_of_hip, names_of_hiprtc
from peerlane.dialects.hip.state import calls
from reference_pages import tables

_FAMILY = re.compile(r"(?:hiprtc|hip(?:Drv|Ext)?[A-Z][a-z0-9]+)")


def names_refused() -> list[str]:
    """Return the functions of the vendor's table that answer hipErrorNotSupported."""
    functions = facts()["functions"]
    names = [
        name for name in (*names_of_hip(), *names_of_hiprtc()) if name in functions and name != "has_symbol"
    ]
    return sorted(set(names) - set(calls.table))


def page(text: str) -> str:
    """Return the page with its tables, and its list of functions that refuse, made anew."""
    return refused(tables.page(text, calls))


def refused(text: str) -> str:
    """Return a page with its list of functions that refuse made anew."""
    families: dict[str, list[str]] = {}
    for name in names_refused():
        match = _FAMILY.match(name)
        families.setdefault(match[0] if match else name, []).append(f"`{name}`")
    lines = [textwrap.fill(", ".join(names), 118, break_long_words=False) for names in families.values()]
    return tables.with_part(text, "refused", "\n\n".join(lines) + "\n")
