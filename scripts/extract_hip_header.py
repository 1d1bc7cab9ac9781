"""Writes the header of HIP from the public hip-python wheels: names, prototypes, enumerators and layouts.

Usage: ``extract_hip_header.py NEW_PYTHON OLD_PYTHON [HEADER]``, two interpreters with the wheels of the
newest version and of the earlier one that peerlane serves.  It writes the header anew.  No ROCm and no GPU is needed:
nothing of the runtime is called.  Prototypes and signatures are read from the ``.pyx`` in the wheels; enumerations,
constants and layouts are measured on the imported module.

What no wheel tells is kept as the header has it: which functions are refused, the words before parameters that say
what the C library reads and writes, functions that only the library has, and the numbers of the vendor's profilers.
A function that the header lacks becomes an ``unread refused`` one.
"""

from __future__ import annotations

import ctypes
import enum
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parents[1]
HEADER = ROOT / "src/peerlane/dialects/hip/hip.h.txt"
WIDTH = 116
sys.path.insert(0, str(ROOT / "native/headers"))

from sources import use_sources  # noqa: E402

use_sources()

from peerlane.dialects._shared import c_declarations  # noqa: E402
from peerlane.dialects._shared.c_declarations import Declarations, Declarator, Function  # noqa: E402
from peerlane.dialects.hip._binding import binding_of  # noqa: E402

_ORDER = (
    "was_in",
    "was_out",
    "returned",
    "out",
    "inout",
    "maybe",
    "always",
    "given",
    "some",
    "address",
    "unread",
    "const",
)
_ROLES = {"out", "maybe", "unread"}
_PROTOTYPE = re.compile(
    r"^cdef (?P<returns>[^\n(]+?) ?(?P<name>\w+)\((?P<parameters>[^\n]*)\)[^\n]* nogil:\n"
    r"(?:    .*\n)*?.*__init_symbol\(&\w+, ?\"(?P<symbol>\w+)\"\)",
    re.MULTILINE,
)
_TOP = """\
// HIP's runtime and hip-python, as the public wheels have them: scripts/extract_hip_header.py writes this file.
// The notation: src/peerlane/dialects/_shared/c_declarations.py.  A new version: docs/guides/vendor-headers.md."""
_CODES = "codes hipError_t, hiprtcResult;\nfailed 999;"
_NUMBERS = "hip_api_id_t"  # by which the vendor's profilers know its calls
Classes: TypeAlias = "dict[tuple[str, str], str]"  # by a function and its parameter
VOID: set[str] = set()  # names of addresses that the binding has classes for


_DEFINITION = re.compile(r"^(?:def|cdef class|class) (\w+)(?:\((.*?)\))?.*?:$", re.MULTILINE)
_PROBE = 0x41  # a letter, a number, and no member of the enumerations whose only member is 0


def hip() -> ModuleType:
    """Return the module of the functions: a submodule of ``hip``, or an attribute that lies elsewhere."""
    module: ModuleType = importlib.import_module("hip").hip
    return module


def source(module: ModuleType) -> str:
    """Return the Cython source of an installed module, without docstrings."""
    text = Path(str(module.__file__)).with_name(f"{module.__name__.rpartition('.')[2]}.pyx").read_text()
    return re.sub(r'r?""".*?"""', "", text, flags=re.DOTALL)


def bodies(text: str, keyword: str) -> dict[str, tuple[str, str]]:
    """Return the head and the body of each top-level definition that begins with ``keyword``."""
    extracted = {}
    definitions = [*_DEFINITION.finditer(text)]
    for position, after in zip(definitions, [*definitions[1:], None], strict=True):
        if position[0].startswith(keyword + " "):
            extracted[position[1]] = (
                position[2] or "",
                text[position.end() : after.start() if after else len(text)],
            )
    return extracted


def parameters(head: str, body: str) -> list[list[str]]:
    """Return the name and the kind of each parameter."""
    extracted = []
    for each in filter(None, (part.strip() for part in head.split(","))):
        kind, _, name = each.rpartition(" ")
        if kind in ("object", ""):
            enumeration = re.search(rf"isinstance\({name}, ?_(\w+)__Base\)", body)
            adapter = re.search(rf"([\w.]+)\.fromPyobj\({name}\)", body)
            kind = enumeration[1] if enumeration else adapter[1].rpartition(".")[2] if adapter else "object"
        extracted.append([name, kind])
    return extracted


