"""``rocm``: the package of the bindings."""

from __future__ import annotations

from peerlane.dialects.hip.rocm import bindings, version

__all__ = ["bindings", "version"]
