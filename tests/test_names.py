"""Names are nouns of the field: those that only a reader of this code would know are kept out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src/peerlane"
NATIVE = Path(__file__).parents[1] / "native"
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
TESTS = Path(__file__).parent
BANNED = {
    *("found", "given", "here", "made", "place", "places", "said", "say", "says", "stuck", "tell", "tells"),
    *("thing", "things", "told", "untold", "way", "ways"),
    *("grave", "graves", "pointee", "pointees", "standstill", "ticket", "tickets"),
}
#: MPI's noun for a collective without copies between.
IN_PLACE = re.compile("in_?place", re.IGNORECASE)
#: By name, why it stays.
KEPT = {
    "is_here": "public, an attribute of Member",
    "pid_here": "public, an attribute of Member",
    "NOT_FOUND": "the vendor's HCCL_E_NOT_FOUND",
    "NIXL_ERR_NOT_FOUND": "the vendor's",
    "nixlNotFoundError": "the vendor's",
    "PyErr_GivenExceptionMatches": "CPython's",
    "stream_made": "the log's format, a kind of event",
    "notify_made": "the log's format, a kind of event",
}
#: By file, the public attributes of errors, and the fields of a JSON report.
PUBLIC = {
    "errors.py": {"place", "given", "notify_in_the_way"},
    "cli/doctor/finding.py": {"found"},
}
#: A comment, a literal, a number, or an identifier of C++.
TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"\(.*?\)"|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\d[\w'.]*|(?P<identifier>[A-Za-z_]\w*)""",
    re.DOTALL,
)
pytestmark = pytest.mark.any_schedule


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each function, class, parameter, variable and attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def native_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each identifier of a C++ file: a name that it declares, or that it uses."""
    line, begin = 1, 0
    for token in TOKEN.finditer(source):
        line += source.count("\n", begin, token.start())
        begin = token.start()
        if token["identifier"]:
            yield line, token["identifier"]


def banned_words(name: str) -> set[str]:
    words = re.split(r"_|(?<=[a-z])(?=[A-Z])", IN_PLACE.sub("", name))
    return {word.lower() for word in words} & BANNED


def test_no_name_has_a_banned_word() -> None:
    wrong = [
        f"{path.relative_to(folder)}:{line}: {name}"
        for folder in (ROOT, NATIVE, BENCHMARKS, TESTS)
        for path in sorted(folder.rglob("*.py"))
        for line, name in names(ast.parse(path.read_text()))
        if banned_words(name) and name not in {*KEPT, *PUBLIC.get(str(path.relative_to(folder)), ())}
    ]
    assert not wrong, "take the noun of the field for:\n" + "\n".join(wrong)


def test_no_native_name_has_a_banned_word() -> None:
    wrong = [
        f"{path.relative_to(NATIVE)}:{line}: {name}"
        for path in sorted(NATIVE.rglob("*"))
        if path.suffix in (".h", ".cpp")
        for line, name in native_names(path.read_text())
        if banned_words(name) and name not in KEPT
    ]
    assert not wrong, "take the noun of the field for:\n" + "\n".join(wrong)


def test_native_names_are_those_outside_of_comments_and_literals() -> None:
    source = 'int found;  // said\n/* told\n */ auto way = "here \\" given" + R"(place)" + \'"\' + 1\'000u;\n'
    assert list(native_names(source)) == [(1, "int"), (1, "found"), (3, "auto"), (3, "way")]
    assert banned_words("isFound") == {"found"} and not banned_words("kPieceInPlace")
