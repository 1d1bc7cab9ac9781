"""``hip``: the names of the vendor's calls, by the numbers that its profilers know them by."""

from __future__ import annotations

import functools
from pathlib import Path

from peerlane.dialects.hip._results import text
from peerlane.dialects.hip._state import calls


@functools.cache
def _names() -> dict[int, str]:
    lines = Path(__file__).with_name("api_names.txt").read_text(encoding="utf-8").splitlines()
    return {int(number): name for number, _, name in (line.partition(" ") for line in lines)}


@calls.call("hipApiName", keeps_last=True, needs_device=False)
def hipApiName(id: int) -> object:
    """Return the name of the call with a number of the vendor's profilers; "unknown" for a number that has none.

    Basis: S
    """
    return text(_names().get(id, "unknown"))
