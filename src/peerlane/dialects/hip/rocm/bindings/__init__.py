"""``rocm.bindings``: the package that ``hip`` shows again."""

from __future__ import annotations

from peerlane.dialects.hip import hip, hiprtc, hiprtc_pyext
from peerlane.dialects.hip.rocm.bindings import util

__all__ = ["hip", "hiprtc", "hiprtc_pyext", "util"]
