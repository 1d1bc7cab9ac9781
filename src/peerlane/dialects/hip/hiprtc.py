"""``hip.hiprtc``: the run-time compiler, which is not there: virtual devices run no kernels."""

from __future__ import annotations

from typing import Any

from peerlane.dialects.hip._names import make, names_of_hiprtc


def has_symbol(name: object) -> bool:
    """Tell whether there is a function of that name: there is none that does anything."""
    return False


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = make(name)
    return found


def __dir__() -> list[str]:
    return __all__


__all__ = names_of_hiprtc()
