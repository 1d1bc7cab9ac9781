"""Programs with one mistake each, made from a right one: a wait dropped, a record too early, another notify."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

Lines: TypeAlias = "tuple[int, int]"  #: the first line of a statement, and the one behind its last


@dataclass(frozen=True)
class Mutant:
    """A program with a mistake.

    Attributes
    ----------
    mistake : str
        What was done, with the line of the right program.
    source : str
        It has as many lines as the right program.
    """

    mistake: str
    source: str


def mutants(source: str) -> Iterator[Mutant]:
    """Yield the mutants of a program that calls HCOMM, one call a statement."""
    lines = source.splitlines(keepends=True)
    for block in _blocks(ast.parse(source)):
        for before, statement in zip([None, *block], block, strict=False):
            call = _call(statement)
            if call and "NotifyWait" in _name(call):
                yield Mutant(
                    f"line {statement.lineno}: dropped wait", "".join(_dropped(lines, _lines(statement)))
                )
            if isinstance(before, ast.Expr | ast.For) and _records(statement) and not _records(before):
                swapped = _swapped(lines, _lines(before), _lines(statement))
                yield Mutant(
                    f"line {statement.lineno}: record moved before line {before.lineno}", "".join(swapped)
                )
            if call and "Notify" in _name(call):
                index = call.args[1 if "ThreadNotifyWait" in _name(call) else 2]
                yield Mutant(
                    f"line {statement.lineno}: another notify", "".join(_replaced(lines, index, "3"))
                )


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


def _call(statement: ast.stmt) -> ast.Call | None:
    """Return the call of HCOMM of a statement ``ok(hcomm.Call(...))``."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id="ok"), args=[ast.Call() as call])):
            return call
    return None


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _records(statement: ast.stmt) -> bool:
    """Tell whether a statement only records: a record, or a loop of records."""
    if isinstance(statement, ast.For):
        return all(map(_records, statement.body))
    call = _call(statement)
    return call is not None and "NotifyRecord" in _name(call)


def _lines(statement: ast.stmt) -> Lines:
    return statement.lineno - 1, statement.end_lineno or statement.lineno


def _dropped(lines: list[str], at: Lines) -> list[str]:
    begin, end = at
    indent = lines[begin][: len(lines[begin]) - len(lines[begin].lstrip())]
    return [*lines[:begin], f"{indent}pass\n", *["\n"] * (end - begin - 1), *lines[end:]]


def _swapped(lines: list[str], first: Lines, second: Lines) -> list[str]:
    between = lines[first[1] : second[0]]
    return [*lines[: first[0]], *lines[slice(*second)], *between, *lines[slice(*first)], *lines[second[1] :]]


def _replaced(lines: list[str], node: ast.expr, text: str) -> list[str]:
    number = node.lineno - 1
    line = lines[number]
    return [
        *lines[:number],
        line[: node.col_offset] + text + line[node.end_col_offset :],
        *lines[number + 1 :],
    ]
