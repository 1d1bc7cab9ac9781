"""The calls of a program that order something, and the program without some of them."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass

#: What waits, records, fences or synchronizes, in the neutral API, the dialects and Python.
ORDERING = frozenset(
    (
        *("wait", "notify", "sync", "barrier", "fence", "drain", "join"),
        *("synchronize_stream", "synchronize_device", "record_event", "stream_wait_event"),
        *("record_notify", "wait_and_reset_notify"),
        *("hipDeviceSynchronize", "hipStreamSynchronize", "hipEventRecord", "hipStreamWaitEvent"),
        *("HcommChannelNotifyRecordOnThread", "HcommChannelNotifyWaitOnThread", "HcommChannelFenceOnThread"),
    )
)


@dataclass(frozen=True, order=True)
class Deletable:
    """A statement that orders something: its first line, its last one, and its source without blanks around it."""

    first: int
    last: int
    text: str


def deletable(source: str) -> Iterator[Deletable]:
    """Yield the statements that call something of :data:`ORDERING`, and do nothing else."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _names(node) & ORDERING:
            assert node.end_lineno is not None
            yield Deletable(
                node.lineno, node.end_lineno, " ".join((ast.get_source_segment(source, node) or "").split())
            )


def without(source: str, deleted: Collection[Deletable]) -> str:
    """Return a program without some statements; all others keep their lines."""
    lines = source.splitlines(keepends=True)
    for each in deleted:
        at = each.first - 1
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        lines[at : each.last] = [f"{indent}pass\n", *["\n"] * (each.last - each.first)]
    return "".join(lines)


def _names(statement: ast.Expr) -> set[str]:
    """Return what the statement calls, also if it names it for another to call."""
    deletions = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Attribute):
            deletions.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            deletions.add(node.value)
    return deletions
