"""``libtoy.so``: the dialect for C."""

from __future__ import annotations

from peerlane.dialects import toy
from peerlane.dialects._shared.c_library import Library


def library() -> Library:
    """Return the library."""
    return Library("toy", call=lambda name: getattr(toy, name), refuse=lambda *_: 1)
