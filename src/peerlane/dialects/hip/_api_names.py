"""``hip``: the names of the vendor's calls, by the numbers that its profilers know them by."""

from __future__ import annotations

from peerlane.dialects.hip._facts import facts
from peerlane.dialects.hip._results import text
from peerlane.dialects.hip._state import calls


@calls.call("hipApiName", keeps_last=True, needs_device=False)
def hipApiName(id: int) -> object:
    """Return the name of the call with a number of the vendor's profilers; "unknown" for a number that has none.

    Basis: S
    """
    return text(facts()["calls"].get(id, "unknown"))
