"""The names of the modules ``hip`` and ``hiprtc``, and the object of each name."""

from __future__ import annotations

from typing import Any

from peerlane.dialects.hip.binding import facts
from peerlane.dialects.hip.binding.enums import enumeration
from peerlane.dialects.hip.binding.results import struct
from peerlane.dialects.hip.state import calls

_VALUES = ("constants", "byte constants")
_KINDS = ("functions", "enums", "structs", "aliases")


def names_of_hip() -> list[str]:
    """Return the names of the module ``hip``."""
    table, others = facts(), set(facts()["hiprtc only"])
    names = {name for kind in (*_KINDS, *_VALUES) for name in table[kind]} - others
    return sorted(name for name in names if not name.startswith("_"))


def names_of_hiprtc() -> list[str]:
    """Return the names of the module ``hiprtc``."""
    return sorted(name for name in facts()["hiprtc"] if not name.startswith("_"))


def make(name: str) -> Any:
    """Return the object of a name of the table."""
    table = facts()
    if name in table["functions"]:
        return calls.functions("").get(name) or calls.refuse(name)
    if name in table["constants"]:
        return table["constants"][name]
    if name in table["byte constants"]:
        return table["byte constants"][name].encode()
    known = table["aliases"].get(name, name)
    return enumeration(known) if known in table["enums"] else struct(known)


def changes_with_the_version(name: str) -> bool:
    """Tell whether the object of a name depends on the version: fields of structs are str or bytes."""
    return facts()["aliases"].get(name, name) in facts()["structs"]
