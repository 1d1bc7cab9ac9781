"""HCOMM, of its table of calls and of its classes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from peerlane.dialects.hcomm._header import CLASSES, CONSTANTS, ENUMS
from peerlane.dialects.hcomm._state import hcomm
from type_stubs import calls

_HEAD = "import enum\nfrom collections.abc import Callable\nfrom typing import Any\n\n"
_OURS = re.compile(r"peerlane\.dialects\.hcomm\._\w+\.|\bstructs\.")


def stubs() -> Mapping[str, str]:
    """Return the type stub of the module, by its path."""
    texts = calls.stubs(hcomm, ())["hcomm"]
    functions = "".join(line + "\n" for line in texts.splitlines() if line.startswith("def "))
    parts = [
        _HEAD,
        *(_enumeration(kind.__name__, kind.__members__) for kind in ENUMS),
        *(_struct(kind) for kind in CLASSES.values()),
        "".join(f"{name}: int\n" for name in CONSTANTS),
        *(f"{name}: {kind.__name__}\n" for kind in ENUMS for name in kind.__members__),
        "def explain() -> str: ...\n",
        _OURS.sub("", functions),
        "def __getattr__(name: str) -> Callable[..., Any]: ...\n",
    ]
    return {"hcomm-stubs/__init__.pyi": "".join(parts)}


def _enumeration(name: str, members: Mapping[str, int]) -> str:
    rows = "".join(f"    {each} = {int(value)}\n" for each, value in members.items())
    return f"class {name}(enum.IntEnum):\n{rows}\n"


def _struct(kind: type) -> str:
    hints = get_type_hints(kind)
    types = {each.name: _text(hints[each.name]) for each in fields(kind)}
    rows = "".join(f"    {name}: {text}\n" for name, text in types.items())
    words = ", ".join(f"{name}: {text} = ..." for name, text in types.items())
    return f"class {kind.__name__}:\n{rows}    def __init__(self, {words}) -> None: ...\n\n"


def _text(hint: Any) -> str:
    plain = isinstance(hint, type) and not hasattr(hint, "__args__")
    return hint.__name__ if plain else _OURS.sub("", str(hint))
