"""The tables of a dialect's reference page, made from its table of calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Protocol

from peerlane.dialects._shared.call import Declared

_MARKS = "<!-- {}: made by `make reference` -->", "<!-- end of {} -->"
_HEAD = "| call | outputs | return codes besides 0 | basis |\n|---|---|---|---|\n"


class Table(Protocol):
    """What a dialect declared."""

    @property
    def table(self) -> Mapping[str, Declared]:
        """The declared calls by name."""


def tables(convention: Table) -> str:
    """Return the reference tables, one for each module and area, in Markdown."""
    parts = []
    for (module, area), calls in groupby(_sorted(convention), key=_section):
        rows = "".join(_row(call) for call in calls)
        parts.append(f"### {f'`{module}`: {area}' if module else 'C alone'}\n\n{_HEAD}{rows}")
    return "\n".join(parts)


def page(text: str, convention: Table) -> str:
    """Return a page with its tables made anew."""
    return with_part(text, "calls", tables(convention))


def with_part(text: str, name: str, body: str) -> str:
    """Return a page with what stands between the marks of a part made anew."""
    begin, end = (mark.format(name) for mark in _MARKS)
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    return f"{head}{begin}\n\n{body}\n{end}{tail}"


def part_of(text: str, name: str) -> str:
    """Return what stands between the marks of a part of a page."""
    begin, end = (mark.format(name) for mark in _MARKS)
    return text.partition(begin)[2].partition(end)[0]


def _sorted(convention: Table) -> Iterable[Declared]:
    order = {
        section: at for at, section in enumerate(dict.fromkeys(map(_section, convention.table.values())))
    }
    return sorted(
        convention.table.values(),
        key=lambda call: (call.name.rpartition(".")[0] or "~", order[_section(call)]),
    )


def _section(call: Declared) -> tuple[str, str]:
    """Return the module and the area of a call; those that C alone has are one area."""
    module = call.name.rpartition(".")[0]
    return module, call.area if module else ""


def _row(call: Declared) -> str:
    names = ", ".join(name if needed else f"[{name}]" for name, _, needed in call.parameters)
    facts = " | ".join(call.facts.get(key, "") for key in ("Gives", "Refuses", "Basis"))
    return f"| `{call.name}({names})` | {facts} |\n".replace("|  |", "| |")
