"""HCOMM: the list of calls that refuse."""

from __future__ import annotations

import textwrap

from peerlane.dialects.hcomm import _probes
from peerlane.dialects.hcomm._state import hcomm
from reference_pages import tables


def page(text: str) -> str:
    """Return the page with its tables, and its list of calls that refuse, made anew."""
    return refused(tables.page(text, hcomm))


def refused(text: str) -> str:
    """Return a page with its list of calls that refuse made anew."""
    reasons: dict[str, list[str]] = {}
    for name, reason in _probes.refused().items():
        reasons.setdefault(reason, []).append(f"`{name}`")
    rows = [
        textwrap.fill(f"{reason[:1].upper()}{reason[1:]}: {', '.join(names)}.", 118, break_long_words=False)
        for reason, names in reasons.items()
    ]
    return tables.with_part(text, "refused", "\n\n".join(rows) + "\n")
