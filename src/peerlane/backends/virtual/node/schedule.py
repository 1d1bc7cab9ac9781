"""When queued operations run.

``eager``: as soon as they can.  ``lazy``: not before something waits for them, and only what it waits for.
``seeded``: one at a time, in an order drawn from a seed among all that is not ordered, when the program submits,
queries or waits; a program of one thread that does not rest runs the same way again with the same seed.  A process
that rests, which is 1 s without such a call, runs all that is queued under ``lazy`` and ``seeded``.
"""

from __future__ import annotations

import os
import random
import sys

from peerlane import _core
from peerlane.errors import Fault, InvalidValue

VARIABLE = "PEERLANE_SCHEDULE"
NAMES = ("eager", "lazy", "seeded")

_SEEDS = range(1 << 64)
_present: list[tuple[str, int]] = []


def parse(text: str, source: str) -> tuple[str, int | None]:
    """Return the name of a schedule and its seed, None where it is to be drawn.

    Raises
    ------
    InvalidValue
        ``BAD_CONFIG``
    """
    name, colon, given = text.partition(":")
    if name not in NAMES or (colon and name != "seeded"):
        raise InvalidValue(
            f"{source}: schedule is {text!r}; valid are eager, lazy, seeded and seeded:SEED",
            fault=Fault.BAD_CONFIG,
        )
    if not colon:
        return name, None
    if not (given.isdecimal() and given.isascii() and len(given) <= 20 and int(given) in _SEEDS):
        raise InvalidValue(
            f"{source}: the seed of the schedule is {given!r}; valid are 0 to 2**64 - 1",
            fault=Fault.BAD_CONFIG,
        )
    return name, int(given)


def begin(text: str) -> None:
    """Let the process's streams run so from now on; a seed that is drawn is printed."""
    source = "schedule"
    if not text:
        text, source = os.environ.get(VARIABLE, ""), VARIABLE
    name, seed = parse(text or "eager", source)
    if name == "seeded" and seed is None:
        seed = random.SystemRandom().randrange(1 << 32)
        print(f"peerlane: schedule seeded:{seed} (repeat it with {VARIABLE}=seeded:{seed})", file=sys.stderr)
    _present[:] = [(name, seed or 0)]
    _core.configure_schedule(NAMES.index(name), seed or 0)


def present() -> str:
    """Return the schedule in force, as it can be given again: ``seeded:17``."""
    name, seed = _present[0] if _present else ("eager", 0)
    return f"{name}:{seed}" if name == "seeded" else name
