"""Take names, arities, enum values and struct layouts from the public hip-python wheels.

Usage: ``extract_hip_facts.py NEW_PYTHON OLD_PYTHON > src/peerlane/dialects/hip/facts.json``, two interpreters with
hip-python 10.0 and 7.2 installed.  No ROCm and no GPU is needed: nothing of the runtime is called.  Signatures are
read from the ``.pyx`` in the wheel; enums, constants and struct layouts are measured on the imported module.
"""

from __future__ import annotations

import ctypes
import enum
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

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
    found = {}
    places = [*_DEFINITION.finditer(text)]
    for place, after in zip(places, [*places[1:], None], strict=True):
        if place[0].startswith(keyword + " "):
            found[place[1]] = (place[2] or "", text[place.end() : after.start() if after else len(text)])
    return found


def parameters(head: str, body: str) -> list[list[str]]:
    """Return the name and the kind of each parameter."""
    found = []
    for each in filter(None, (part.strip() for part in head.split(","))):
        kind, _, name = each.rpartition(" ")
        if kind in ("object", ""):
            enumeration = re.search(rf"isinstance\({name}, ?_(\w+)__Base\)", body)
            adapter = re.search(rf"([\w.]+)\.fromPyobj\({name}\)", body)
            kind = enumeration[1] if enumeration else adapter[1].rpartition(".")[2] if adapter else "object"
        found.append([name, kind])
    return found


def outputs(body: str) -> list[list[str]]:
    """Return the name and the kind of each value that comes back behind the error code."""
    code = r"(?:(?:hipError_t|hiprtcResult)(?:\.\w+|\(\w+\))|_\w+__retval)"
    returned = re.search(rf"return \({code},(.*)\)\n", body)
    if returned is None:
        return []
    found = []
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
        found.append([name, kind.rpartition(".")[2] or kind, *(["maybe"] if "== NULL" in each else [])])
    return found


def members(kind: type[enum.IntEnum]) -> dict[str, int]:
    """Return the members of an enumeration with their values, aliases too."""
    return {name: int(member) for name, member in kind.__members__.items()}


def place_of(thing: Any, name: str, size: int) -> list[int]:
    """Return where a field lies in its struct: the first byte that changes what is read, and how many do."""
    memory = (ctypes.c_ubyte * size).from_address(int(thing))

    def seen() -> object:
        try:
            value = getattr(thing, name)
        except ValueError:  # no member of an enumeration
            return "no member"
        return int(value) if not isinstance(value, (str, bytes, list, float)) else value

    ctypes.memset(memory, 0, size)
    before, changing = seen(), []
    inner = getattr(thing, name)
    if hasattr(inner, "c_sizeof") and int(inner):
        return [int(inner) - int(thing), inner.c_sizeof()]
    for at in range(size):
        memory[at] = _PROBE
        if seen() != before:
            changing.append(at)
        memory[at] = 0
    return [changing[0], len(changing)] if changing else []


def place_by_setting(thing: Any, name: str, size: int, value: int) -> int:
    """Return the first bit that is set when a field of zeroed memory is given a value, -1 for none."""
    memory = (ctypes.c_ubyte * size).from_address(int(thing))
    ctypes.memset(memory, 0, size)
    getattr(thing, f"set_{name}")(0, value)
    bits = int.from_bytes(memory, "little")
    return (bits & -bits).bit_length() - 1


