"""``rocm.bindings``: the package that ``hip`` shows again."""

from __future__ import annotations

from peerlane.dialects.hip import hip, hiprtc, util

__all__ = ["hip", "hiprtc", "util"]
