"""The module that programs know as ``hip.hip`` and ``rocm.bindings.hip``: names are made when they are asked for."""

from __future__ import annotations

from typing import Any

from peerlane.dialects.hip import (  # noqa: F401 - they declare calls
    _context,
    _copy,
    _device,
    _errors,
    _memory,
    _peer,
    _stream,
)
from peerlane.dialects.hip._convention import all_names
from peerlane.dialects.hip._enums import enumeration
from peerlane.dialects.hip._facts import facts
from peerlane.dialects.hip._peer import USE_PEER_NON_UNIFIED as USE_PEER_NON_UNIFIED
from peerlane.dialects.hip._results import struct
from peerlane.dialects.hip._state import calls


def has_symbol(name: object) -> bool:
    """Tell whether there is a function of that name; false for those that only refuse."""
    return name in calls.table


def __getattr__(name: str) -> Any:
    found = _make(name)
    globals()[name] = found
    return found


def _make(name: str) -> Any:
    table = facts()
    if name in table["functions"]:
        return calls.functions[name] if name in calls.functions else calls.refused(name)
    if name in table["constants"]:
        return table["constants"][name]
    if name in table["byte constants"]:
        return table["byte constants"][name].encode()
    known = table["aliases"].get(name, name)
    if known in table["enums"]:
        return enumeration(known)
    if known in table["structs"]:
        return struct(known)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _names() -> list[str]:
    table = facts()
    names = {*all_names(), "has_symbol", "USE_PEER_NON_UNIFIED", *table["aliases"]}
    for kind in ("constants", "byte constants", "enums", "structs"):
        names.update(table[kind])
    return sorted(name for name in names if not name.startswith("_"))


def __dir__() -> list[str]:
    return _names()


__all__ = _names()