def field(module: ModuleType, thing: Any, name: str, body: str, size: int) -> list[Any]:
    """Return the name, the C type, whether it can be set, the first byte and the bytes of a field."""
    kind, settable = field_kind(body, name)
    word, _, enumeration = kind.partition(" ")
    if word == "enum":  # 0 may be no member, so that the field cannot be read
        member = max(getattr(module, enumeration), key=abs)
        if member:
            nbytes = ctypes.sizeof(ctypes.c_int)
            at = place_by_setting(thing, name, size, member) // 8
            return [name, kind, settable, at // nbytes * nbytes, nbytes]
    if settable and kind == "unsigned int" and place_by_setting(thing, name, size, 2) < 0:
        at = place_by_setting(thing, name, size, 1)
        return [name, f"bit {at % 8}", settable, at // 8, 1]
    place, nbytes = place_of(thing, name, size)
    if word == "str":  # only the first character of an empty text changes it
        nbytes = int(enumeration)
    return [name, kind, settable, place, nbytes]


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
        found = re.search(pattern, text)
        if found:
            return f"{kind} {found[1]}", setter is not None
    return (setter or unset)[1] if setter or unset else "unknown", setter is not None


def structs(module: ModuleType, text: str) -> dict[str, Any]:
    """Return size and fields of each struct; opaque handles have no fields."""
    found = {}
    for name, (_, body) in bodies(text, "cdef class").items():
        kind = getattr(module, name, None)
        if kind is None or not hasattr(kind, "PROPERTIES"):
            continue
        fields = kind.PROPERTIES()
        if not fields:
            found[name] = {"size": 0, "fields": [], "union": False}
            continue
        thing = kind()
        size = thing.c_sizeof()
        initial = ctypes.string_at(int(thing), size)
        found[name] = {
            "size": size,
            "fields": [field(module, thing, each, body, size) for each in fields],
            "union": "def __init__(self,**kwargs)" in body,
        }
        if any(initial):
            found[name]["initial"] = initial.hex()
    for name, kind in vars(module).items():  # pointers that another module of the wheel defines
        if isinstance(kind, type) and hasattr(kind, "createRef") and kind.__name__ == name:
            found.setdefault(name, {"size": 0, "fields": [], "union": False})
    return found


def typestrs() -> dict[str, int]:
    """Return the bytes of an element for each type code that an array takes; 0: it must be told."""
    arrays = importlib.import_module("hip")._util.types.NDBuffer
    found = {}
    for code in arrays.NUMPY_CHAR_CODES:
        array = arrays(bytearray(64))
        try:
            found[code] = array.configure(typestr=code, shape=(1,), _force=True).itemsize
        except ValueError:
            found[code] = 0
    return found


def facts() -> dict[str, Any]:
    """Return what this interpreter's wheel says."""
    compiler = importlib.import_module("hip").hiprtc
    own, others = described(hip()), described(compiler)
    kinds = ("functions", "enums", "structs", "aliases")
    return {
        **own,
        **{kind: {**others[kind], **own[kind]} for kind in kinds},
        "typestrs": typestrs(),
        "hiprtc": [name for kind in kinds for name in others[kind]],
        "hiprtc only": [name for kind in kinds for name in others[kind] if not hasattr(hip(), name)],
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


def version(interpreter: str) -> str:
    """Return the version of an interpreter's hip-python."""
    code = "from importlib.metadata import version; print(version('hip-python'))"
    return subprocess.run(
        [interpreter, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def read(interpreter: str) -> dict[str, Any]:
    """Run this script in another interpreter."""
    done = subprocess.run([interpreter, __file__], check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def older(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Return what the older wheel has otherwise: of each function with other parameters, these and its outputs."""
    changed = [
        name
        for name, parts in old["functions"].items()
        if name in new["functions"]
        and [each[0] for each in parts["parameters"]]
        != [each[0] for each in new["functions"][name]["parameters"]]
    ]
    return {
        "parameters": {name: old["functions"][name]["parameters"] for name in changed},
        "outputs": {name: old["functions"][name]["outputs"] for name in changed},
        "missing": sorted(set(new["functions"]) - set(old["functions"])),
        "errors": {
            name: value
            for name, value in old["enums"]["hipError_t"]["members"].items()
            if new["enums"]["hipError_t"]["members"].get(name) != value
        },
        "missing errors": [
            name
            for name in new["enums"]["hipError_t"]["members"]
            if name not in old["enums"]["hipError_t"]["members"]
        ],
    }


def main() -> None:
    if len(sys.argv) == 1:
        json.dump(facts(), sys.stdout)
        return
    new, old = read(sys.argv[1]), read(sys.argv[2])
    table = {
        "version": version(sys.argv[1]),
        **new,
        "older": {"version": version(sys.argv[2]), **older(new, old)},
    }
    text = json.dumps(table, indent=1)  # in the order of definition: the first of equal members counts
    # A line for each list of plain values: the table is read by people too.
    print(re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text))


if __name__ == "__main__":
    main()
