"""``libtoy.so``: the dialect for C."""

from __future__ import annotations

from peerlane.dialects.toy import calls

from peerlane.dialects._shared.c_library import Library
from peerlane.dialects._shared.c_names import declarations_of


def library(header: str) -> Library:
    """Return the library of a header."""
    return Library(declarations_of(header), call=calls.function, refuse=calls.refuse_argument)
