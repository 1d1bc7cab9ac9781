"""What hip-python makes of the vendor's header: what functions take and return, and the fields of structs.

The build runs this module before peerlane can be imported, so it needs nothing but the header's reader.
"""

from __future__ import annotations

import ctypes
from typing import Any

from peerlane.dialects._shared.c_declarations import SCALARS, Declarations, Declarator, Function, Struct
from peerlane.dialects._shared.c_layout import Layout

_CODES = ("hipError_t", "hiprtcResult")
_OUTPUTS = {"out", "maybe", "returned", "unread"}

#: Parameters of other pointers than those to structs: what is passed, and what comes back.
_PASSED = {
    ("void", 1): "Pointer",
    ("void", 2): "ListOfPointer",
    ("char", 1): "CStr",
    ("char", 2): "ListOfBytes",
    ("uint32_t", 1): "ListOfUnsigned",
}
#: Arrays that a program passes; those of other types are lists of any kind.
_LISTS = {"size_t": "ListOfUnsignedLong"}
_RETURNED = {("void", 2): "Pointer", ("char", 1): "CStr", ("char", 2): "CStr"}

#: Kinds of the earlier version that are others.
_EARLIER_TYPES = {
    "size_t": "unsigned long",
    "uint64_t": "unsigned long",
    "uint32_t": "unsigned int",
    "ListOfPointer": "Pointer",
    "ListOfBytes": "CStr",
}


def binding_of(declared: Declarations) -> dict[str, Any]:
    """Return the binding as a table of plain values.

    Returns ``functions`` (parameters, outputs), ``enums`` (bases, members), ``structs`` (size, fields, union,
        initial), ``constants``, ``byte constants``, ``aliases``, ``older`` (what the earlier version has otherwise),
        ``in C`` (of functions that read in C what the binding returns), ``refusals`` (codes by parameter that may not
        be 0), ``ending`` (names of functions that succeed when the process is ending), ``hiprtc`` and ``hiprtc only``
        (names), ``calls`` (numbers of the vendor's profilers) and ``version``. A field is [name, C type, settable,
        offset, bytes].
    """
    binding = _Binding(declared)
    names = [*declared.modules]
    profiled = declared.enums["hip_api_id_t"]
    return {
        "version": declared.version,
        "functions": {name: binding.shape(each) for name, each in binding.functions.items()},
        "enums": {
            name: {
                "bases": [f"_{name}__Base", "IntEnum"],
                "members": {each: number.value for each, number in members.items()},
            }
            for name, members in declared.enums.items()
            if members is not profiled
        },
        "structs": {
            name: binding.struct(each)
            for name, each in declared.structs.items()
            if "library" not in each.words
        }
        | {
            name: _opaque() for name, each in declared.types.items() if (each.type, each.stars) == ("void", 1)
        },
        "constants": declared.constants,
        "byte constants": declared.texts,
        "aliases": {
            name: binding.real(name)
            for name in declared.types
            if binding.real(name) != name and name in names
        },
        "older": binding.earlier(),
        "in C": binding.in_c(),
        "refusals": {
            name: {each.name: each.otherwise for each in function.parameters if each.otherwise}
            for name, function in binding.functions.items()
            if any(each.otherwise for each in function.parameters)
        },
        "ending": [name for name, each in binding.functions.items() if "ending" in each.words],
        "hiprtc": [name for name in names if "hiprtc" in declared.modules[name]],
        "hiprtc only": [name for name in names if declared.modules[name] == ("hiprtc",)],
        "calls": {number.value: name for name, number in profiled.items()},
    }


def _opaque() -> dict[str, Any]:
    return {"size": 0, "fields": [], "union": False}


