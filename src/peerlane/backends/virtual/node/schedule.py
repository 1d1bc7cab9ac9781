"""Schedules: when queued operations run.

``eager``: as soon as they can.  ``lazy``: only when a call waits for them.  ``seeded``: one at a time, whenever the
program submits, queries or waits, in an order that a seed chooses among the allowed ones; the same seed repeats a run
of a program with one thread that is never idle.  A process is idle after 1 s without such a call; under ``lazy`` and
``seeded`` it then runs all queued operations.
"""

from __future__ import annotations

import os
import random
import sys

from peerlane import _core
from peerlane.errors import BadArgument, Fault, InvalidValue

VARIABLE = "PEERLANE_SCHEDULE"
NAMES = ("eager", "lazy", "seeded")

_SEEDS = range(1 << 64)
_present: list[tuple[str, int]] = []


def parse(text: str, source: str) -> tuple[str, int | None]:
    """Return the name of a schedule and its seed, None if the seed is to be drawn.

    Raises
    ------
    InvalidValue
        ``BAD_CONFIG``: it is not a schedule.
    """
    name, colon, given = text.partition(":")
    if name not in NAMES or (colon and name != "seeded"):
        raise InvalidValue(
            f"{source}: schedule is {text!r}; valid are eager, lazy, seeded and seeded:SEED",
            fault=Fault.BAD_CONFIG,
            detail=BadArgument("schedule", text, choices=("eager", "lazy", "seeded"), rule="or seeded:SEED"),
        )
    if not colon:
        return name, None
    if not (given.isdecimal() and given.isascii() and len(given) <= 20 and int(given) in _SEEDS):
        raise InvalidValue(
            f"{source}: the seed of the schedule is {given!r}; valid are 0 to 2**64 - 1",
            fault=Fault.BAD_CONFIG,
            detail=BadArgument("seed", given, least=0, most=(1 << 64) - 1),
        )
    return name, int(given)


def begin(text: str) -> None:
    """Set the schedule of the process's streams; print a seed that is drawn."""
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
    """Return the present schedule in the form that :func:`parse` reads: ``seeded:17``."""
    name, seed = _present[0] if _present else ("eager", 0)
    return f"{name}:{seed}" if name == "seeded" else name
