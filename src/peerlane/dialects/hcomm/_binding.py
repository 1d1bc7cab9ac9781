"""What the dialect has of the vendor's header: enumerations, constants, refusals, and structs as Python's classes.

The build runs this module before peerlane can be imported, so it needs nothing but the header's reader.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

from peerlane.dialects._shared.c_declarations import Declarations, Declarator, Struct
from peerlane.dialects._shared.c_layout import Layout


def binding_of(declared: Declarations) -> dict[str, Any]:
    """Return a table of plain values.

    Returns
    -------
    dict
        ``enums`` (members by name), ``constants``, ``refused`` (reasons by name) and ``structs``, those that others
        have before these: the size in C, and the fields as [name, kind, what a new struct has, bytes in C].  The kind
        is the name of another struct, ``int``, ``bool``, ``bytes``, ``str``, ``text`` (which may be None), ``list``
        (of numbers, or None) or ``object``.
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
    """Return the name of the class of a struct without a name, which is a field of another one."""
    return field.binding or name + field.name[0].upper() + field.name[1:]


def _structs(declared: Declarations, name: str, struct: Struct) -> Iterator[tuple[str, Struct]]:
    """Return the structs without a name in a struct, then that itself, with the names of their classes."""
    for each in _members(declared, struct):
        if "." in each.type:
            yield from _structs(declared, _class_of(name, each), declared.structs[each.type])
    yield name, struct


def _members(declared: Declarations, struct: Struct) -> Iterator[Declarator]:
    """Return the fields that programs see: those of a union without a name are beside the others."""
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
    """Return the kind of a field, and what a new struct has in it."""
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
