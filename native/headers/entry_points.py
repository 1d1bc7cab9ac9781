"""Writes the entry points of a vendor's C library in C++: ``entry_points.py HEADER OUT``.

HEADER is ``NAME.h.txt`` in the folder of the dialect, beside its manifest.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

from sources import use_sources

use_sources()

from peerlane.dialects._shared import c_declarations  # noqa: E402
from peerlane.dialects._shared.hook import read_manifest  # noqa: E402

_QUICK_TABLE = (Path(__file__).parents[1] / "c_abi/quick.h").read_text()
_QUICK_TYPES = dict(re.findall(r"using (\w+) = (\w+)\(", _QUICK_TABLE))
_ADDED = {"caller": "reinterpret_cast<uint64_t>(__builtin_return_address(0))", "library": "entry_{}.header"}
_LAST_PARAMETERS = dict(re.findall(r"using (\w+) = \w+\([^)]*\b(\w+)\)", _QUICK_TABLE))
_QUICK_KINDS = {
    name: kind
    for kind, names in re.findall(r"(\w+) (\*\w+(?:, \*\w+)*);", _QUICK_TABLE)
    for name in names.replace("*", "").split(", ")
}
_QUICK = {
    **{name: returns for returns, name in re.findall(r"(\w+) \(\*(\w+)\)", _QUICK_TABLE)},
    **{name: _QUICK_TYPES[kind] for name, kind in _QUICK_KINDS.items()},
}
_STREAMS = ("CUstream", "cudaStream_t")
_THREAD_STREAM = 2  # the handle of the thread's own stream
_TYPES = {"i": "int{}_t", "u": "uint{}_t"}
_HEAD = """// Made of {text} by entry_points.py.
#include "c_abi/entry.h"

