"""``hip``: the calls that end in ``_spt``, where no stream means the stream of this thread (facts/hip 1.4)."""

from __future__ import annotations

from peerlane.dialects.hip._facts import facts
from peerlane.dialects.hip._state import calls
from peerlane.dialects.hip._stream import streams

_ENDING = "_spt"


def declare_per_thread() -> None:
    """Declare them for every call that is declared by now, those that are not declared themselves."""
    for name in facts()["functions"]:
        plain = name.removesuffix(_ENDING)
        if plain in calls.bodies and name not in calls.bodies:
            does = f"Do what {plain} does; no stream, and NULL, mean the stream of this thread."
            calls.same(name, plain, does=does, within=streams.null_is_own)
