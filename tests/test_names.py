"""Names are nouns of the field: those that only a reader of this code would know are kept out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src/peerlane"
BANNED = {
    *("found", "given", "here", "made", "place", "places", "said", "say", "says", "stuck", "tell", "tells"),
    *("thing", "things", "told", "turn", "turns", "way", "ways"),
}
#: Packages whose names are older than this rule.
OLDER: tuple[str, ...] = ()
#: By name, why it stays.
KEPT = {
    "is_here": "public, an attribute of Member",
    "pid_here": "public, an attribute of Member",
    "NOT_FOUND": "the vendor's HCCL_E_NOT_FOUND",
    "NIXL_ERR_NOT_FOUND": "the vendor's",
    "nixlNotFoundError": "the vendor's",
}
#: By file, the public attributes of errors, and the fields of a JSON report.
PUBLIC = {
    "errors.py": {"place", "given", "notify_in_the_way"},
    "cli/doctor/finding.py": {"found"},
}
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


def banned_words(name: str) -> set[str]:
    return {word.lower() for word in re.split(r"_|(?<=[a-z])(?=[A-Z])", name)} & BANNED


def test_no_name_has_a_banned_word() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted(ROOT.rglob("*.py"))
        if not any(path.is_relative_to(ROOT / each) for each in OLDER)
        for line, name in names(ast.parse(path.read_text()))
        if banned_words(name) and name not in {*KEPT, *PUBLIC.get(str(path.relative_to(ROOT)), ())}
    ]
    assert not wrong, "take the noun of the field for:\n" + "\n".join(wrong)
