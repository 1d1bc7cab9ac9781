"""Turn the vendor's header into a table: enumerations, constants, reasons of refusals, and structs.

The build runs this module before peerlane can be imported, so it imports the header's reader alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

from peerlane.dialects._shared.c_declarations import Declarations, Declarator, Struct
from peerlane.dialects._shared.c_layout import Layout


def binding_of(declared: Declarations) -> dict[str, Any]:
    """Return a table of plain values.

    Returns ``enums`` (members by name), ``constants``, ``refused`` (reasons by name) and ``structs``.  A struct has
        its size in C, and its fields as [name, kind, initial value, bytes in C]; a struct that is a field of another
        one comes before that.  The kind is the name of a struct, ``int``, ``bool``, ``bytes``, ``str``, ``text``
        (which may be None), ``list`` (of numbers, or None) or ``object``.
    """
    layout = Layout(declared)
    return {
        "enums": {
            name: {each: number.value for each, number in members.items()}
            for name, members in declared.enums.items()
        },
        "constants": declared.constants,
        "refused": {name: each.reason for name, each in declared.functions.items() if each.is_refused},
        "structs": {
            name: {
                "size": ctypes.sizeof(layout.struct(each.name)),
                "fields": _fields(declared, layout, name, each),
            }
            for root in declared.structs.values()
            if "." not in root.name
            for name, each in _structs(declared, root.name, root)
        },
    }


def _class_of(name: str, field: Declarator) -> str:
    """Return the class name of a nameless struct that is a field of another one."""
    return field.binding or name + field.name[0].upper() + field.name[1:]


def _structs(declared: Declarations, name: str, struct: Struct) -> Iterator[tuple[str, Struct]]:
    """Return the nameless structs inside a struct, then the struct itself, with their class names."""
    for each in _members(declared, struct):
        if "." in each.type:
            yield from _structs(declared, _class_of(name, each), declared.structs[each.type])
    yield name, struct


def _members(declared: Declarations, struct: Struct) -> Iterator[Declarator]:
    """Return the fields that programs see: the members of a nameless union stand beside the other fields."""
    for each in struct.fields:
        if not each.name:
            yield from _members(declared, declared.structs[each.type])
        elif "unread" not in each.words or not each.count:
            yield each


def _fields(declared: Declarations, layout: Layout, name: str, struct: Struct) -> list[tuple[Any, ...]]:
    return [
        (each.name, *_kind(declared, name, each), ctypes.sizeof(layout.type_of(each)))
        for each in _members(declared, struct)
    ]


def _kind(declared: Declarations, name: str, field: Declarator) -> tuple[str, Any]:
    """Return the kind of a field, and its value in a new struct."""
    if "unread" in field.words:
        return "object", None
    if field.is_behind:
        return "list", None
    if field.count:
        return ("str", "") if field.type == "char" else ("bytes", bytes(int(field.count)))
    if field.stars:
        return ("text", None) if field.type == "char" else ("int", 0)
    if field.type in declared.structs:
        return (_class_of(name, field) if "." in field.type else field.type), None
    return ("bool", False) if field.type == "bool" else ("int", field.initial)
