"""``rocm``: the package of the bindings."""

from __future__ import annotations

from peerlane.dialects.hip import bindings, version

__all__ = ["bindings", "version"]
