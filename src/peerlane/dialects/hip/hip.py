"""The module that programs know as ``hip.hip`` and ``rocm.bindings.hip``: names are made when they are asked for."""

from __future__ import annotations

from typing import Any

from peerlane.dialects.hip import (  # noqa: F401 - they declare calls
    _api_names,
    _attributes,
    _batches,
    _choose,
    _context,
    _copy,
    _copy_2d,
    _copy_3d,
    _device,
    _errors,
    _event,
    _event_ipc,
    _host_function,
    _ipc,
    _kernels,
    _library,
    _limits,
    _link,
    _logging,
    _lookup,
    _managed,
    _managed_batch,
    _memory,
    _peer,
    _peer_copies,
    _physical,
    _pool,
    _pool_memory,
    _pool_sharing,
    _registered,
    _set,
    _stream,
    _stream_info,
    _stream_value,
    _unsupported,
    _virtual,
)
from peerlane.dialects.hip._convention import is_compiler
from peerlane.dialects.hip._names import changes_with_the_version, make, names_of_hip
from peerlane.dialects.hip._peer import USE_PEER_NON_UNIFIED as USE_PEER_NON_UNIFIED
from peerlane.dialects.hip._per_thread import declare_per_thread
from peerlane.dialects.hip._state import calls
from peerlane.support.spelling import no_attribute

declare_per_thread()


def has_symbol(name: object) -> bool:
    """Tell whether a function of that name works; false for functions that only refuse."""
    return name in calls.table and not is_compiler(str(name))


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise no_attribute("hip.hip", name, __all__)
    found = make(name)
    if not changes_with_the_version(name):
        globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__


__all__ = ["USE_PEER_NON_UNIFIED", *names_of_hip()]
