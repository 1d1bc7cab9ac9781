"""Lines of a program that clean up after an exception: of ``finally``, and of ``except`` clauses that raise on."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path


def is_cleanup(file: str, line: int) -> bool:
    """Tell whether a line is one; not if the file cannot be read."""
    return any(line in each for each in _cleanups(file))


@functools.lru_cache(maxsize=256)
def _cleanups(file: str) -> tuple[range, ...]:
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(range(body[0].lineno, (body[-1].end_lineno or 0) + 1) for body in _bodies(tree) if body)


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and isinstance(node.body[-1], ast.Raise):
            yield node.body
        elif hasattr(node, "finalbody"):
            yield node.finalbody
