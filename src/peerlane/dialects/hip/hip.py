"""The module ``hip.hip``, or ``rocm.bindings.hip``; the object of a name is created at its first use."""

from __future__ import annotations

from typing import Any

from peerlane.dialects.hip import copies as _copies  # noqa: F401 - they declare calls
from peerlane.dialects.hip import devices as _devices  # noqa: F401
from peerlane.dialects.hip import errors as _errors  # noqa: F401
from peerlane.dialects.hip import graphs as _graphs  # noqa: F401
from peerlane.dialects.hip import kernels as _kernels  # noqa: F401
from peerlane.dialects.hip import lookup as _lookup  # noqa: F401
from peerlane.dialects.hip import memory as _memory  # noqa: F401
from peerlane.dialects.hip import sharing as _sharing  # noqa: F401
from peerlane.dialects.hip import streams as _streams  # noqa: F401
from peerlane.dialects.hip.binding import facts
from peerlane.dialects.hip.binding.convention import is_compiler
from peerlane.dialects.hip.binding.names import changes_with_the_version, make, names_of_hip
from peerlane.dialects.hip.devices.peers import USE_PEER_NON_UNIFIED as USE_PEER_NON_UNIFIED
from peerlane.dialects.hip.state import calls
from peerlane.dialects.hip.streams.stream import streams
from peerlane.support.spelling import no_attribute

_PER_THREAD = "_spt"


def _declare_per_thread() -> None:
    """Declare the calls that end in ``_spt``, where no stream means the stream of this thread (facts/hip 1.4)."""
    for name in facts()["functions"]:
        plain = name.removesuffix(_PER_THREAD)
        if plain in calls.bodies and name not in calls.bodies:
            does = f"Do what {plain} does; no stream, and NULL, mean the stream of this thread."
            calls.declare_alias(name, plain, does=does, within=streams.null_is_own)


_declare_per_thread()


def has_symbol(name: object) -> bool:
    """Tell whether a function of that name works; false for functions that only refuse."""
    return name in calls.table and not is_compiler(str(name))


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise no_attribute("hip.hip", name, __all__)
    entry = make(name)
    if not changes_with_the_version(name):
        globals()[name] = entry
    return entry


def __dir__() -> list[str]:
    return __all__


__all__ = ["USE_PEER_NON_UNIFIED", *names_of_hip()]
