"""Mooncake: the tables of methods, made from the dialect's docstrings."""

from __future__ import annotations

import inspect

from peerlane.dialects.mooncake._failures import ANSWERS
from peerlane.dialects.mooncake.engine import TransferEngine
from reference_pages import methods

_HEAD = "| method | does | answer when it is refused |\n|---|---|---|\n"
#: The first method of each area.
_AREAS = {
    "initialize": "The engine",
    "register_memory": "Memory",
    "transfer_sync_write": "Transfers that are over when the call returns",
    "transfer_submit_write": "Transfers that go on behind the call",
    "get_notifies": "Other engines",
}


def page(text: str) -> str:
    """Return the page with its tables made anew."""
    rows = {name: methods.row(TransferEngine, name, _refused(name)) for name in methods.names(TransferEngine)}
    return methods.page(text, _HEAD, _AREAS, rows)


def _refused(name: str) -> str:
    raises = "\nRaises\n" in (inspect.getdoc(getattr(TransferEngine, name)) or "")
    return "`RuntimeError`" if raises else ANSWERS.get(name, "")
