"""``rocm.bindings.util``: the package of the types that arguments and results have."""

from __future__ import annotations

from peerlane.dialects.hip.binding import types as types

__all__ = ["types"]
