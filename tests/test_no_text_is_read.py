"""The texts of errors are for people: no module reads one to learn what went wrong."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_schedule

SOURCE = Path(__file__).parents[1] / "src"

#: The modules that may use regular expressions, and on which texts.
MAY_MATCH = {
    "peerlane/support/sizes.py": "sizes that a user writes, as 4GiB",
    "peerlane/memory/host_objects.py": "the names of fields in a buffer's format",
    "peerlane/backends/virtual/node/config.py": "the node that a user describes",
    "peerlane/backends/virtual/node/checks.py": "names of nodes that a user writes",
    "peerlane/backends/virtual/node/files.py": "names of files in the runtime directory",
    "peerlane/backend/settings.py": "a node that a user describes; and tomllib, which tells the "
    "line of a mistake only in its text before Python 3.14",
    "peerlane/dialects/nixl/_plugins.py": "numbers of back-end parameters that a program writes as texts",
    "peerlane/cli/doctor/redaction.py": "the names of user and host in a text for others",
    "peerlane/cli/launch/collecting.py": "the names of files that another machine sends",
    "peerlane/cli/launch/hosts.py": "hosts, variables and paths that a user writes",
    "peerlane/dialects/_shared/c_declarations.py": "what a dialect declares of its vendor's library",
    "peerlane/dialects/_shared/call.py": "docstrings of calls, for the reference pages",
    "peerlane/dialects/acl/_elsewhere.py": "names of calls in a list of the dialect's own",
    "peerlane/dialects/_shared/c_names.py": "names of calls in a text for a program of C",
    "peerlane/dialects/acl/_state.py": "names of calls that undo",
    "peerlane/dialects/acl/_visible.py": "the list of devices that a user writes",
    "peerlane/dialects/cuda/nvml/system.py": "PCI addresses that a program writes",
    "peerlane/support/dtypes.py": "names of element types that a user writes, as fp32",
    "peerlane/diagnostics/hooks/polls.py": "names of calls in the source of a program's loop",
}
#: The modules that may read the text of a foreign exception, and why.
MAY_LOOK = {"peerlane/backend/settings.py": "tomllib's, as above"}
_LOOKS = frozenset(
    [
        "startswith",
        "endswith",
        "find",
        "index",
        "count",
        "partition",
        "rpartition",
        "split",
        "rsplit",
        "replace",
        "removeprefix",
        "removesuffix",
        "match",
        "search",
        "fullmatch",
        "findall",
        "finditer",
        "sub",
    ]
)


def _files() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text())


def _uses_regular_expressions(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(each.name == "re" for each in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and node.module == "re":
            return True
    return False


def _caught(tree: ast.Module) -> set[str]:
    """Return the names of caught exceptions and of arguments that are annotated as exceptions."""
    readers = {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation is not None:
            named = {each.id for each in ast.walk(node.annotation) if isinstance(each, ast.Name)}
            if any(name == "Error" or name.endswith(("Exception", "Timeout", "Deadlock")) for name in named):
                readers.add(node.arg)
    return readers


def _is_text_of(node: ast.expr, errors: set[str]) -> bool:
    """Tell whether an expression is ``str(error)``, ``repr(error)`` or ``error.args[...]``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("str", "repr"):
        return bool(node.args) and isinstance(node.args[0], ast.Name) and node.args[0].id in errors
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "args"
    ):
        return isinstance(node.value.value, ast.Name) and node.value.value.id in errors
    return False


def _looks(tree: ast.Module) -> Iterator[int]:
    """Yield the lines that read the text of an exception."""
    errors = _caught(tree)
    for node in ast.walk(tree):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LOOKS:
            parts = [node.func.value, *node.args]
        if any(_is_text_of(each, errors) for each in parts):
            yield node.lineno


def test_modules_using_regular_expressions_have_a_reason() -> None:
    using = {name for name, tree in _files() if _uses_regular_expressions(tree)}
    assert using <= set(MAY_MATCH), (
        f"give a reason in {Path(__file__).name}: {sorted(using - set(MAY_MATCH))}"
    )


def test_modules_never_read_the_text_of_an_exception() -> None:
    readers = [f"{name}:{line}" for name, tree in _files() if name not in MAY_LOOK for line in _looks(tree)]
    assert readers == [], "an exception's facts are in its `detail`"


@pytest.mark.parametrize(
    "code",
    [
        "try: f()\nexcept Error as error:\n    if 'free' in str(error): g()",
        "def f(error: Error) -> int:\n    return PATTERN.search(str(error))",
        "def f(error: WaitTimeout) -> str:\n    return str(error).partition(';')[0]",
        "try: f()\nexcept OSError as e:\n    print(e.args[0].startswith('no'))",
    ],
)
def test_reading_the_text_of_an_exception_is_detected(code: str) -> None:
    assert list(_looks(ast.parse(code)))
