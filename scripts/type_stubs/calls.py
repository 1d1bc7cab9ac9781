"""The type stubs of the functions in a dialect's table of calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from peerlane.dialects._shared.call import Convention, Declared

_HEAD = "from collections.abc import Callable\nfrom typing import Any\n"


def stubs(convention: Convention, refusing: Iterable[str]) -> Mapping[str, str]:
    """Return a type stub for each of the vendor's modules, by its name; ``refusing`` have any call besides."""
    modules: dict[str, list[str]] = {}
    for call in sorted(convention.table.values(), key=lambda call: call.name):
        module, _, name = call.name.rpartition(".")
        modules.setdefault(module, []).append(f"def {name}({_parameters(call)}) -> {call.returns}: ...\n")
    for module, names in convention.refused.items():
        own = modules.setdefault(module, [])
        own += [f"def {name}(*args: Any) -> Any: ...\n" for name in names]
    for module in refusing:
        modules.setdefault(module, []).append("def __getattr__(name: str) -> Callable[..., Any]: ...\n")
    children: dict[str, str] = dict.fromkeys(modules, "")
    for module in sorted(modules):
        parent, _, name = module.rpartition(".")
        if parent:
            children[parent] += f"from {parent} import {name} as {name}\n"
    return {
        module: f"{_HEAD}{children[module]}\n{''.join(sorted(lines))}" for module, lines in modules.items()
    }


def _parameters(call: Declared) -> str:
    declared = [f"{name}: {kind}" + ("" if needed else " = ...") for name, kind, needed in call.parameters]
    return ", ".join([*declared, "/"]) if declared else "*args: Any"