class _Binding:
    """The rules by which the binding's classes follow from C's types."""

    def __init__(self, declared: Declarations) -> None:
        self._declared, self._layout = declared, Layout(declared)
        self.functions: dict[str, Function] = {}
        for each in declared.functions.values():
            if "library" not in each.words:
                self.functions.setdefault(each.dialect, each)

    def real(self, name: str) -> str:
        """Return the name that a type was defined under."""
        alias = self._declared.types.get(name)
        if alias is None or alias.type in SCALARS or alias.type == "void":
            return name
        return self.real(alias.type)

    def _is_handle(self, name: str) -> bool:
        """Tell whether values of a type are addresses."""
        alias = self._declared.types.get(name)
        return alias is not None and (bool(alias.stars) or self._is_handle(alias.type))

    def _passed(self, parameter: Declarator) -> str:
        """Return the kind of what a program passes."""
        stars, real = parameter.stars + bool(parameter.count), self.real(parameter.type)
        if parameter.binding:
            return parameter.binding
        if not stars or (
            real in self._declared.structs and stars == 1 and not self._is_handle(parameter.type)
        ):
            return real
        return _PASSED.get((parameter.type, stars), "Pointer")

    def _returned(self, parameter: Declarator) -> list[str]:
        """Return the kind of what comes back, with ``maybe`` where it may be None."""
        stars, real = parameter.stars + bool(parameter.count), self.real(parameter.type)
        kind = parameter.binding or _RETURNED.get((parameter.type, stars), real)
        is_address = kind != real or stars > 1 or (stars == 1 and self._is_handle(parameter.type))
        return [parameter.name, kind, *(["maybe"] if is_address else [])]

    def shape(self, function: Function) -> dict[str, Any]:
        """Return what a function takes and what comes back behind the code."""
        outputs = [each for each in function.parameters if _is_output(each)]
        returned = [self._returned(each) for each in outputs]
        returns = function.returns
        if returns.is_pointer:
            returned.append(["text", "CStr", "maybe"])
        elif returns.type not in (*_CODES, "bool"):
            returned.append(["value", "object" if returns.type in self._declared.structs else returns.type])
        return {
            "parameters": [
                [each.name, self._passed(each)] for each in function.parameters if not _is_output(each)
            ],
            "outputs": returned,
        }

    def earlier(self) -> dict[str, Any]:
        """Return what the earlier version has otherwise."""
        changed = {
            name: each
            for name, each in self.functions.items()
            if any(parameter.words & {"was_in", "was_out"} for parameter in each.parameters)
        }
        errors = self._declared.enums["hipError_t"]
        return {
            "version": self._declared.earlier,
            "parameters": {name: self._earlier_inputs(each) for name, each in changed.items()},
            "outputs": {name: self._earlier_outputs(each) for name, each in changed.items()},
            "missing": sorted(name for name, each in self.functions.items() if "new" in each.words),
            "errors": {
                name: each.earlier for name, each in errors.items() if each.earlier not in (None, each.value)
            },
            "missing errors": [name for name, each in errors.items() if each.earlier is None],
        }

    def in_c(self) -> dict[str, Any]:
        """Return what the functions take and return in C that read there what the binding returns."""
        changed = {
            name: each
            for name, each in self.functions.items()
            if not each.is_refused and any("returned" in parameter.words for parameter in each.parameters)
        }
        return {
            "parameters": {
                name: [[each.name, self._in_c(each)] for each in function.parameters if not _is_written(each)]
                for name, function in changed.items()
            },
            "outputs": {
                name: [self._returned(each) for each in function.parameters if _is_written_in_c(each)]
                for name, function in changed.items()
            },
        }

    def _in_c(self, parameter: Declarator) -> str:
        """Return the kind of an argument as C has it: arrays are lists."""
        if "returned" in parameter.words and parameter.count and not parameter.stars:
            return _LISTS.get(parameter.type, "object")
        return self._passed(parameter)

    def _earlier_inputs(self, function: Function) -> list[list[str]]:
        inputs = [each for each in function.parameters if not _was_output(each)]
        kinds = [self._passed(each) for each in inputs]
        return [[each.name, _EARLIER_TYPES.get(kind, kind)] for each, kind in zip(inputs, kinds, strict=True)]

    def _earlier_outputs(self, function: Function) -> list[list[str]]:
        outputs = []
        for each in filter(_was_output, function.parameters):
            name, kind, *maybe = self._returned(each)
            if self._is_handle(each.type):
                kind, maybe = "object", ["maybe"]
            outputs.append([name, _EARLIER_TYPES.get(kind, kind), *maybe])
        return outputs

    def struct(self, struct: Struct) -> dict[str, Any]:
        """Return the size of a struct and the fields that the binding shows."""
        if not struct.fields:
            return _opaque()
        layout = self._layout.struct(struct.name)
        size = ctypes.sizeof(layout)
        fields, initial = [], bytearray(size)
        for number, each in enumerate(struct.fields):
            member = getattr(layout, each.name or f"anonymous{number}")
            offset, width, bit = member.offset, member.size, 0
            if each.bits:  # ctypes has the width in the upper half of the size
                bit = member.size & 0xFFFF
                offset, width = offset + bit // 8, 1
            initial[offset : offset + width] = each.initial.to_bytes(width, "little")
            if "unread" in each.words:
                continue
            kind = self._field(each, bit)
            settable = kind.partition(" ")[0] not in ("str", "bytes", "struct") and not each.count
            fields.append([each.name, kind, settable, offset, width])
        described = {"size": size, "fields": fields, "union": struct.is_union or "by_name" in struct.words}
        return described | ({"initial": initial.hex()} if any(initial) else {})

    def _field(self, field: Declarator, bit: int) -> str:
        """Return the kind of a field."""
        real = self.real(field.type)
        if field.bits:
            return f"bit {bit % 8}"
        if field.count:
            is_text = field.type == "char"
            return f"{field.binding or 'bytes'} {field.count}" if is_text else f"{field.type}[{field.count}]"
        if field.stars or self._is_handle(field.type):
            return f"pointer {_PASSED.get((field.type, field.stars), real)}"
        if real in self._declared.enums:
            return f"enum {real}"
        return f"struct {real}" if real in self._declared.structs else field.type


def _is_written(parameter: Declarator) -> bool:
    return bool(parameter.words & (_OUTPUTS - {"returned"}))


def _is_written_in_c(parameter: Declarator) -> bool:
    """Tell whether a function sets a parameter; an array that it reads is not an output."""
    return _is_output(parameter) and not parameter.count


def _is_output(parameter: Declarator) -> bool:
    return bool(parameter.words & _OUTPUTS)


def _was_output(parameter: Declarator) -> bool:
    if parameter.words & {"was_in", "was_out"}:
        return "was_out" in parameter.words
    return _is_output(parameter)
