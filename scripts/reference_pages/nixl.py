"""NIXL: the tables of methods, made from the dialect's docstrings."""

from __future__ import annotations

import inspect

from peerlane.dialects.nixl._api import nixl_agent
from reference_pages import methods

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


def page(text: str) -> str:
    """Return the page with its tables made anew."""
    rows = {
        name: methods.row(nixl_agent, name, _raises(inspect.getdoc(getattr(nixl_agent, name)) or ""))
        for name in methods.names(nixl_agent)
    }
    return methods.page(text, _HEAD, _AREAS, rows)


def _raises(text: str) -> str:
    """Return the exceptions and their conditions, of a docstring's section."""
    _, _, section = text.partition("Raises\n------\n")
    documented = []
    for line in section.splitlines():
        if not line:
            break
        if line[0] != " ":
            documented.append([f"`{each}`" for each in line.split(", ")] + [":"])
        else:
            documented[-1].append(line.strip())
    rows = []
    for parts in documented:
        at = parts.index(":")
        sentence = " ".join(parts[at + 1 :])
        rows.append(", ".join(parts[:at]) + (f": {sentence[:1].lower()}{sentence[1:]}" if sentence else ""))
    return " ".join(methods.marked(row).rstrip(".") + "." for row in rows)