using peerlane::c_abi::call;
using peerlane::c_abi::Entry;
using peerlane::c_abi::Formatted;
using peerlane::c_abi::kDeclined;
using peerlane::c_abi::quick;
"""


def _type(declarations, declarator) -> str:
    if declarator.type == "void" and not declarator.is_pointer:
        return "void"
    scalar = declarations.scalar(declarator)
    if scalar is None:
        return _name(declarator.type)
    width, kind = scalar
    if declarator.type == "bool" and not declarator.is_pointer:
        return "bool"
    if kind == "f":
        return "float" if width == 4 else "double"
    return "uint64_t" if kind == "p" else _TYPES[kind].format(8 * width)


def _name(struct: str) -> str:
    """Return the name of a struct in C++: one that has none in the header is called by where it stands."""
    return struct.replace(".", "_")


def _by_value(declarations) -> list[str]:
    """Define the structs that are passed by value: what their fields are tells how."""
    structs: dict[str, str] = {}

    def define(declarator) -> None:
        name = declarator.type
        if declarations.scalar(declarator) is not None or name in structs or name == "void":
            return
        struct = declarations.structs.get(name)
        if struct is None or not struct.fields:
            raise SystemExit(f"{name} is passed by value, and its fields are not declared")
        for each in struct.fields:
            define(replace(each, count=""))
        fields = " ".join(_field(declarations, each) for each in struct.fields)
        structs[name] = f"{'union' if struct.is_union else 'struct'} {_name(name)} {{ {fields} }};\n"

    for function in declarations.functions.values():
        for each in (function.returns, *function.parameters):
            define(each)
    return list(structs.values())


def _field(declarations, field) -> str:
    count = f"[{field.count}]" if field.count and not field.is_behind else ""
    inner = field if field.is_behind else replace(field, count="")
    return f"{_type(declarations, inner)} {field.name or 'anonymous'}{count};"


def _quick_call(function, names: list[str]) -> tuple[str, list[str]]:
    """Return what answers a function without Python, and its arguments; an empty name for nothing.

    In a variant for threads' default streams the handle 0 is the thread's own stream.
    """
    if function.name in _QUICK:
        return function.name, names
    base = function.name.removesuffix(f"_{function.variant}") if function.variant else function.name
    is_stream = [each.type in _STREAMS and not each.is_pointer for each in function.parameters]
    if base not in _QUICK or not any(is_stream):
        return "", []
    return base, [
        f"({name} ? {name} : {_THREAD_STREAM})" if is_own else name
        for name, is_own in zip(names, is_stream, strict=True)
    ]


def _entry_point(declarations, library: str, function, *, has_texts: bool) -> str:
    returns = _type(declarations, function.returns)
    types = [_type(declarations, each) for each in function.parameters]
    names = [f"a{number}" for number in range(len(types))]
    parameters = ", ".join(f"{kind} {name}" for kind, name in zip(types, names, strict=True))
    structs = set(map(_name, declarations.structs))
    passed = "".join(
        f", reinterpret_cast<uint64_t>(&{name})" if kind in structs else f", {name}"
        for kind, name in zip(types, names, strict=True)
    )
    code = "0" if (declarations.scalar(function.returns) or (0, ""))[1] == "p" else str(declarations.ended)
    asked = f"call<{{}}>(entry_{function.name}, __builtin_return_address(0){passed})"
    body = f"return {asked.format(returns)};"
    if has_texts and function.returns.stars:
        text = f"reinterpret_cast<uint64_t>(text_{function.name}(static_cast<int64_t>({names[0]})))"
        body = f"const {returns} asked = {asked.format(returns)};\n    return asked ? asked : {text};"
    elif has_texts:  # the second parameter is where the text goes
        body = (
            f"const {returns} asked = {asked.format(returns)};\n"
            f"    const char* const text = asked == {code} ? text_{function.name}({names[0]}) : nullptr;\n"
            f"    if (text && {names[1]}) *reinterpret_cast<const char**>({names[1]}) = text;\n"
            f"    return text ? 0 : asked;"
        )
    if returns in structs:
        if not function.is_refused:
            raise SystemExit(f"{function.name} returns a struct: write it in C++")
        body = f"{asked.format('void')};\n    return {{}};"
    answers, arguments = _quick_call(function, names)
    if answers:
        if added := _ADDED.get(_LAST_PARAMETERS.get(_QUICK_KINDS.get(answers, ""), "")):
            arguments = [*arguments, added.format(function.name)]
        served = f"table->{answers}({', '.join(arguments)})"
        table = "const auto* const table = quick.load(std::memory_order_acquire)"
        if _QUICK[answers] == "bool":
            body = f"if ({table}; table && {served}) return 0;\n    {body}"
        else:
            served = f"const int32_t code = table ? {served} : kDeclined; code != kDeclined"
            body = f"{table};\n    if ({served}) return code;\n    {body}"
    if function.is_variadic:
        last = names[-1]
        parameters += ", ..."
        body = (
            f"va_list rest;\n    va_start(rest, {last});\n    const Formatted text({last}, rest);\n"
            f"    va_end(rest);\n    {last} = text.address();\n    {body}"
        )
    at_end = _answer_at_the_end(declarations, function)
    entry = f'static Entry entry_{function.name}{{{library}, "{function.name}", {code}, {{{at_end}}}}};\n'
    if function.is_variadic:  # the register that says how many floats there are
        return f"{entry}PEERLANE_C {returns} {function.name}({parameters}) {{\n    {body}\n}}\n"
    return (
        f"{entry}PEERLANE_BODY {returns} peerlane_{function.name}({parameters}) {{\n    {body}\n}}\n"
        f"PEERLANE_EXPORTED({function.name})\n"
    )


def _answer_at_the_end(declarations, function) -> str:
    """Return the values of an ``AtTheEnd``: whether the function succeeds, and where its output and of which size."""
    outputs = [(at, function.parameters[at]) for at in declarations.outputs_of(function)]
    sizes = [(at, declarations.scalar(replace(each, stars=each.stars - 1))) for at, each in outputs]
    if "ending" not in function.words or len(sizes) > 1 or (sizes and sizes[0][1] is None):
        return "false"
    return ", ".join(["true", *(f"{at}, {scalar[0]}" for at, scalar in sizes)])


def _texts_of(folder: Path, declared) -> dict:
    """Return the texts of codes of a header's functions, by function; see ``dialects/_shared/code_texts.py``."""
    if not (folder / "code_texts.py").exists():
        return {}
    enums = {
        name: {each: member.value for each, member in members.items()}
        for name, members in declared.enums.items()
    }
    texts = importlib.import_module(f"peerlane.dialects.{folder.name}.code_texts").texts_of(enums)
    return {name: each for name, each in texts.items() if name in declared.functions}


def _text_function(function, texts) -> str:
    """Write the function that returns the text of a code without Python; null for a number that is none."""
    cases = "".join(
        f"        case {number}: return {json.dumps(text)};\n" for number, text in sorted(texts.known.items())
    )
    other = json.dumps(texts.other) if texts.other else "nullptr"
    return (
        f"static const char* text_{function.name}(int64_t code) {{\n"
        f"    switch (code) {{\n{cases}        default: return {other};\n    }}\n}}\n"
    )


def main() -> None:
    """Write the file."""
    header, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    name = header.name.removesuffix(".h.txt")
    declared = c_declarations.read_header(header.parent, name)
    declarations, texts = declared.library(), _texts_of(header.parent, declared)
    functions = declarations.functions.values()
    library = f'"{header.parent.name}", "{name}"'
    parts = [_HEAD.format(text=header.name)]
    parts += _by_value(declarations)
    parts += [_text_function(each, texts[each.name]) for each in functions if each.name in texts]
    parts += [_entry_point(declarations, library, each, has_texts=each.name in texts) for each in functions]
    if supports := read_manifest(str(header.parent)).get("SUPPORTS"):
        parts += [
            f"PEERLANE_C bool {supports}{each.name}() {{ return {str(not each.is_refused).lower()}; }}\n"
            for each in functions
        ]
    out.write_text("\n".join(parts))


main()
