"""``hip.hiprtc``: the run-time compiler, which compiles nothing: virtual devices run no kernels."""

from __future__ import annotations

from typing import Any

from peerlane.dialects.hip.binding.convention import is_compiler
from peerlane.dialects.hip.binding.names import make, names_of_hiprtc
from peerlane.dialects.hip.state import calls

#: The module hiprtc_pyext, as older programs call it; the package sets it once both modules are imported.
ext: Any


def has_symbol(name: object) -> bool:
    """Tell whether a function of that name works; false for functions that only refuse."""
    return name in calls.table and is_compiler(str(name))


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    entry = globals()[name] = make(name)
    return entry


def __dir__() -> list[str]:
    return __all__


__all__ = names_of_hiprtc()