def outputs(body: str) -> list[list[str]]:
    """Return the name and the kind of each value that comes back behind the error code."""
    code = r"(?:(?:hipError_t|hiprtcResult)(?:\.\w+|\(\w+\))|_\w+__retval)"
    returned = re.search(rf"return \({code},(.*)\)\n", body)
    if returned is None:
        return []
    extracted = []
    for each in re.split(r",(?![^()]*\))", returned[1].strip()):
        if not each:
            continue
        name = re.sub(r"^None if .* == NULL else ", "", each)
        adapter, converted = re.match(r"([\w.]+)\.fromPtr", name), re.match(r"(\w+)\((\w+)\)$", name)
        declared = re.search(rf"cdef ([\w.* ]+?) {re.escape(name)}(?: =|\n)", body)
        if adapter:
            kind, name = adapter[1], "text"
        elif converted:
            kind, name = converted[1], converted[2]
        else:
            kind = declared[1] if declared else "object"
        extracted.append([name, kind.rpartition(".")[2] or kind, *(["maybe"] if "== NULL" in each else [])])
    return extracted


def members(kind: type[enum.IntEnum]) -> dict[str, int]:
    """Return the members of an enumeration with their values, aliases too."""
    return {name: int(member) for name, member in kind.__members__.items()}


def position_of(instance: Any, name: str, size: int) -> list[int]:
    """Return where a field lies in its struct: the first byte that changes what is read, and how many do."""
    memory = (ctypes.c_ubyte * size).from_address(int(instance))

    def seen() -> object:
        try:
            value = getattr(instance, name)
        except ValueError:  # no member of an enumeration
            return "no member"
        return int(value) if not isinstance(value, (str, bytes, list, float)) else value

    ctypes.memset(memory, 0, size)
    before, changing = seen(), []
    inner = getattr(instance, name)
    if hasattr(inner, "c_sizeof") and int(inner):
        return [int(inner) - int(instance), inner.c_sizeof()]
    for at in range(size):
        memory[at] = _PROBE
        if seen() != before:
            changing.append(at)
        memory[at] = 0
    return [changing[0], len(changing)] if changing else []


def position_by_setting(instance: Any, name: str, size: int, value: int) -> int:
    """Return the first bit that is set when a field of zeroed memory is given a value, -1 for none."""
    memory = (ctypes.c_ubyte * size).from_address(int(instance))
    ctypes.memset(memory, 0, size)
    getattr(instance, f"set_{name}")(0, value)
    bits = int.from_bytes(memory, "little")
    return (bits & -bits).bit_length() - 1


