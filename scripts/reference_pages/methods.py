"""Rows of tables of a class's methods, made from their docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping

from reference_pages import tables


def names(cls: type) -> list[str]:
    """Return the names of the public methods of a class, in the order of the source."""
    return [name for name, each in vars(cls).items() if inspect.isfunction(each) and name[0] != "_"]


def page(text: str, head: str, areas: Mapping[str, str], rows: Mapping[str, str]) -> str:
    """Return a page with its tables made anew; ``areas`` has the heading before the first method of each."""
    parts = (f"\n### {areas[name]}\n\n{head}{row}" if name in areas else row for name, row in rows.items())
    return tables.with_part(text, "methods", "".join(parts).lstrip("\n"))


def row(cls: type, name: str, last: str) -> str:
    """Return a method's row: its parameters, what it does, and a last column."""
    method = getattr(cls, name)
    parameters = list(inspect.signature(method).parameters.values())[1:]
    shown = ", ".join(
        each.name if each.default is inspect.Parameter.empty else f"[{each.name}]" for each in parameters
    )
    does = (inspect.getdoc(method) or "").partition("\n\n")[0].replace("\n", " ")
    return f"| `{name}({shown})` | {marked(does)} | {last} |\n"


def marked(text: str) -> str:
    """Return the text of a docstring as Markdown in a table."""
    return re.sub(r":meth:`([^`]+)`", r"`\1`", text).replace("``", "`").replace("|", "\\|")
