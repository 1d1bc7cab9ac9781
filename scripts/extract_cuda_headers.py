"""Writes the headers of CUDA from sources whose licences allow it: wheels, tables of other projects, HIP's header.

Usage: ``extract_cuda_headers.py NEW_PYTHON OLD_PYTHON ZLUDA NCCL HIPIFY``.  The first interpreter has the wheels
cuda-bindings 13, nccl4py, nvidia-ml-py and numpy, the second one cuda-bindings 12.9 and numpy; then come checkouts of
three repositories.  No GPU and no driver is needed, and nothing of NVIDIA's own headers is read.

================  ====================  ==================================================================
source            licence               what it is read for
================  ====================  ==================================================================
cuda-bindings     Apache-2.0            prototypes, types, values of enumerators, layouts, versions
nccl4py           Apache-2.0            NCCL's prototypes, types and layouts
nvidia-ml-py      BSD                   NVML's constants, and a function that no other source has
ZLUDA             MIT or Apache-2.0     the driver's and NVML's older functions and types, versions
NCCL              Apache-2.0            NCCL's constants
hip.h.txt         this project's        functions on symbols and launches, which HIP took over with new names
HIPIFY            MIT                   the names of the runtime's functions that no other source has
================  ====================  ==================================================================

The versions of the driver's functions are measured: a library in the driver's stead writes down which names and
versions the wheels ask ``cuGetProcAddress_v2`` for.  Words that a header has already stay: see
``docs/guides/vendor-headers.md``.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "src/peerlane/dialects/cuda"
sys.path.insert(0, str(ROOT / "native/headers"))

from sources import use_sources  # noqa: E402

use_sources()

from extract_hip_header import enumeration, flowed, prototype_of  # noqa: E402
from peerlane.dialects._shared import c_declarations  # noqa: E402
from peerlane.dialects._shared.c_declarations import SCALARS, Declarations, Function  # noqa: E402
from peerlane.dialects._shared.c_layout import Layout  # noqa: E402

Versions: TypeAlias = (
    "Mapping[str, tuple[int, str, int]]"  # of a function; the ending and version of its variant
)
_TOP = """\
// {title}: scripts/extract_cuda_headers.py writes this file.
// The notation: src/peerlane/dialects/_shared/c_declarations.py.  Sources: {sources}.
{codes}
version {version};"""
#: Of each header what its calls return, or the header that it changes.
_CODES = {
    "cuda": "codes CUresult;\nfailed 999;\nended 4;",
    "cudart": "codes cudaError_t;\nfailed 999;\nended 4;",
    "cudart12": "include cudart;",
    "nvml": "codes nvmlReturn_t;\nfailed 999;\nended 1;",
    "nccl": "codes ncclResult_t;\nfailed 3;",
}
_MEASURED = (
    ("cuda.bindings._v2.driver", "CU"),
    ("cuda.bindings.nvml", "nvml"),
    ("nccl.bindings.nccl", "nccl"),
)
_ENDINGS = {
    r"\b_cyb_bool\b": "bool",
    r"\bsigned (?=long|int|char)": "",
    r"\bunsigned long int\b": "unsigned long",
    r"\bunsigned (?!int|long|char|short)": "unsigned int ",
}
#: The functions of HIP whose prototypes are those of CUDA's runtime but for the names.
_TWINS = re.compile(
    r"(GetFuncBySymbol|GetSymbol\w+|Memcpy(To|From)Symbol(Async)?|Graph\w*Memcpy\w+Symbol|LaunchKernel(ExC)?"
    r"|LaunchCooperativeKernel(MultiDevice)?|OccupancyMaxActiveClusters|SetValidDevices|StreamGetCaptureInfo)"
)
_RENAMED = {"hipLaunchConfig_st": "cudaLaunchConfig_t", "hipLaunchParams_t": "cudaLaunchParams"}
#: Copies and fills of the runtime that block, and so use the default stream without a parameter for it.
_BLOCKING = re.compile(r"cuda(Memcpy(?!\w*(Async|Node|Batch|Attributes))\w*|Memset(?!\w*Async)\w*)")
#: What uses a stream that no parameter names, or looks up a function that uses one.
_STREAM_INSIDE = re.compile(
    r"cuda(GraphInstantiateWithParams|LaunchKernelExC|GetDriverEntryPoint(ByVersion)?)"
)
#: What has no variant for threads although it uses a stream.
_ONE_VARIANT = re.compile(r"cuda(StreamDestroy|Graphics\w+Resources|MemcpyPeer(Async)?)")
_STANDS_IN = """
#include <stdio.h>
#include <stdlib.h>
int cuGetProcAddress_v2(const char* name, void** f, int version, unsigned long long flags, void* status) {
    FILE* file = fopen(getenv("ASKED"), "a");
    fprintf(file, "%s %d\\n", name, version);
    fclose(file);
    *f = 0;
    return 500;
}
"""


# In the wheels' interpreters.


def facts() -> dict[str, Any]:
    """Return what this interpreter's wheels have."""
    extracted: dict[str, Any] = {
        "enums": {},
        "constants": {},
        "signatures": {},
        "layouts": {},
        "versions": {},
    }
    package = importlib.import_module("cuda.bindings")
    extracted["folder"] = str(Path(str(package.__file__)).parent)
    for name in ("cuda-bindings", "nccl4py", "nvidia-ml-py"):
        try:
            extracted["versions"][name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    for name in ("driver", "runtime"):
        module = importlib.import_module(f"cuda.bindings.{name}")
        for each, value in vars(module).items():
            if hasattr(value, "__members__"):
                extracted["enums"][each] = {key: int(member) for key, member in value.__members__.items()}
            elif type(value).__name__ in ("builtin_function_or_method", "cython_function_or_method"):
                extracted["signatures"][each] = (value.__doc__ or "").partition("\n")[0]
        extracted["constants"][name] = {
            each: int(value)
            for each, value in vars(module).items()
            if re.match(r"(cu|CU)", each) and type(value) is int and not each.endswith("_AS_INT")
        }
    for name, prefix in _MEASURED:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        extracted["layouts"] |= measured(module, prefix)
    try:
        pynvml = importlib.import_module("pynvml")
        extracted["constants"]["nvml"] = {
            each: value
            for each, value in vars(pynvml).items()
            if each.startswith("NVML_") and type(value) is int
        }
    except ImportError:
        pass
    return extracted


def measured(module: Any, prefix: str) -> dict[str, Any]:
    """Return the size of each struct that a module has a class for, and where its fields lie and their sizes."""
    extracted = {}
    for name, kind in vars(module).items():
        text = getattr(kind, "__doc__", None) or ""
        called = re.search(rf"nitialize an (?:instance|array) of `({prefix}\w+|CUDA_\w+)`", text)
        table = getattr(module, f"{re.sub(r'(?<=[a-z0-9])(?=[A-Z])', '_', name).lower()}_dtype", None)
        if called and table is not None:
            by_order = [table.fields[each] for each in table.names]
            extracted[called[1]] = [table.itemsize, [[each[1], each[0].itemsize] for each in by_order]]
    return extracted


# What is read from text.


@dataclass
class Source:
    """The declarations of a source, types in C's notation without the names of tags."""

    enums: dict[str, dict[str, int]] = field(default_factory=dict)
    structs: dict[str, tuple[bool, list[str]]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    callbacks: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)

    def knows(self, name: str) -> bool:
        """Whether a type is declared."""
        return any(name in each for each in (self.enums, self.structs, self.aliases, self.callbacks))

    def take(self, other: Source, names: Iterable[str]) -> None:
        """Add functions of another source, and the types that they need."""
        for name in names:
            self.functions[name] = other.functions[name]
            derived = read_function(other.functions[name])
            for each in (derived.returns, *derived.parameters):
                self._take_type(other, each.type)

    def _take_type(self, other: Source, name: str) -> None:
        if name in SCALARS or name == "void" or self.knows(name):
            return
        for kind in ("enums", "structs", "aliases", "callbacks"):
            if name in getattr(other, kind):
                getattr(self, kind)[name] = getattr(other, kind)[name]
        if name in other.structs:
            for each in other.structs[name][1]:
                self._take_type(other, base(each))
        elif name in other.aliases:
            self._take_type(other, base(f"{other.aliases[name]} it"))


def cython(text: str) -> Source:
    """Read the declarations of a ``.pxd`` or ``.pxi``."""
    text = re.sub(r"#.*", "", re.sub(r'""".*?"""', "", text, flags=re.DOTALL))
    text = re.sub(r"\(\s*\n([^()]*)\)", lambda inside: f"({' '.join(inside[1].split())})", text)
    text = re.sub(r""" ?(["'])(?:(?!\1).)*\1(?=[\s:(),=]|$)""", "", text)
    extracted, block, depth = Source(), None, 0
    numbers: dict[str, int] = {}
    for line in text.splitlines():
        plain, indent = line.strip(), len(line) - len(line.lstrip())
        if not plain:
            continue
        if "cdef extern" in plain or re.match(r"(from|include|cimport|import)\b", plain):
            block = None
            continue
        if block is not None and indent > depth:
            member(block, plain, numbers)
            continue
        block = None
        if head := re.match(r"(?:cdef|ctypedef) (enum|struct|union) (\w+)\s*:$", plain):
            depth = indent
            if head[1] == "enum":
                block = extracted.enums.setdefault(head[2], {})
            elif head[2] != "void":
                block = extracted.structs.setdefault(head[2], (head[1] == "union", []))[1]
        elif callback := re.match(r"ctypedef (.+?) ?\(\*\s*(\w+)\s*\)\s*\((.*)\)", plain):
            extracted.callbacks[callback[2]] = f"{callback[1]} {callback[2]}({callback[3]})"
        elif alias := re.match(r"ctypedef (.+?[ *])(\w+)$", plain):
            extracted.aliases[alias[2]] = normal(alias[1])
        elif function := re.match(r"cdef (.+?[ *])_?(\w+)\((.*)\)[^)]*nogil", plain):
            name = function[2]
            extracted.functions[name] = f"{function[1]}{name}({function[3]})"
    return named(untagged(extracted))


def named(source: Source) -> Source:
    """Give names to the structs without one that a field has an array of."""
    for outer, (_, fields) in [*source.structs.items()]:
        for at, text in enumerate(fields):
            kind = base(text)
            if is_anonymous(kind) and text.endswith("]"):
                name = f"{outer}_{text.partition('[')[0].split()[-1]}"
                source.structs[name] = source.structs.pop(kind)
                fields[at] = text.replace(kind, name)
    return source


def member(block: Any, plain: str, numbers: dict[str, int]) -> None:
    """Add a line of a struct or an enumeration; ``numbers`` are the values of all enumerators before it."""
    if plain == "pass":
        return
    if isinstance(block, list):
        block.append(normal(plain))
        return
    name, _, value = (part.strip() for part in plain.partition("="))
    if name.endswith("LOADING_ERROR"):
        return
    before = [*block.values()][-1] if block else -1
    if value:
        value = re.sub(r"sizeof\(\w+\)", "4", value)
        block[name] = eval(value, {}, numbers)
    else:
        block[name] = None if before is None else before + 1
    numbers[name] = block[name]


def normal(text: str) -> str:
    """Return a type, with or without a name, as the headers of this project write it."""
    for pattern, word in _ENDINGS.items():
        text = re.sub(pattern, word, text)
    text = re.sub(r"\*\s*const\b", "*", text)
    text = re.sub(r"\s*(\*[\s*]*)", lambda stars: stars[1].replace(" ", "") + " ", text)
    text = re.sub(r"\[(0x\w+)\]", lambda count: f"[{int(count[1], 0)}]", text)
    return re.sub(r"\b(device|from|private)_\b", r"\1", " ".join(text.split()))


def untagged(source: Source) -> Source:
    """Call each struct and enumeration by its first name that is no tag."""
    names: dict[str, str] = {}
    for alias, real in source.aliases.items():
        fields = source.structs.get(real)
        if alias != real and (real in source.enums or (fields and fields[1])):
            names.setdefault(real, alias)
    for tag, name in names.items():
        del source.aliases[name]
        for table in (source.enums, source.structs):
            if tag in table:
                table[name] = table.pop(tag)  # type: ignore[attr-defined, index]
    pattern = re.compile(rf"\b(?:{'|'.join(names) or 'no tag'})\b")

    def called(text: str) -> str:
        return pattern.sub(lambda each: names[each[0]], normal(text))

    return Source(
        source.enums,
        {name: (is_union, [*map(called, fields)]) for name, (is_union, fields) in source.structs.items()},
        {name: called(real) for name, real in source.aliases.items() if called(real) != name},
        {name: called(each) for name, each in source.callbacks.items()},
        {name: called(each) for name, each in source.functions.items()},
    )


_RUST = {
    "c_void": "void", "c_int": "int", "c_uint": "unsigned int", "c_char": "char", "c_uchar": "unsigned char",
    "c_short": "short", "c_ushort": "unsigned short", "c_ulong": "unsigned long", "c_long": "long",
    "c_ulonglong": "unsigned long long", "c_longlong": "long long", "usize": "size_t", "f32": "float",
    "f64": "double", "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t", "i32": "int32_t",
    "i64": "int64_t", "c_schar": "char",
}  # fmt: skip


def rust_type(text: str, name: str) -> str:
    """Return a type of Rust in C's notation, with the name of what has it."""
    text = re.sub(r"::core::ffi::|cuda_types::\w+::|\bsuper::", "", " ".join(text.split()))
    if array := re.fullmatch(r"\[(.*); (\d+)usize\]", text):
        return f"{rust_type(array[1], name)}[{array[2]}]"
    if text.startswith(("Option<", "::core::option::Option<")):
        return f"void* {name}"
    stars, const = "", ""
    while pointer := re.match(r"\*(mut|const) (.*)", text):
        stars += "*"
        const, text = ("const " if pointer[1] == "const" else ""), pointer[2]
    return f"{const}{_RUST.get(text, text)}{stars} {name}"


def rust(functions: str, types: str) -> Source:
    """Read ZLUDA's declarations; its comments are not looked at."""
    extracted = Source()
    functions = re.sub(r"/\*.*?\*/", "", functions, flags=re.DOTALL)
    for each in re.finditer(r"fn (\w+)\(([^()]*(?:\([^()]*\)[^()]*)*)\)\s*(?:->\s*([\w:* ]+))?;", functions):
        parts = [part.partition(":") for part in re.split(r",(?![^()<]*[)>])", each[2]) if part.strip()]
        parameters = [rust_type(kind, name.strip()) for name, _, kind in parts]
        kind = rust_type(each[3], each[1]) if each[3] else f"void {each[1]}"
        extracted.functions[each[1]] = f"{kind}({', '.join(parameters)})"
    types = re.sub(r"///.*|/\*[^*]*\*/", "", types)
    for each in re.finditer(r"pub (struct|union) (\w+) \{(.*?\n)\}", types, re.DOTALL):
        fields = re.findall(r"pub (\w+): ([^\n]+),\n", each[3])
        known = [rust_type(kind, name) for name, kind in fields if not name.startswith("__bindgen")]
        extracted.structs[each[2]] = (
            each[1] == "union",
            [] if fields == [("_unused", "[u8; 0usize]")] else known,
        )
    for each in re.finditer(r"pub struct (\w+)\((?:pub )?([^()]+)\);", types):
        extracted.aliases[each[1]] = rust_type(each[2], "").strip()
    for each in re.finditer(r"pub type (\w+) = ([^;{}]+);", types):
        if each[1] not in _RUST and "Result" not in each[2]:
            extracted.aliases[each[1]] = rust_type(each[2], "").strip()
    for each in re.finditer(r"impl (\w+) \{(.*?)\n\}", types, re.DOTALL):
        values = re.findall(r"pub const (\w+): \w+ = \w+\(\s*(-?\d+)\w*,?\s*\);", each[2])
        if values:
            extracted.aliases.pop(each[1], None)
            extracted.enums[each[1]] = {name: int(value) for name, value in values}
    return untagged(extracted)


def versions_in_tables(text: str) -> dict[str, tuple[int, str, int]]:
    """Return the version of each function of ZLUDA's table, and the ending and version of its other variant."""
    extracted: dict[str, tuple[int, str, int]] = {}
    for each in re.finditer(r'\(b"\w+", ([02])\) => \{(.*?)\n    \}', text, re.DOTALL):
        for version, symbol in re.findall(r"version >= (\d+) \{\s*return (\w+) as _;", each[2]):
            base, ending = split(symbol)
            since, kind, variant = extracted.get(base, (0, "", 0))
            if ending:
                extracted[base] = since, ending, int(version)
            elif each[1] == "0":
                extracted[base] = int(version), kind, variant
    return extracted


def split(symbol: str) -> tuple[str, str]:
    """Return a symbol without the ending of a variant for the default streams of threads, and that ending."""
    base, ending = re.fullmatch(r"(\w+?)(?:_(ptds|ptsz))?", symbol).groups()  # type: ignore[union-attr]
    return base, ending or ""


def asked(interpreter: str, symbols: list[str]) -> dict[str, int]:
    """Return the version with which a wheel asks for each function, in the order of its declarations."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "driver.c").write_text(_STANDS_IN)
        library = f"{folder}/libcuda.so.1"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, f"{folder}/driver.c"], check=True)
        code = "from cuda.bindings import driver\ntry: driver.cuInit(0)\nexcept Exception: pass"
        variables = {**os.environ, "LD_LIBRARY_PATH": folder, "ASKED": f"{folder}/asked"}
        subprocess.run([interpreter, "-c", code], check=True, env=variables, capture_output=True)
        lines = [line.split() for line in Path(folder, "asked").read_text().splitlines()]
    extracted = {}
    for symbol, (name, version) in zip(symbols, lines, strict=True):
        if re.sub(r"_v\d+$", "", symbol) != re.sub(r"_v\d+$", "", name):
            raise ValueError(f"the wheel asks for {name} where it declares {symbol}")
        extracted[symbol] = int(version)
    return extracted


# The headers.


class Writer:
    """Writes one header.

    Parameters
    ----------
    source : Source
    measured : mapping
        The layouts that the wheels have.
    signatures : mapping of str to str
        Python's signatures of functions: what they lack is an output.
    known : Declarations
        The header as it is, whose words stay.
    """

    def __init__(
        self, source: Source, measured: Mapping[str, Any], signatures: Mapping[str, str], known: Declarations
    ) -> None:
        self.source, self.measured, self.signatures, self.known = source, measured, signatures, known

    def types(self, seen: Iterable[str] = ()) -> list[str]:
        """Return the lines of all types, those first that others need."""
        lines, source = [], self.source
        opaque = [each for each, (_, fields) in source.structs.items() if not fields and each not in seen]
        if opaque:
            lines += flowed("struct", opaque, ";")
        for name, members in source.enums.items():
            if name not in seen:
                lines += enumeration(name, members, None)
        done = {*SCALARS, *seen, *opaque, *source.enums, "void"}
        structs = [each for each in source.structs if each not in done and not is_anonymous(each)]
        aliases = [each for each in source.aliases if each not in done]
        callbacks = [each for each in source.callbacks if each not in done]
        pending = [*aliases, *callbacks, *structs]
        while pending:
            ready = [each for each in pending if self.needs(each) <= done]
            if not ready:
                raise ValueError(
                    f"these types need others: {[(each, self.needs(each) - done) for each in pending]}"
                )
            plain = [f"typedef {source.aliases[each]} {each};" for each in ready if each in source.aliases]
            if plain:
                lines += flowed("", plain, "")
            for each in ready:
                if each in source.callbacks:
                    lines += prototype(f"callback {source.callbacks[each]}")
                elif each in source.structs:
                    lines += self.struct(each)
            done |= {*ready}
            pending = [each for each in pending if each not in done]
        return lines

    def needs(self, name: str) -> set[str]:
        """Return the types that must be declared before one."""
        source = self.source
        if name in source.aliases:
            return {base(source.aliases[name] + " it")}
        if name in source.callbacks:
            return set()
        needed: set[str] = set()
        for each in source.structs[name][1]:
            kind = base(each)
            needed |= self.needs(kind) if is_anonymous(kind) else set() if "*" in each else {kind}
        return needed

    def struct(self, name: str) -> list[str]:
        """Return the lines of a struct, with what lies between its fields."""
        is_union, fields = self.source.structs[name]
        if len(fields) == 1:  # what is nothing but bytes is not a text
            fields = [re.sub(r"^char (?=\w+\[)", "unsigned char ", fields[0])]
        _, starts = self.measured.get(name, (0, []))
        if len(starts) == len(fields) and not is_union:
            parts = overlapping([*map(self.field, fields)], starts)
        else:
            parts = [self.field(each) for each in fields]
            if name in _UNIONS:
                parts = by_hand(parts, _UNIONS[name])
        pieces = [piece for each in parts for piece in re.split(r"(?<=[;{]) ", each)]
        return flowed(f"{'union' if is_union else 'struct'} {name} {{", merged(pieces), " };")

    def field(self, text: str) -> str:
        """Return a field in the notation."""
        kind = base(text)
        if not is_anonymous(kind):
            return f"{text};"
        is_union, fields = self.source.structs[kind]
        inside = " ".join(map(self.field, fields))
        name = re.sub(r"_anon_pod_member\d+", "", text.removeprefix(kind)).strip()
        return f"{'union' if is_union else 'struct'} {{ {inside} }} {name};"

    def functions(self, names: Iterable[str], versions: Versions | None = None) -> list[str]:
        """Return the lines of functions."""
        lines = []
        for name in names:
            derived = read_function(f"unread refused {self.source.functions[name]}")
            outputs = missing(derived, self.signatures.get(re.sub(r"_v\d+$", "", name)))
            derived = kept(derived, outputs, self.known.functions.get(name))
            since, ending, variant_since = (versions or {}).get(name, (0, "", 0))
            derived = replace(derived, since=since, variant=ending, variant_since=variant_since)
            lines += prototype_of(derived)
        return lines


def merged(fields: list[str]) -> list[str]:
    """Return fields, those of one type together: ``int x,``, ``y;``."""
    extracted: list[str] = []
    before = ""
    for each in fields:
        match = re.fullmatch(r"(\w[\w ]*) (\w+(?:\[\w+\])?;)", each)
        kind = match[1] if match else ""
        if match and kind == before:
            extracted[-1] = f"{extracted[-1][:-1]},"
            each = match[2]
        extracted.append(each)
        before = kind
    return extracted


def is_anonymous(name: str) -> bool:
    """Whether a wheel made the name of a struct or union that has none."""
    return bool(re.search(r"anon_(?:pod|struct|union)\d+$", name))


def base(text: str) -> str:
    """Return the type in a declaration, without stars."""
    return c_declarations._declarator(text.replace(";", "")).type


def prototype(text: str) -> list[str]:
    """Return the lines of a declaration with parameters."""
    head, _, rest = text.partition("(")
    parameters = [each.strip() for each in rest.rpartition(")")[0].split(",")] if rest != ")" else []
    return flowed(f"{head}(", [each for each in parameters if each], ");")


def read_function(text: str) -> Function:
    """Return the function of a declaration."""
    (derived,) = c_declarations.read(f"{text};").functions.values()
    return derived


def missing(function: Function, signature: str | None) -> set[str]:
    """Return the parameters that Python's signature of a function lacks, and that C can write to.

    What ``void*`` points to has no size, so it is none of them.
    """
    if signature is None or "(" not in signature:
        return set()
    inside = signature.partition("(")[2].rpartition(")")[0]
    parts = re.split(r",(?![^\[(]*[\])])", inside)
    named = {re.findall(r"\w+", re.split(r"[:=]", each)[0])[-1].rstrip("_") for each in parts if each.strip()}
    return {
        each.name
        for each in function.parameters
        if each.is_pointer
        and "const" not in each.words
        and each.name not in named
        and (each.type, each.stars) != ("void", 1)
    }


def kept(function: Function, outputs: set[str], known: Function | None) -> Function:
    """Return a function with the words that the header has for it, or with those of its outputs."""
    before = {each.name: each for each in known.parameters} if known else {}
    parameters = []
    for each in function.parameters:
        if each.name in before:
            old = before[each.name]
            words = (old.words - {"const"}) | (each.words & {"const"})
            each = replace(each, words=words, count=old.count, stars=each.stars - bool(old.count))
            each = replace(each, otherwise=old.otherwise)
        elif each.name in outputs:
            each = replace(each, words=each.words | {"out"})
        parameters.append(each)
    if known is not None:
        function = replace(function, is_refused=known.is_refused, words=known.words, outputs=known.outputs,
                           reason=known.reason)  # fmt: skip
    return replace(function, parameters=tuple(parameters))


def overlapping(fields: list[str], starts: list[list[int]]) -> list[str]:
    """Return fields, in unions those that lie over each other: the wheels show no union that has no name."""
    parts: list[list[Any]] = []  # where one begins and ends, and its alternatives
    for text, (start, size) in zip(fields, starts, strict=True):
        if parts and start < parts[-1][1]:
            while start < parts[-1][0]:
                before = parts.pop()
                parts[-1][2][-1] += before[2][-1]
                parts[-1][1] = max(parts[-1][1], before[1])
            if start == parts[-1][0]:
                parts[-1][2].append([text])
            else:
                parts[-1][2][-1].append(text)
            parts[-1][1] = max(parts[-1][1], start + size)
        else:
            parts.append([start, start + size, [[text]]])
    extracted = []
    for _, _, alternatives in parts:
        if len(alternatives) == 1:
            extracted += alternatives[0]
            continue
        inside = " ".join(
            each[0] if len(each) == 1 else f"struct {{ {' '.join(each)} }};" for each in alternatives
        )
        extracted.append(f"union {{ {inside} }};")
    return extracted


#: Unions without a name in structs that no wheel measures, by the names of their fields.
_UNIONS = {
    "cudaPointerAttributes": ("localityDomainOrdinal", "unused"),
    "cudaMemLocation": ("id", "localized"),
    "cudaKernelNodeParamsV2": ("func", "kern", "cuFunc"),
    "cudaDevResource": ("sm", "wqConfig", "wq", "_oversize"),
    "cudaGraphNodeParams": (
        "reserved1", "kernel", "memcpy", "memset", "host", "graph", "eventWait", "eventRecord", "extSemSignal",
        "extSemWait", "alloc", "free", "conditional", "memcpyBatch",
    ),
}  # fmt: skip


def by_hand(fields: list[str], names: tuple[str, ...]) -> list[str]:
    """Return fields, some of them in a union."""
    extracted: list[str] = []
    inside = [each for each in fields if re.search(r"(\w+)(\[.*\])?;$", each)[1] in names]  # type: ignore[index]
    if len(inside) < 2:
        return fields
    for each in fields:
        if each not in inside:
            extracted.append(each)
        elif each == inside[0]:
            extracted.append(f"union {{ {' '.join(inside)} }};")
    return extracted


def different(declared: Declarations, measured: Mapping[str, Any]) -> list[str]:
    """Return the structs that are not as the wheels have them."""
    layout, extracted = Layout(declared), []
    for name, (size, starts) in measured.items():
        if name not in declared.structs or not declared.structs[name].fields:
            continue
        derived = layout.struct(name)
        offsets = [each for each, _ in offsets_in(derived)]
        wanted = [each for each, _ in starts]
        if (ctypes.sizeof(derived), offsets) != (size, wanted):
            extracted.append(f"{name}: {ctypes.sizeof(derived)} {offsets}, measured {size} {wanted}")
    return extracted


def offsets_in(kind: Any, start: int = 0) -> list[tuple[int, str]]:
    """Return where the fields of a class lie, those of unions without a name too."""
    extracted = []
    for name, inner, *_ in kind._fields_:
        at = start + getattr(kind, name).offset
        extracted += offsets_in(inner, at) if name.startswith("anonymous") else [(at, name)]
    return extracted


def with_values(source: Source, enums: Mapping[str, Mapping[str, int]]) -> Source:
    """Return a source whose enumerators have the values that the wheel's classes have."""
    extracted = {name: {**members, **enums.get(name, {})} for name, members in source.enums.items()}
    return replace(source, enums=extracted)


def driver(
    new: dict[str, Any], old: dict[str, Any], new_python: str, old_python: str, zluda: Path
) -> list[str]:
    """Return the lines of the driver's header."""
    folders = [Path(each["folder"]) for each in (new, old)]
    newer, older = (with_values(cython((each / "cydriver.pxd").read_text()), facts["enums"])
                    for each, facts in zip(folders, (new, old), strict=True))  # fmt: skip
    symbols, before = (cython((each / "_internal/driver.pxd").read_text()).functions for each in folders)
    table = rust(
        (zluda / "cuda_macros/src/cuda.rs").read_text(), (zluda / "cuda_types/src/cuda.rs").read_text()
    )
    newer.functions = {**symbols}
    newer.take(replace(older, functions=before), [each for each in before if each not in symbols])
    newer.take(
        table, [each for each in table.functions if each not in newer.functions and not split(each)[1]]
    )
    versions = versions_in_tables((zluda / "zluda_bindgen/src/process_table.rs").read_text())
    measured = {**asked(old_python, [*before]), **asked(new_python, [*symbols])}
    for name in newer.functions:
        _, ending, variant = versions.get(name, (0, "", 0))
        since = measured.get(name, versions.get(name, (0, "", 0))[0])
        if name not in versions and "CUstream " in newer.functions[name]:
            ending, variant = "ptsz", since
        versions[name] = since, ending, variant
    writer = Writer(newer, new["layouts"], new["signatures"], known("cuda"))
    lines = writer.types() + enumeration("", new["constants"]["driver"], None)
    return lines + writer.functions(newer.functions, versions)


def runtime(new: dict[str, Any], old: dict[str, Any], hipify: Path) -> tuple[list[str], list[str]]:
    """Return the lines of the header of version 13 of the runtime, and those of what only version 12 has."""
    folder, older = Path(new["folder"]), Path(old["folder"])
    newer = with_values(cython((folder / "cyruntime.pxd").read_text()), new["enums"])
    parts = (
        "cyruntime_types.pxi",
        "_lib/cyruntime/cyruntime.pxd",
        "cyruntime.pxd",
        "cyruntime_functions.pxi",
    )
    before = cython("".join((older / each).read_text() for each in parts))
    symbols = cython((older / "_bindings/cyruntime.pxd").read_text()).functions
    before = with_values(before, old["enums"])
    before.functions = symbols
    twins = twins_of_hip()
    newer.functions = {name: text for name, text in newer.functions.items() if name.startswith("cuda")}
    newer.functions |= {name: text for name, text in twins.items() if name not in _LATE}
    text = (hipify / "src/CUDA2HIP_Runtime_API_functions.cpp").read_text()
    names = [
        each for each in dict.fromkeys(re.findall(r'\{"(cuda\w+)"', text)) if each not in newer.functions
    ]
    gone = [each for each in names if re.match(r"cuda(Thread|SetDoubleFor)", each)]
    bare = [each for each in names if re.match(r"cuda(GL|OccupancyMaxPotentialCluster)", each)]
    writer = Writer(newer, {}, new["signatures"], known("cudart"))
    variants = {name: (0, variant_of(name, text), 0) for name, text in newer.functions.items()}
    lines = writer.types() + enumeration("", new["constants"]["runtime"], None)
    lines += writer.functions(newer.functions, variants)
    lines += ["// Their parameters are in no source.", *flowed("refused cudaError_t", bare, ";")]
    return lines, runtime_12(newer, before, twins, gone, new, old)


def runtime_12(
    newer: Source,
    before: Source,
    twins: dict[str, str],
    gone: list[str],
    new: dict[str, Any],
    old: dict[str, Any],
) -> list[str]:
    """Return the lines of what version 12 of the runtime has, and version 13 has not or has otherwise."""
    types = [name for name in _ONLY_12 if name in before.structs]
    only = Source(structs={name: before.structs[name] for name in types})
    for is_anonymous_one in [name for name in before.structs if is_anonymous(name)]:
        only.structs[is_anonymous_one] = before.structs[is_anonymous_one]
    for name, text in before.functions.items():
        if name.startswith("cuda") and not same(text, newer.functions.get(name)):
            only.functions[name] = text
    only.functions |= {name: twins[name] for name in _LATE}
    only.structs["cudaLaunchParams"] = False, _LAUNCH_PARAMETERS
    writer = Writer(only, {}, old["signatures"], known("cudart12"))
    seen = {*newer.structs, *newer.enums, *newer.aliases, *newer.callbacks} - {*types}
    lines, other = writer.types(seen), dict[str, int]()
    for each, members in newer.enums.items():
        old_members = before.enums.get(each, {})
        other |= {key: value for key, value in old_members.items() if members.get(key) != value}
    constants = new["constants"]["runtime"]
    other |= {key: value for key, value in old["constants"]["runtime"].items() if constants.get(key) != value}
    lines += enumeration("", other, None)
    variants = {name: (0, variant_of(name, text), 0) for name, text in only.functions.items()}
    lines += writer.functions(only.functions, variants)
    return lines + flowed("refused cudaError_t", gone, ";")


#: The structs of the runtime whose layout version 13 changed.
_ONLY_12 = (
    "cudaDeviceProp", "cudaResourceViewDesc", "cudaExternalMemoryBufferDesc", "cudaPointerAttributes",
    "cudaMemLocation", "cudaExternalMemoryHandleDesc", "cudaExternalSemaphoreHandleDesc", "cudaMemsetParamsV2",
    "cudaConditionalNodeParams", "cudaEventRecordNodeParams", "cudaExternalMemoryMipmappedArrayDesc",
    "cudaHostNodeParamsV2", "cudaKernelNodeParamsV2", "cudaResourceDesc", "cudaExternalSemaphoreSignalNodeParamsV2",
    "cudaExternalSemaphoreWaitNodeParamsV2",
)  # fmt: skip
#: The functions of version 12 that HIP took over.
_LATE = ("cudaLaunchCooperativeKernelMultiDevice", "cudaStreamGetCaptureInfo")
_LAUNCH_PARAMETERS = [
    "void* func",
    "dim3 gridDim",
    "dim3 blockDim",
    "void** args",
    "size_t sharedMem",
    "cudaStream_t stream",
]


def same(text: str, other: str | None) -> bool:
    """Whether two prototypes have parameters of the same types."""
    if other is None:
        return False
    kinds = [
        [(each.type, each.stars, each.count) for each in read_function(of).parameters] for of in (text, other)
    ]
    return kinds[0] == kinds[1]


def twins_of_hip() -> dict[str, str]:
    """Return prototypes of the runtime that HIP's header has under HIP's names."""
    declared = c_declarations.read((FOLDER.parent / "hip/hip.h.txt").read_text())
    extracted = {}
    for name, each in declared.functions.items():
        if not _TWINS.fullmatch(name.removeprefix("hip")):
            continue
        plain = [replace(one, words=one.words & {"const"}, count="", stars=one.stars + bool(one.count), binding="")
                 for one in each.parameters]  # fmt: skip
        (text,) = [
            " ".join(
                prototype_of(replace(each, parameters=tuple(plain), words=frozenset(), is_refused=False))
            )
        ]
        text = re.sub(
            r"\bhip\w+", lambda word: _RENAMED.get(word[0], f"cuda{word[0][3:]}"), " ".join(text.split())
        )
        if "Cooperative" in name:  # the two types in which the vendors differ
            text = text.replace("unsigned int sharedMem", "size_t sharedMem").replace(
                ", int ", ", unsigned int "
            )
        extracted[f"cuda{name[3:]}"] = text.removesuffix(";")
    return extracted


def variant_of(name: str, text: str) -> str:
    """Return the ending of the runtime's variant for the default streams of threads."""
    if _ONE_VARIANT.fullmatch(name):
        return ""
    if re.search(r"\bcudaStream_t \w+", text) or _STREAM_INSIDE.fullmatch(name):
        return "ptsz"
    return "ptds" if _BLOCKING.fullmatch(name) else ""


def nvml(new: dict[str, Any], zluda: Path) -> list[str]:
    """Return the lines of NVML's header."""
    source = cython((Path(new["folder"]) / "cynvml.pxd").read_text())
    table = rust(
        (zluda / "cuda_macros/src/nvml.rs").read_text(), (zluda / "cuda_types/src/nvml.rs").read_text()
    )
    source.take(table, [each for each in table.functions if each not in source.functions])
    writer = Writer(source, new["layouts"], {}, known("nvml"))
    inside = {name for members in source.enums.values() for name in members}
    constants = {name: value for name, value in new["constants"]["nvml"].items() if name not in inside}
    lines = writer.types() + enumeration("", constants, None) + writer.functions(source.functions)
    return [*lines, "// pynvml alone has it.", *_PYNVML.strip().splitlines()]


_PYNVML = """
unread refused nvmlReturn_t nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1(nvmlDevice_t device,
    nvmlWorkloadPowerProfileUpdateProfiles_v1_t* updateProfiles);
"""


def nccl(new: dict[str, Any], sources: Path) -> tuple[str, list[str]]:
    """Return the version and the lines of NCCL's header."""
    folder = Path(new["folder"]).parents[1] / "nccl/bindings"
    text = (folder / "cynccl.pxd").read_text()
    source = cython(text)
    writer = Writer(source, new["layouts"], {}, known("nccl"))
    header = (sources / "src/nccl.h.in").read_text()
    constants = {
        name: int(value, 0)
        for name, value in re.findall(r"#define (NCCL_\w+) +(-?(?:0x)?[\da-f]+)\b(?!\.)", header)
    }
    constants["NCCL_CONFIG_UNDEF_INT"] = -(2**31)
    lines = writer.types() + enumeration("", constants, None) + writer.functions(source.functions)
    lines += ["// Symbols of the library that no source has parameters of."]
    lines += flowed("refused ncclResult_t", [*_BARE], ";")
    version = re.search(r"generated with version ([\d.]+)\.", text)[1]  # type: ignore[index]
    return version, lines


_BARE = ("ncclGinInboxA2ACreateRequirement", "ncclGinOutboxCreateRequirement", "ncclResetDebugInit",
         "ncclResetDebugInitInternal")  # fmt: skip


def known(name: str) -> Declarations:
    """Return a header as it is."""
    path = FOLDER / f"{name}.h.txt"
    return c_declarations.read(path.read_text()) if path.exists() else Declarations()


def write(name: str, title: str, sources: str, version: str, lines: list[str]) -> None:
    """Write a header, and read it again."""
    top = _TOP.format(title=title, sources=sources, version=version, codes=_CODES[name])
    (FOLDER / f"{name}.h.txt").write_text(top + "\n\n" + "\n".join(lines) + "\n")
    c_declarations.read_header(FOLDER, name)


def main() -> None:
    if len(sys.argv) == 1:
        json.dump(facts(), sys.stdout)
        return
    new_python, old_python, zluda, nccl_sources, hipify = sys.argv[1], sys.argv[2], *map(Path, sys.argv[3:6])
    new, old = (
        json.loads(subprocess.run([each, __file__], check=True, capture_output=True, text=True).stdout)
        for each in (new_python, old_python)
    )
    FOLDER.mkdir(exist_ok=True)
    versions = [each["versions"]["cuda-bindings"] for each in (new, old)]
    lines = driver(new, old, new_python, old_python, zluda)
    write("cuda", "CUDA's driver", "cuda-bindings, ZLUDA", versions[0], lines)
    newest, older = runtime(new, old, hipify)
    write("cudart", "CUDA's runtime 13", "cuda-bindings, hip.h.txt, HIPIFY", versions[0], newest)
    title = "What CUDA's runtime 12 has beside cudart.h.txt"
    write("cudart12", title, "cuda-bindings, HIPIFY", versions[1], older)
    write("nvml", "NVML", "cuda-bindings, ZLUDA, nvidia-ml-py", versions[0], nvml(new, zluda))
    write("nccl", "NCCL", "nccl4py, NCCL", *nccl(new, nccl_sources))
    for name in ("cuda", "nvml", "nccl"):
        for each in different(known(name), new["layouts"]):
            print(f"{name}: {each}")


if __name__ == "__main__":
    main()
