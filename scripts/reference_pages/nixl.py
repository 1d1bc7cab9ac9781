"""NIXL: the tables of methods, made from the dialect's docstrings."""

from __future__ import annotations

import inspect
import re

from peerlane.dialects.nixl._api import nixl_agent
from reference_pages import tables

_HEAD = "| method | does | raises |\n|---|---|---|\n"
#: The first method of each area.
_AREAS = {
    "get_plugin_list": "Back-ends",
    "register_memory": "Memory",
    "make_connection": "Transfers",
    "prep_mem_view": "Memory views",
    "get_new_notifs": "Notifications",
    "get_agent_metadata": "Metadata",
    "get_xfer_descs": "Descriptors",
}


def methods() -> list[str]:
    """Return the names of the agent's public methods, in the order of the source."""
    return [name for name, each in vars(nixl_agent).items() if inspect.isfunction(each) and name[0] != "_"]


def page(text: str) -> str:
    """Return the page with its tables made anew."""
    rows = (
        f"\n### {_AREAS[name]}\n\n{_HEAD}{_row(name)}" if name in _AREAS else _row(name) for name in methods()
    )
    return tables.with_part(text, "methods", "".join(rows).lstrip("\n"))


def _row(name: str) -> str:
    method = getattr(nixl_agent, name)
    parameters = list(inspect.signature(method).parameters.values())[1:]
    shown = ", ".join(
        each.name if each.default is inspect.Parameter.empty else f"[{each.name}]" for each in parameters
    )
    text = inspect.getdoc(method) or ""
    does = text.partition("\n\n")[0].replace("\n", " ")
    does = re.sub(r":meth:`([^`]+)`", r"`\1`", does).replace("``", "`").replace("|", "\\|")
    return f"| `{name}({shown})` | {does} | {_raises(text)} |\n"


def _raises(text: str) -> str:
    """Return the exceptions and their conditions, of a docstring's section."""
    _, _, section = text.partition("Raises\n------\n")
    found = []
    for line in section.splitlines():
        if not line:
            break
        if line[0] != " ":
            found.append([f"`{each}`" for each in line.split(", ")] + [":"])
        else:
            found[-1].append(line.strip())
    rows = []
    for parts in found:
        at = parts.index(":")
        said = " ".join(parts[at + 1 :])
        rows.append(", ".join(parts[:at]) + (f": {said[:1].lower()}{said[1:]}" if said else ""))
    made = " ".join(re.sub(r":meth:`([^`]+)`", r"`\1`", row).rstrip(".") + "." for row in rows)
    return made.replace("``", "`").replace("|", "\\|")
