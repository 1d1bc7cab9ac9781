"""Which package may import which; imports in functions and for type checking count too."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_schedule  # it reads sources

PACKAGE = Path(__file__).parents[1] / "src" / "peerlane"

# From the ground up: a package imports itself and those above it in this list.  The longest name counts.
ORDER = (
    ("support.records", "_interpreter"),
    ("errors",),
    ("support",),
    ("backend",),
    ("diagnostics",),
    ("node.base",),
    ("sharing",),
    ("streams",),
    ("memory",),
    ("node",),
    ("backends.virtual",),
    ("backends.reference",),
    ("backends",),
    ("rendezvous",),
    ("ranks",),
    ("collectives",),
    ("prediction",),
    ("",),  # `import peerlane` itself, and `_public`
    ("dialects._shared",),
    ("dialects", "checker", "torch"),
    ("torch_cuda",),
    ("c_abi",),
    ("cli", "testing", "__main__", "notebook"),
)
#: These packages must not import a back-end: devices have one, and the registry finds it.
NEVER = dict.fromkeys(("rendezvous", "ranks", "collectives", "dialects", "torch"), "backends")
CORE = ("backends.virtual", "diagnostics")
TYPES_OF_CORE = "backend.ranks"  # it names native classes for type checking
NATIVE = ("_core", "_check")

Import = tuple[str, str, str]  # the module, the module it imports, the name it takes or ""


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def _resolved(base: str, name: str) -> tuple[str, str]:
    """Return the module that ``from base import name`` reads, and the name that it takes from it."""
    inner = f"{base}.{name}".strip(".")
    return (inner, "") if inner in MODULES or inner in NATIVE else (base, name)


def _imports_of(module: str) -> Iterator[Import]:
    path = MODULES[module]
    package = list(path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name.split(".")[0] == "peerlane":
                    yield module, each.name.removeprefix("peerlane").strip("."), ""
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])
            elif (node.module or "").split(".")[0] == "peerlane":
                base = (node.module or "").removeprefix("peerlane").strip(".")
            else:
                continue
            for each in node.names:
                yield module, *_resolved(base, each.name)


@cache
def imports() -> tuple[Import, ...]:
    return tuple(imported_packages for module in MODULES for imported_packages in _imports_of(module))


def package_of(module: str) -> str:
    """Return the name in `ORDER` that a module belongs to."""
    known = [each for row in ORDER for each in row]
    inside = [each for each in known if module == each or (each and module.startswith(f"{each}."))]
    return max(inside, key=len, default="")


def rank(package: str) -> int:
    return next(number for number, row in enumerate(ORDER) if package in row)


def imports_against_the_list() -> set[str]:
    imported_packages = set()
    for module, imported, _ in imports():
        if imported in NATIVE:
            continue
        mine, other = package_of(module), package_of(imported)
        if rank(other) > rank(mine) or any(
            module.startswith(f"{package}.") and imported.split(".")[0] == never
            for package, never in NEVER.items()
        ):
            imported_packages.add(f"{module} -> {imported}")
    return imported_packages


def private_names_across_packages() -> set[str]:
    return {
        f"{module} -> {imported}: {name or imported}"
        for module, imported, name in imports()
        if imported not in NATIVE
        and package_of(module) != package_of(imported)
        and any(part.startswith("_") and part != "_shared" for part in [*imported.split("."), name])
        and imported != "_interpreter"
    }


def private_attributes_across_packages() -> set[str]:
    """Return uses of attributes with a leading underscore that only other packages define."""
    defined: dict[str, set[str]] = {}
    used: list[tuple[str, str, str]] = []
    for module, path in MODULES.items():
        package = ".".join(module.split(".")[: 2 if module.startswith(("backends.", "dialects.")) else 1])
        names = defined.setdefault(package, set())
        tree = ast.parse(path.read_text())
        libraries = {
            each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names.add(node.value)  # of __slots__
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.attr)
            elif (
                isinstance(node, ast.Attribute)
                and node.attr.startswith("_")
                and not node.attr.startswith("__")
            ) and ast.unparse(node.value) not in {"self", "cls", *libraries}:
                used.append((package, node.attr, f"{module}:{node.lineno}: {ast.unparse(node)}"))
    native = (PACKAGE / "_core.pyi").read_text()
    return {
        text
        for package, name, text in used
        if name not in defined[package]
        and any(name in names for names in defined.values())
        and f"def {name}(" not in native
    }


def uses_of_native_code() -> set[str]:
    return {
        module
        for module, imported, _ in imports()
        if (
            imported == "_core"
            and module != TYPES_OF_CORE
            and not any(f"{module}.".startswith(f"{each}.") for each in CORE)
        )
        or (imported == "_check" and not module.startswith("checker."))
    }


def circles() -> list[list[str]]:
    """Return the sets of files that import one another in a loop (Tarjan's strongly connected components)."""
    graph: dict[str, set[str]] = {module: set() for module in MODULES}
    for module, imported, _ in imports():
        if imported in graph and imported != module:
            graph[module].add(imported)
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    imported_packages: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                imported_packages.append(sorted(stack[at:]))
            del stack[at:]

    for module in sorted(graph):
        if module not in index:
            visit(module)
    return imported_packages


def test_package_imports_follow_the_order() -> None:
    assert sorted(imports_against_the_list()) == []


def test_package_imports_take_no_private_name_of_another() -> None:
    assert sorted(private_names_across_packages()) == []


def test_packages_use_no_private_attribute_of_another() -> None:
    assert sorted(private_attributes_across_packages()) == []


def test_native_code_is_imported_by_virtual_and_diagnostics_only() -> None:
    assert sorted(uses_of_native_code()) == []


def test_file_with_native_types_imports_no_native_code() -> None:
    program = f"import sys, peerlane.{TYPES_OF_CORE}; print('peerlane._core' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"


def test_file_imports_form_no_circle() -> None:
    assert circles() == []


def test_order_names_every_package() -> None:
    assert [module for module in MODULES if module and not package_of(module)] == ["_public"]


if __name__ == "__main__":
    for imported_packages in (
        imports_against_the_list(),
        private_names_across_packages(),
        private_attributes_across_packages(),
        uses_of_native_code(),
        circles(),
    ):
        print(len(imported_packages))
        for each in sorted(imported_packages, key=str):
            print("   ", each)
