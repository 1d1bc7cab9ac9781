"""``hip``: the calls that end in ``_spt``, where no stream means the stream of this thread (facts/hip 1.4)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from peerlane.dialects.hip._facts import facts
from peerlane.dialects.hip._state import calls
from peerlane.dialects.hip._stream import null_is_own

_ENDING = "_spt"


def declare_per_thread() -> None:
    """Declare them for every call that is declared by now."""
    for name in facts()["functions"]:
        plain = name.removesuffix(_ENDING)
        if plain != name and plain in calls.bodies:
            calls.call(name)(_per_thread(plain))


def _per_thread(plain: str) -> Callable[..., Any]:
    body, told = calls.bodies[plain], calls.table[plain].facts

    @functools.wraps(body)
    def own(*args: Any) -> Any:
        with null_is_own():
            return body(*args)

    gives = f"Gives: {told['Gives']}\n" if "Gives" in told else ""
    own.__doc__ = (
        f"Do what {plain} does; no stream, and NULL, mean the stream of this thread.\n\n{gives}"
        f"Refuses: as `{plain}`\nBasis: D"
    )
    return own
