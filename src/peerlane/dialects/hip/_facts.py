"""The table of names, enumerations and layouts that ``scripts/extract_hip_facts.py`` took from the public wheels."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def facts() -> dict[str, Any]:
    """Return the table, read at the first use.

    Returns
    -------
    dict
        ``functions`` (parameters, outputs), ``enums`` (bases, members), ``structs`` (size, fields, union, initial),
        ``constants``, ``byte constants``, ``aliases``, ``older`` (what hip-python 7.2 has otherwise) and ``version``.
        A field is [name, C type, settable, offset, bytes].  Callers do not change it.
    """
    table: dict[str, Any] = json.loads(Path(__file__).with_name("facts.json").read_text(encoding="utf-8"))
    return table


def real_name(name: str) -> str:
    """Return the name that a class was defined under; ``name`` itself when it is not an alias."""
    aliases: dict[str, str] = facts()["aliases"]
    return aliases.get(name, name)
