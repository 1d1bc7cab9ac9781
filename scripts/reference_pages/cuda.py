"""CUDA: the functions of each library that work, and those that refuse."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from peerlane.dialects._shared.c_declarations import Declarations, Function
from peerlane.dialects._shared.code_texts import CodeTexts
from peerlane.dialects.cuda import c_library  # noqa: F401 - it declares the driver's calls
from peerlane.dialects.cuda.nccl import c_library as nccl_library
from peerlane.dialects.cuda.nccl.state import calls as nccl
from peerlane.dialects.cuda.nvml import c_library as nvml_library
from peerlane.dialects.cuda.nvml.state import calls as nvml
from peerlane.dialects.cuda.runtime import c_library as runtime_library  # noqa: F401 - it declares the runtime's calls
from peerlane.dialects.cuda.runtime import lookup
from peerlane.dialects.cuda.runtime.table import Runtime
from peerlane.dialects.cuda.state import calls as driver
from reference_pages import tables

_HEAD = "| function | note |\n|---|---|\n"
_REFUSING = "kernels"  # the module whose bodies refuse, and say so on stderr
_FAMILY = re.compile(r"(?:cuda|cu|nvml|nccl|p)(?:Device|Vgpu|GpuInstance)?(?:[A-Z0-9][a-z0-9]*)?")
_WRITTEN = {"out", "lib", "maybe", "inout"}
_VERSIONS = {"cudart": "13", "cudart12": "12"}


class Served(NamedTuple):
    """A function that works.

    Attributes
    ----------
    function : Function
        Of the header.
    area : str
        The module of its body.
    does : str
    """

    function: Function
    area: str
    does: str


def _of(function: Function, body: Callable[..., Any]) -> Served:
    if isinstance(body, CodeTexts):
        return Served(function, "texts", "")
    module = str(getattr(body, "__module__", "")).rpartition(".")[2]
    text = (inspect.getdoc(body) or "").partition("\n\n")[0]
    return Served(function, module.strip("_"), text.replace("\n", " "))


def _served(declarations: Declarations, *sources: Mapping[str, Callable[..., Any]]) -> list[Served]:
    """Return the functions that have a body, in the order of the header."""
    bodies = {name: body for source in sources for name, body in source.items()}
    served = [
        _of(function, bodies[name]) for name, function in declarations.functions.items() if name in bodies
    ]
    return [each for each in served if each.area != _REFUSING]


def libraries() -> dict[str, tuple[list[Served], list[str]]]:
    """Return of each part of the page the functions that work, and the names of those that refuse."""
    of_nvml = nvml.functions("")
    older = {name: of_nvml[newer] for name, (newer, _) in nvml_library.SHORTER.items()}
    parts = {
        "driver": (driver.declarations, [driver.functions("")]),
        "nvml": (nvml.declarations, [of_nvml, older]),
        "nccl": (nccl.declarations, [nccl.functions(""), nccl_library.TEXTS]),
    }
    for header in _VERSIONS:
        runtime = Runtime(header)
        runtime.calls.define("cudaGetDriverEntryPoint", lookup.entry_point_of(lookup.version_of(header)))
        parts[header] = runtime.calls.declarations, [runtime.calls.functions(""), lookup.plain(runtime)]
    return {
        name: (served := _served(declarations, *sources), _refused(declarations, served))
        for name, (declarations, sources) in parts.items()
    }


def _refused(declarations: Declarations, served: Iterable[Served]) -> list[str]:
    works = {each.function.name for each in served}
    variants = {f"{each.name}_{each.variant}" for each in declarations.functions.values() if each.variant}
    return [name for name in declarations.functions if name not in works | variants]


def _row(each: Served, note: str) -> str:
    function = each.function
    shown = ", ".join(
        f"{'*' * bool(parameter.words & _WRITTEN)}{parameter.name}" for parameter in function.parameters
    )
    variant = f"`_{function.variant}`" if function.variant else ""
    does = re.sub(r":meth:`([^`]+)`", r"`\1`", each.does).replace("``", "`").replace("|", "\\|")
    notes = ", ".join(filter(None, (variant, note)))
    return f"| `{function.name}({shown})`{f' {notes}' if notes else ''} | {does} |\n"


def _works(served: Iterable[Served], notes: Mapping[str, str]) -> str:
    areas: dict[str, list[str]] = {}
    for each in served:
        areas.setdefault(each.area, []).append(_row(each, notes.get(each.function.name, "")))
    return "\n".join(f"#### {area}\n\n{_HEAD}{''.join(rows)}" for area, rows in sorted(areas.items()))


def _lists(names: Iterable[str]) -> str:
    families: dict[str, list[str]] = {}
    for name in names:
        match = _FAMILY.match(name)
        families.setdefault(match[0] if match else name, []).append(f"`{name}`")
    lines = [textwrap.fill(", ".join(each), 118, break_long_words=False) for each in families.values()]
    return "\n\n".join(lines) + "\n"


def page(text: str) -> str:
    """Return the page with its parts made anew."""
    parts = libraries()
    newer, older = parts.pop("cudart"), parts.pop("cudart12")
    names = [{each.function.name for each in served} for served, _ in (newer, older)]
    notes = dict.fromkeys(names[0] - names[1], "13 alone") | dict.fromkeys(names[1] - names[0], "12 alone")
    served = [*newer[0], *(each for each in older[0] if each.function.name not in names[0])]
    refused = [name for name in dict.fromkeys([*newer[1], *older[1]]) if name not in names[0] | names[1]]
    parts["runtime"] = served, refused
    for name, (works, refuses) in parts.items():
        body = f"**{len(works)} work.**\n\n{_works(works, notes)}\n**{len(refuses)} refuse.**\n\n{_lists(refuses)}"
        text = tables.with_part(text, name, body)
    return text
