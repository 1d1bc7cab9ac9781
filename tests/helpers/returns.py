"""Whether a value is what a call of a dialect is declared to return."""

from __future__ import annotations

import re
from typing import Any

TYPES: dict[str, Any] = {"int": int, "str": str, "float": float, "dict": dict, "list": list}


def split(types: str) -> list[str]:
    """Split a list of types at the commas outside brackets."""
    depth, parts = 0, [""]
    for letter in types:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [each.strip() for each in parts]


def fits(value: object, declared: str) -> bool:
    """Tell whether a value is of a declared type, of the types that dialects declare."""
    if declared.startswith("tuple["):
        parts = split(declared[6:-1])
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(fits, value, parts))
    if "|" in declared:
        return any(fits(value, each.strip()) for each in declared.split("|"))
    kind = re.match(r"\w+", declared)[0]  # type: ignore[index]
    if kind == "None":
        return value is None
    return kind not in TYPES or (isinstance(value, TYPES[kind]) and not isinstance(value, bool))
