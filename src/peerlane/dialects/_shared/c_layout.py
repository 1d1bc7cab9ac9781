"""The layout in memory of the structs that a library declares, as its compiler makes it."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from peerlane.dialects._shared.c_declarations import Declarations, Declarator

_INTEGERS = {
    (1, "i"): ctypes.c_int8,
    (1, "u"): ctypes.c_uint8,
    (2, "i"): ctypes.c_int16,
    (2, "u"): ctypes.c_uint16,
    (4, "i"): ctypes.c_int32,
    (4, "u"): ctypes.c_uint32,
    (8, "i"): ctypes.c_int64,
    (8, "u"): ctypes.c_uint64,
    (4, "f"): ctypes.c_float,
    (8, "f"): ctypes.c_double,
    (8, "p"): ctypes.c_uint64,
}


class Layout:
    """The types of a library's values in memory."""

    def __init__(self, declarations: Declarations) -> None:
        self._declarations = declarations
        self.struct = functools.cache(self._struct)  #: returns the ctypes class of a struct, by its name

    def type_of(self, declarator: Declarator) -> Any:
        """Return the ctypes type of one value; an array is an address, as in a list of parameters."""
        scalar = self._declarations.scalar(declarator)
        if scalar is not None:
            return _INTEGERS[scalar]
        name, types = declarator.type, self._declarations.types
        while name in types:  # another name of a struct
            name = types[name].type
        return self.struct(name)

    def element_of(self, declarator: Declarator, stars: int = 0) -> Any:
        """Return the type of an array's element, or with ``stars`` fewer stars that of a value behind an address."""
        inner = Declarator(declarator.name, declarator.type, max(0, declarator.stars - stars))
        return self.type_of(inner)

    def _struct(self, name: str) -> Any:
        declared = self._declarations.structs[name]
        fields: list[tuple[Any, ...]] = []
        anonymous = []
        for number, each in enumerate(declared.fields):
            inside = each.name or f"anonymous{number}"
            if not each.name:
                anonymous.append(inside)
            kind = self.type_of(each)
            if each.count and not each.is_behind:
                kind = self.element_of(each) * int(each.count)
            fields.append((inside, kind, each.bits) if each.bits else (inside, kind))
        base = ctypes.Union if declared.is_union else ctypes.Structure
        return type(name, (base,), {"_anonymous_": anonymous, "_fields_": fields})
