"""``hiprtc``: the version of the run-time compiler; it refuses to compile, as virtual devices run no kernels."""

from __future__ import annotations

from typing import Any

from peerlane.dialects.hip._results import text
from peerlane.dialects.hip._state import calls

_VERSION = 9, 0  # constants of the vendor's code


@calls.call("hiprtcGetErrorString", keeps_last=True, needs_device=False)
def hiprtcGetErrorString(result: Any) -> object:
    """Return the name of a result.

    Gives: CStr
    Basis: D
    """
    return text(result.name)


@calls.call("hiprtcVersion", keeps_last=True, needs_device=False)
def hiprtcVersion() -> tuple[int, int]:
    """Return the version of the compiler's interface, as the vendor's code has it.

    Gives: 9, 0
    Basis: D
    """
    return _VERSION