def field(module: ModuleType, instance: Any, name: str, body: str, size: int) -> list[Any]:
    """Return the name, the C type, whether it can be set, the first byte and the bytes of a field."""
    kind, settable = field_kind(body, name)
    word, _, enumeration = kind.partition(" ")
    if word == "enum":  # 0 may be no member, so that the field cannot be read
        member = max(getattr(module, enumeration), key=abs)
        if member:
            nbytes = ctypes.sizeof(ctypes.c_int)
            at = position_by_setting(instance, name, size, member) // 8
            return [name, kind, settable, at // nbytes * nbytes, nbytes]
    if settable and kind == "unsigned int" and position_by_setting(instance, name, size, 2) < 0:
        at = position_by_setting(instance, name, size, 1)
        return [name, f"bit {at % 8}", settable, at // 8, 1]
    position, nbytes = position_of(instance, name, size)
    if word == "str":  # only the first character of an empty text changes it
        nbytes = int(enumeration)
    return [name, kind, settable, position, nbytes]


def field_kind(body: str, name: str) -> tuple[str, bool]:
    """Return the C type of a field and whether it can be set."""
    getter = re.search(rf"def get_{name}\(self, i\):\n(.*?)(?=\n    def |\n    @|\n    #)", body, re.DOTALL)
    setter = re.search(rf"\n    def set_{name}\(self, i, ?(.*?) ?value\):", body)
    unset = re.search(rf"#def set_{name}\(self, i, (.*?) value\)", body)
    text = getter[1] if getter else ""
    for pattern, kind in (
        (r"to_str_n\(.*?, (\d+)\)", "str"),
        (r"<bytes>\(.*\[:(\d+)\]\)", "bytes"),
        (r"return (?:rocm\.bindings\.util\.types\.)?(\w+)\.fromPtr\(&", "struct"),
        (r"return (?:rocm\.bindings\.util\.types\.)?(\w+)\.fromPtr\(", "pointer"),
        (r"return (\w+)\(\(<", "enum"),
    ):
        extracted = re.search(pattern, text)
        if extracted:
            return f"{kind} {extracted[1]}", setter is not None
    return (setter or unset)[1] if setter or unset else "unknown", setter is not None


def structs(module: ModuleType, text: str) -> dict[str, Any]:
    """Return size and fields of each struct; opaque handles have no fields."""
    extracted = {}
    for name, (_, body) in bodies(text, "cdef class").items():
        kind = getattr(module, name, None)
        if kind is None or not hasattr(kind, "PROPERTIES"):
            continue
        fields = kind.PROPERTIES()
        if not fields:
            extracted[name] = {"size": 0, "fields": [], "union": False}
            continue
        instance = kind()
        size = instance.c_sizeof()
        initial = ctypes.string_at(int(instance), size)
        extracted[name] = {
            "size": size,
            "fields": [field(module, instance, each, body, size) for each in fields],
            "union": "def __init__(self,**kwargs)" in body,
        }
        if any(initial):
            extracted[name]["initial"] = initial.hex()
    for name, kind in vars(module).items():  # pointers that another module of the wheel defines
        if isinstance(kind, type) and hasattr(kind, "createRef") and kind.__name__ == name:
            extracted.setdefault(name, {"size": 0, "fields": [], "union": False})
    return extracted


def facts() -> dict[str, Any]:
    """Return what this interpreter's wheel has."""
    compiler = importlib.import_module("hip").hiprtc
    own, others = described(hip()), described(compiler)
    kinds = ("functions", "enums", "structs", "aliases")
    return {
        **own,
        **{kind: {**others[kind], **own[kind]} for kind in kinds},
        "hiprtc": [name for kind in kinds for name in others[kind]],
        "hiprtc only": [name for kind in kinds for name in others[kind] if not hasattr(hip(), name)],
        "prototypes": {each.__name__.rpartition(".")[2]: prototypes(each) for each in (hip(), compiler)},
        "typedefs": {**typedefs(hip()), **typedefs(compiler)},
    }


def described(module: ModuleType) -> dict[str, Any]:
    """Return what a module has."""
    text = source(module)
    names = [name for name in dir(module) if not name.startswith("_")]
    values = {name: getattr(module, name) for name in names}
    enums = {
        each.__name__: {"bases": [base.__name__ for base in each.__mro__[1:3]], "members": members(each)}
        for each in values.values()
        if isinstance(each, type) and issubclass(each, enum.IntEnum)
    }
    return {
        "functions": {
            name: {"parameters": parameters(*parts), "outputs": outputs(parts[1])}
            for name, parts in bodies(text, "def").items()
            if name in values
        },
        "enums": enums,
        "structs": structs(module, text),
        "constants": {name: value for name, value in values.items() if type(value) in (int, str)},
        "byte constants": {name: value.decode() for name, value in values.items() if type(value) is bytes},
        "aliases": {
            name: value.__name__
            for name, value in values.items()
            if isinstance(value, type) and value.__name__ != name
        },
    }


def layer(module: ModuleType, ending: str) -> str:
    """Return the text of the layer that a module looks symbols up in, without comments."""
    name = str(module.__file__).rpartition("/")[2].partition(".")[0]
    folder = Path(str(module.__file__)).parent
    path = next(each for each in (folder / f"cy{name}{ending}", folder / f"c{name}{ending}") if each.exists())
    return re.sub(r"^ *#.*\n", "", path.read_text(), flags=re.MULTILINE)


def prototypes(module: ModuleType) -> dict[str, list[str]]:
    """Return the name and the prototype of each function, by its symbol."""
    text = layer(module, ".pyx").partition("_lib_handle, name)")[2]
    return {
        each["symbol"]: [each["name"], f"{each['returns']} {each['symbol']}({each['parameters']})"]
        for each in _PROTOTYPE.finditer(text)
    }


def typedefs(module: ModuleType) -> dict[str, str]:
    """Return what each name of a type stands for."""
    text = layer(module, ".pxd")
    extracted = {
        each[2]: each[1]
        for each in re.finditer(
            r"ctypedef (?:const )?(?!struct |union |enum )([\w ]+?(?: ?\*)?) ?(\w+)\n", text
        )
    }
    return extracted | dict.fromkeys(re.findall(r"ctypedef \w+ \(\*(\w+)\)", text), "void *")


def version(interpreter: str) -> str:
    """Return the version of an interpreter's hip-python."""
    code = "from importlib.metadata import version; print(version('hip-python'))"
    return subprocess.run(
        [interpreter, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def read(interpreter: str) -> dict[str, Any]:
    """Run this script in another interpreter."""
    done = subprocess.run([interpreter, __file__], check=True, capture_output=True, text=True)
    extracted: dict[str, Any] = json.loads(done.stdout)
    return extracted


def changed(new: dict[str, Any], old: dict[str, Any]) -> dict[str, set[str]]:
    """Return the outputs that the older wheel has, of each function with other parameters."""
    extracted = {}
    for name, shape in old["functions"].items():
        newer = new["functions"].get(name)
        if newer and [each[0] for each in shape["parameters"]] != [each[0] for each in newer["parameters"]]:
            extracted[name] = {each[0] for each in shape["outputs"]}
    return extracted


def function_of(
    name: str, prototype: str, shape: dict[str, Any], earlier: set[str] | None, known: Function | None
) -> Function:
    """Return a function of the wheels with the words that the header has."""
    plain = re.sub(r"\*\s*const\b", "*", prototype)
    plain = re.sub(r" ?\*[ *]*", lambda stars: stars[0].replace(" ", "") + " ", plain)
    (derived_field,) = c_declarations.read(f"{plain};").functions.values()
    outputs = {each[0] for each in shape["outputs"]}
    before = {each.name: each for each in known.parameters} if known else {}
    parameters = []
    for each in derived_field.parameters:
        kept = before.get(each.name, each)
        words = (kept.words - {"const", "was_in", "was_out", "returned"}) | (each.words & {"const"})
        if each.name in outputs:
            words |= set() if words & _ROLES else {"returned" if before else "out"}
        else:
            words -= _ROLES
        if earlier is not None and (each.name in earlier) != (each.name in outputs):
            words |= {"was_out" if each.name in earlier else "was_in"}
        stars = each.stars - bool(kept.count)
        parameters.append(
            replace(each, words=frozenset(words), count=kept.count, stars=stars, otherwise=kept.otherwise)
        )
    is_refused = known is None or known.is_refused
    words = known.words - {"new"} if known else frozenset[str]()
    if is_refused and not before:
        words |= {"unread"}
    return replace(
        derived_field,
        parameters=tuple(parameters),
        dialect=name,
        words=words,
        is_refused=is_refused,
    )


def functions_of(
    module: str, new: dict[str, Any], old: dict[str, Any], known: Declarations, classes: Classes
) -> list[Function]:
    """Return the functions of a module of the binding."""
    older = changed(new, old)
    extracted = []
    for symbol, (name, prototype) in new["prototypes"][module].items():
        function = function_of(
            name, prototype, new["functions"][name], older.get(name), known.functions.get(symbol)
        )
        if name not in old["functions"]:
            function = replace(function, words=function.words | {"new"})
        parameters = [
            replace(each, binding=classes.get((name, each.name), "")) for each in function.parameters
        ]
        extracted.append(replace(function, parameters=tuple(parameters)))
    return extracted


def declared(declarator: Declarator, order: Iterable[str] = _ORDER) -> str:
    """Return a parameter or a field in the notation."""
    words = "".join(f"{each} " for each in order if each in declarator.words)
    count = f"[{declarator.count}]" if declarator.count else ""
    bits = f" : {declarator.bits}" if declarator.bits else ""
    initial = f" = {declarator.initial}" if declarator.initial else ""
    binding = f" as {declarator.binding}" if declarator.binding else ""
    otherwise = f" else {declarator.otherwise}" if declarator.otherwise else ""
    plain = f"{words}{declarator.type}{'*' * declarator.stars} {declarator.name}"
    return f"{plain}{count}{bits}{initial}{binding}{otherwise}"


def prototype_of(function: Function) -> list[str]:
    """Return the lines of a function."""
    words = [each for each in ("library", "binding", "new", "unread") if each in function.words]
    words += ["refused"] * function.is_refused
    head = "".join(f"{each} " for each in words) + declared(replace(function.returns, name=function.name))
    renamed = f" = {function.dialect}" if function.dialect != function.name else ""
    parameters = [declared(each) for each in function.parameters]
    if function.is_refused and not parameters and not {"unread", "binding"} & function.words:
        return [f"{head}{renamed};"]
    since = f" since {function.since}" if function.since else ""
    variant = f" {function.variant}" if function.variant else ""
    variant += f" {function.variant_since}" if function.variant_since else ""
    return flowed(f"{head}(", parameters, f"){renamed}{since}{variant};")


def flowed(head: str, parts: list[str], end: str) -> list[str]:
    """Return parts, with a comma behind those that have no mark at their end, in lines that are not too long."""
    if not parts:
        return [head + end]
    pieces = [part if part.endswith((";", ",", "{")) else f"{part}," for part in parts]
    pieces[-1] = parts[-1] + end
    lines, line = [], head
    for piece in pieces:
        glue = "" if not line or line.endswith(("(", "    ")) else " "
        if len(line) + len(glue) + len(piece) > WIDTH and line.strip():
            lines.append(line)
            line, glue = "    " if head else "", ""
        line += glue + piece
    return [*lines, line]


def enumeration(name: str, members: dict[str, int], older: dict[str, int] | None) -> list[str]:
    """Return the lines of an enumeration."""
    parts = []
    for member, value in members.items():
        before = value if older is None else older.get(member)
        is_new = "new " if before is None else ""
        was = f" was {before}" if before not in (None, value) else ""
        parts.append(f"{is_new}{member} = {value}{was}")
    return flowed(f"enum {name} {{" if name else "enum {", parts, " };")


def numbers(known: Declarations) -> list[str]:
    """Return the numbers of the vendor's profilers: one more than the one before where none is shown."""
    parts, last = [], -1
    for name, number in known.enums[_NUMBERS].items():
        parts.append(name if number.value == last + 1 else f"{name} = {number.value}")
        last = number.value
    return flowed(f"library enum {_NUMBERS} {{", parts, " };")


def alignment(kind: str, structs: dict[str, Any]) -> int:
    """Return the alignment of a field."""
    word, _, rest = kind.partition(" ")
    if word == "struct":
        return max((alignment(each[1], structs) for each in structs[rest]["fields"]), default=1)
    if word in ("str", "bytes"):
        return 1
    if word in ("enum", "bit", "pointer"):
        return 8 if word == "pointer" else 4
    return c_declarations.SCALARS[kind.partition("[")[0]][0]


def field_of(name: str, kind: str, structs: dict[str, Any]) -> Declarator:
    """Return a field."""
    word, _, rest = kind.partition(" ")
    if word in ("str", "bytes"):
        return Declarator(name, "char", count=rest, binding="str" if word == "str" else "")
    if word == "bit":
        return Declarator(name, "unsigned int", bits=1)
    if word == "pointer":
        is_void = rest in structs and rest in VOID
        pointed = {"Pointer": "void", "ListOfUnsigned": "uint32_t"}.get(rest, rest)
        return Declarator(name, pointed, stars=0 if is_void else 1)
    if word in ("enum", "struct"):
        return Declarator(name, rest)
    base, _, count = kind.partition("[")
    return Declarator(name, base, count=count.removesuffix("]"))


def struct(name: str, structs: dict[str, Any]) -> list[str]:
    """Return the lines of a struct; bytes that no field has are an unread one."""
    described = structs[name]
    is_union = described["union"] and not any(each[3] for each in described["fields"])
    initial = bytes.fromhex(described.get("initial", ""))
    fields, end, widest = [], 0, 1
    for field, kind, _, offset, nbytes in described["fields"]:
        width = alignment(kind, structs)
        start = -(-end // width) * width
        if not is_union and not kind.startswith("bit") and start != offset:
            fields.append(unread(end, offset))
        derived_field = field_of(field, kind, structs)
        fields.append(replace(derived_field, initial=initial[offset]) if initial else derived_field)
        end, widest = max(end, offset + nbytes), max(widest, width)
    if -(-end // widest) * widest != described["size"]:
        fields.append(unread(0 if is_union else end, described["size"]))
    head = "union" if is_union else "by_name struct" if described["union"] else "struct"
    return flowed(f"{head} {name} {{", merged(fields), " };")


def unread(start: int, end: int) -> Declarator:
    """Return what lies between two offsets."""
    return Declarator(f"at{start}", "char", count=str(end - start), words=frozenset(["unread"]))


def merged(fields: list[Declarator]) -> list[str]:
    """Return fields, those of one type together: ``int x,``, ``y;``."""
    extracted: list[str] = []
    before = ""
    for each in fields:
        text = declared(each)
        kind = "" if each.stars or each.binding or each.initial or each.words else each.type
        if kind and kind == before:
            extracted[-1] = f"{extracted[-1][:-1]},"
            text = text.removeprefix(kind).lstrip()
        extracted.append(f"{text};")
        before = kind
    return extracted


def handles(names: list[str], structs: dict[str, Any]) -> list[str]:
    """Return the lines of structs whose fields nobody knows."""
    extracted = [
        each for each in structs if each in names and not structs[each]["fields"] and each not in VOID
    ]
    return flowed("struct", extracted, ";") if extracted else []


def aliases(names: list[str], table: dict[str, Any]) -> list[str]:
    """Return the lines of other names of types."""
    extracted = [f"typedef void* {each};" for each in table["structs"] if each in names and each in VOID]
    for name, real in table["aliases"].items():
        if name in names:
            extracted.append(f"typedef {table['typedefs'].get(name, real).replace(' ', '')} {name};")
    return flowed("", extracted, "") if extracted else []


def section(module: str, names: list[str], new: dict[str, Any], old: dict[str, Any]) -> list[str]:
    """Return the lines of a section: what the binding's modules have, but for functions."""
    lines = [f"module {module};"]
    lines += handles(names, new["structs"])
    for name, described in new["enums"].items():
        if name in names:
            older = old["enums"].get(name, {}).get("members") if name == "hipError_t" else None
            lines += enumeration(name, described["members"], older)
    lines += aliases(names, new)
    for name in ordered(new["structs"]):
        if name in names and new["structs"][name]["fields"]:
            lines += struct(name, new["structs"])
    return lines


def ordered(structs: dict[str, Any]) -> list[str]:
    """Return the names of structs, those first that others have as fields."""
    extracted: dict[str, None] = {}

    def add(name: str) -> None:
        for each in structs[name]["fields"]:
            if each[1].startswith("struct "):
                add(each[1].partition(" ")[2])
        extracted.setdefault(name)

    for name in structs:
        add(name)
    return [*extracted]


def header(new: dict[str, Any], old: dict[str, Any], known: Declarations, classes: Classes) -> str:
    """Return the text of the header."""
    names = [each for kind in ("enums", "structs", "aliases") for each in new[kind]]
    only = set(new["hiprtc only"])
    both = [each for each in names if each in new["hiprtc"] and each not in only]
    parts = [_TOP, f"version {new['version']};", f"earlier {old['version']};", _CODES, ""]
    parts += section("hip, hiprtc", both, new, old)
    parts += ["binding new bool has_symbol(void* name as object);", ""]
    parts += section("hiprtc", [each for each in names if each in only], new, old)
    compiler = functions_of("hiprtc", new, old, known, classes)
    parts += [line for each in compiler for line in prototype_of(each)]
    parts += ["", *section("hip", [each for each in names if each not in new["hiprtc"]], new, old)]
    parts += enumeration("", new["constants"], None)
    parts += [f'const char {name}[] = "{text}";' for name, text in new["byte constants"].items()]
    functions = functions_of("hip", new, old, known, classes)
    parts += [line for each in functions for line in prototype_of(each)]
    wheels = {each.name for each in (*compiler, *functions)}
    parts += ["", "// What only programs in C know."]
    for each in known.structs.values():
        if "library" in each.words:
            parts += flowed(f"library struct {each.name} {{", merged(list(each.fields)), " };")
    for each in known.functions.values():
        if each.name not in wheels and each.name != "has_symbol":
            parts += prototype_of(replace(each, words=each.words | {"library"}))
    return "\n".join([*parts, "", *numbers(known), ""])


def classes_of(new: dict[str, Any], text: str) -> Classes:
    """Return the binding's class for each parameter whose type does not tell it."""
    derived = binding_of(c_declarations.read(text))["functions"]
    return {
        (name, wanted[0]): wanted[1]
        for name, shape in new["functions"].items()
        for kind in ("parameters", "outputs")
        for wanted, derived_field in zip(shape[kind], derived[name][kind], strict=True)
        if wanted[0] == derived_field[0] and wanted[1] != derived_field[1]
    }


def main() -> None:
    if len(sys.argv) == 1:
        json.dump(facts(), sys.stdout)
        return
    new, old = read(sys.argv[1]), read(sys.argv[2])
    new["version"], old["version"] = version(sys.argv[1]), version(sys.argv[2])
    path = Path(sys.argv[3]) if len(sys.argv) > 3 else HEADER
    VOID.update(name for name, kind in new["typedefs"].items() if kind == "void *")
    known = c_declarations.read(path.read_text())
    classes = classes_of(new, header(new, old, known, {}))
    HEADER.write_text(header(new, old, known, classes))


if __name__ == "__main__":
    main()
