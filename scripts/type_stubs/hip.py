"""HIP, of the table that the build makes of its header."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from peerlane.dialects.hip import hip  # noqa: F401 - it declares the calls
from peerlane.dialects.hip.binding import facts, real_name
from peerlane.dialects.hip.binding.convention import answers
from peerlane.dialects.hip.binding.names import names_of_hip, names_of_hiprtc
from peerlane.dialects.hip.state import calls

_HEAD = "import builtins\nimport enum\nfrom typing import Any, overload\n\n"
_TYPES = "peerlane.dialects.hip.binding.types"
_INTS = frozenset(
    ("int", "unsigned int", "uint32_t", "size_t", "uint64_t", "unsigned long long", "unsigned long")
) | frozenset(("unsigned short", "unsigned char", "long", "long long", "unsigned long long *"))
_MODULES = "hip as hip, hiprtc as hiprtc, hiprtc_pyext as hiprtc_pyext"
_REEXPORTED = "from peerlane.dialects.hip.hiprtc_pyext import *\n"
_SHARED = ("hipJitInputType", "hipJitOption")
_LISTS = ("ListOf", "PointerTo")
_ADAPTERS = ("Pointer", "NDBuffer", "DeviceArray", "CStr")


def _is_class(kind: str) -> bool:
    return kind in facts()["enums"] or kind in facts()["structs"]


def _taken(kind: str) -> str:
    """Return the type of a parameter: what a pointer may be has no type."""
    if kind in _INTS:
        return "int"
    if kind == "float":
        return "float"
    return kind if kind in facts()["enums"] else "Any"


def _accepted(kind: str, maybe: bool) -> str:
    """Return the type of an output."""
    if kind in _INTS:
        return "int"
    if kind in ("float", "double"):
        return "float"
    name = kind if _is_class(kind) or kind in _ADAPTERS or kind.startswith(_LISTS) else "Any"
    return f"{name} | None" if maybe and name != "Any" else name


def _words(parameters: Iterable[Sequence[str]]) -> str:
    return ", ".join(f"{each}: {_taken(kind)}" for each, kind in parameters)


def _outputs(outputs: Iterable[Sequence[str]]) -> list[str]:
    return [_accepted(each[1], len(each) > 2) for each in outputs]


def _function(name: str) -> str:
    """Return a function's lines; one that takes the arguments of hip-python 7.2 or of C too is overloaded."""
    shape = facts()["functions"][name]
    code, older = answers(name).__name__, facts()["older"]
    taken = {_words(shape["parameters"]): [code, *_outputs(shape["outputs"])]}
    if name in older["parameters"]:
        taken.setdefault(_words(older["parameters"][name]), [code, *_outputs(older["outputs"][name])])
    for other in calls.overloads(name):
        parameters = zip(other.names, other.types, strict=True)
        taken[_words(parameters)] = [code, *(_accepted(kind, False) for _, kind in other.outputs)]
    lines = [f"def {name}({words}) -> tuple[{', '.join(each)}]: ...\n" for words, each in taken.items()]
    return lines[0] if len(lines) == 1 else "".join(f"@overload\n{line}" for line in lines)


def _enumeration(name: str) -> str:
    members = facts()["enums"][name]["members"]
    rows = "".join(f"    {member} = {value}\n" for member, value in members.items())
    return f"class {name}(enum.IntEnum):\n{rows}\n"


def _field(kind: str) -> str:
    word, _, rest = kind.partition(" ")
    if word in ("str", "bytes"):  # a field may be called bytes as well
        return f"builtins.{word}"
    if word in ("enum", "struct", "pointer"):
        return rest
    base = kind.partition("[")[0]
    number = f"builtins.{'float' if base in ('float', 'double') else 'int'}"
    return f"builtins.list[{number}]" if "[" in kind else number


def _struct(name: str) -> str:
    fields = facts()["structs"][name]["fields"]
    rows = ["    def __init__(self, *args: Any, **kwargs: Any) -> None: ...\n"]
    if fields:
        rows += [
            "    @staticmethod\n    def PROPERTIES() -> list[str]: ...\n",
            "    def c_sizeof(self) -> int: ...\n",
            f"    @classmethod\n    def allocate(cls, count: int = 1) -> {name}: ...\n",
        ]
    rows += [f"    {field}: {_field(kind)}\n" for field, kind, *_ in fields]
    return f"class {name}(Pointer):\n{''.join(rows)}\n"


def _module(names: Iterable[str]) -> str:
    table, parts, done = facts(), [], set[str]()
    for name in names:
        real = real_name(name)
        if name in table["constants"]:
            parts.append(f"{name}: int\n")
        elif name in table["byte constants"]:
            parts.append(f"{name}: bytes\n")
        elif name in table["functions"]:
            parts.append(
                _function(name) if name != "has_symbol" else "def has_symbol(name: object) -> bool: ...\n"
            )
        elif real not in done:
            done.add(real)
            parts.append(_enumeration(real) if real in table["enums"] else _struct(real))
        if name != real:
            parts.append(f"{name} = {real}\n")
    return "".join(sorted(parts, key=lambda part: (not part.startswith("class "), part)))


def stubs() -> Mapping[str, str]:
    """Return the text of each stub by its path."""
    classes = ("CStr", "DeviceArray", "NDBuffer", "Pointer")
    kinds = {kind for each in facts()["structs"].values() for kind in _kinds_of(each)}
    lists = sorted(kind for kind in kinds if kind.startswith(_LISTS))
    head = _HEAD + f"from {_TYPES} import {', '.join(sorted((*classes, *lists)))}\n\n"
    return {
        "hip-stubs/__init__.pyi": "from rocm.version import *\n\n"
        f"from . import _util as _util, {_MODULES}\n\n"
        "VERSION: str\n__version__: str\n\ndef explain() -> str: ...\n",
        "hip-stubs/_util/__init__.pyi": "from . import types as types\n",
        "hip-stubs/_util/types.pyi": f"from {_TYPES} import *\n",
        "hip-stubs/hip.pyi": head + "USE_PEER_NON_UNIFIED: int\n" + _module(names_of_hip()),
        "hip-stubs/hiprtc.pyi": head
        + "from .hip import hipJitInputType as hipJitInputType, hipJitOption as hipJitOption\n\n"
        + _module(name for name in names_of_hiprtc() if real_name(name) not in _SHARED),
        "hip-stubs/hiprtc_pyext.pyi": _REEXPORTED,
        "rocm-stubs/__init__.pyi": "from . import bindings as bindings, version as version\n",
        "rocm-stubs/version.pyi": "from peerlane.dialects.hip.rocm.version import *\n",
        "rocm-stubs/bindings/__init__.pyi": f"from . import {_MODULES}, util as util\n",
        "rocm-stubs/bindings/hip.pyi": "from hip.hip import *\n",
        "rocm-stubs/bindings/hiprtc.pyi": "from hip.hiprtc import *\n",
        "rocm-stubs/bindings/hiprtc_pyext.pyi": _REEXPORTED,
        "rocm-stubs/bindings/util/__init__.pyi": "from . import types as types\n",
        "rocm-stubs/bindings/util/types.pyi": f"from {_TYPES} import *\n",
    }


def _kinds_of(described: Mapping[str, Any]) -> list[str]:
    return [kind.partition(" ")[2] for _, kind, *_ in described["fields"]]
