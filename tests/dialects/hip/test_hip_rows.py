"""Each row of facts/hip 3.1 to 3.7 has a test: `helpers.hip_rows` says which."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

from helpers.each import for_each
from helpers.hip_rows import TABLES

pytestmark = pytest.mark.any_schedule

FOLDER = Path(__file__).parent
ROWS = [(table, row) for table, rows in TABLES.items() for row in rows]


@functools.cache
def functions_of(name: str) -> set[str]:
    tree = ast.parse((FOLDER / f"test_hip_{name}.py").read_text())
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}


@for_each(("table", "row"), ROWS)
def test_hip_rows_named_tests_exist(table: str, row: str) -> None:
    expected = TABLES[table][row]
    if isinstance(expected, str):
        return  # the reason why no program can reach it
    assert expected
    for each in expected:
        name, _, test = each.partition("::")
        assert test in functions_of(name), f"{each} is not there"


def test_hip_rows_tests_of_row_files_are_named() -> None:
    named = {
        each
        for rows in TABLES.values()
        for expected in rows.values()
        if not isinstance(expected, str)
        for each in expected
    }
    for name in ("rows_copies", "rows_memory"):
        assert {f"{name}::{test}" for test in functions_of(name) if test.startswith("test_")} <= named
