"""``libtoy.so``: the dialect for C."""

from __future__ import annotations

from peerlane.dialects.toy import calls

from peerlane.dialects._shared.c_library import Library


def library() -> Library:
    """Return the library."""
    return Library("toy", call=calls.function, refuse=calls.refuse_argument)
