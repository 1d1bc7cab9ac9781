"""pyACL: the tables of calls."""

from __future__ import annotations

from peerlane.dialects.acl._state import acl
from reference_pages import tables


def page(text: str) -> str:
    """Return the page with its tables made anew."""
    return tables.page(text, acl)
