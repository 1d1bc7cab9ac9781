"""What the build makes of the header: codes and attributes by name, and the functions by name and version."""

from __future__ import annotations

from typing import Any

from peerlane.dialects._shared.c_declarations import Declarations


def _without_version(symbol: str) -> str:
    name, _, version = symbol.rpartition("_v")
    return name if name and version.isdecimal() else symbol


def binding_of(declared: Declarations) -> dict[str, Any]:
    """Return the table of the dialect's modules.

    Returns
    -------
    dict
        ``enums``: the enumerators of each enumeration.  ``constants``: all other constants.
        ``symbols``: by a function's name without a version, of each version the first driver that has it, the symbol,
        and that of its variant for the default streams of threads.
        ``version``: the numbers of the header's version.
    """
    symbols: dict[str, list[tuple[int, str, str]]] = {}
    for each in declared.functions.values():
        variant = f"{each.name}_{each.variant}" if each.variant else ""
        symbols.setdefault(_without_version(each.name), []).append((each.since, each.name, variant))
    enums = {
        name: {each: member.value for each, member in members.items()}
        for name, members in declared.enums.items()
    }
    return {
        "enums": enums,
        "constants": declared.constants,
        "symbols": {name: sorted(rows) for name, rows in symbols.items()},
        "version": tuple(map(int, declared.version.split("."))),
    }
