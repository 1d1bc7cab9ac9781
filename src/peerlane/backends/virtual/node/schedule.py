"""Schedules: when queued operations run.

``eager``: as soon as they can.  ``lazy``: only when a call waits for them.  ``seeded``: one at a time, whenever the
program submits, queries or waits, in an order that a seed chooses among the allowed ones; the ranks of a group take
turns, so the same seed repeats a run.  A process is idle after 1 s without such a call; under ``lazy`` and ``seeded``
it then runs all queued operations.
"""

from __future__ import annotations

import atexit
import json
import os
import random
import sys
from pathlib import Path
from typing import NamedTuple

from peerlane import _core
from peerlane.errors import BadArgument, Fault, InvalidValue
from peerlane.support.spelling import did_you_mean
from peerlane.support.variables import warn_of_path

VARIABLE = "PEERLANE_SCHEDULE"
NAMES = ("eager", "lazy", "seeded")

REPORT = "PEERLANE_SCHEDULE_REPORT"  # a file to which processes append their numbers of steps

_SEEDS = range(1 << 64)
_MOST_CHANGES = 1000
#: Why a run may not repeat, by native code's number; the texts are about a rank.
_WHYS = {
    "slept": "rank {} slept or waited outside of peerlane for 0.1 s, and gave up its turn",
    "rested": "rank {} made no call for 1 s, so its queued operations were run",
    "took_long": "rank {} did not get its turn within 60 s",
    "polled": "rank {} had its turn for 2 s without a call that lets others go on, and gave it up",
    "stopped": "the process of rank {} was stopped for 2 s, and lost its turn",
    "elsewhere": "rank {} takes turns in another group, which it made before",
}
_UNKNOWN = "rank {} wrote nonsense where the ranks note whose turn it is"


class Reason(NamedTuple):
    """Why a run may not repeat."""

    #: One of ``slept``, ``rested``, ``took_long``, ``polled``, ``stopped`` and ``elsewhere``, or ``unknown``.
    why: str
    rank: int  #: the rank that it is about

    def __str__(self) -> str:
        return _WHYS.get(self.why, _UNKNOWN).format(self.rank)


class Schedule(NamedTuple):
    """A schedule."""

    name: str  #: one of ``NAMES``
    seed: int | None = None  #: None: to be drawn
    #: With priorities, the steps at which one changes; None without.  In texts a 0 stands for no step.
    changes: tuple[int, ...] | None = None

    def __str__(self) -> str:
        if self.seed is None:
            return self.name
        text = f"{self.name}:{self.seed}"
        return text if self.changes is None else f"{text}:{','.join(map(str, self.changes)) or 0}"


_present: list[Schedule] = []


def parse(text: str, source: str) -> Schedule:
    """Return a schedule; its seed is None if it is to be drawn.

    Raises InvalidValue: ``BAD_CONFIG``: it is not a schedule.
    """
    name, colon, rest = text.partition(":")
    seed, second, changes = rest.partition(":")
    if name not in NAMES or (colon and name != "seeded"):
        raise InvalidValue(
            f"{source}: schedule is {text!r}{did_you_mean(name, NAMES)}; valid are eager, lazy, seeded, "
            "seeded:SEED and seeded:SEED:STEP,STEP,...",
            fault=Fault.BAD_CONFIG,
            detail=BadArgument("schedule", text, choices=("eager", "lazy", "seeded"), rule="or seeded:SEED"),
        )
    if not colon:
        return Schedule(name)
    if not (seed.isdecimal() and seed.isascii() and len(seed) <= 20 and int(seed) in _SEEDS):
        raise InvalidValue(
            f"{source}: the seed of the schedule is {seed!r}; valid are 0 to 2**64 - 1",
            fault=Fault.BAD_CONFIG,
            detail=BadArgument("seed", rest, least=0, most=(1 << 64) - 1),
        )
    if not second:
        return Schedule(name, int(seed))
    words = changes.split(",") if changes != "0" else []
    steps = [int(word) for word in words if word.isdecimal() and word.isascii() and len(word) <= 19]
    if len(steps) != len(words) or len(steps) > _MOST_CHANGES or steps != sorted(set(steps)) or 0 in steps:
        raise InvalidValue(
            f"{source}: the steps of the schedule are {changes!r}; valid are 0 for none, or at most "
            f"{_MOST_CHANGES:,} numbers from 1 on, each above the one before, with commas between them",
            fault=Fault.BAD_CONFIG,
            detail=BadArgument(
                "steps", changes, least=1, rule="each above the one before, with commas between them"
            ),
        )
    return Schedule(name, int(seed), tuple(steps))


def begin(text: str) -> None:
    """Set the schedule of the process's streams; print a seed that is drawn."""
    source = "schedule"
    if not text:
        text, source = os.environ.get(VARIABLE, ""), VARIABLE
    wanted = parse(text or "eager", source)
    if wanted.name == "seeded" and wanted.seed is None:
        wanted = wanted._replace(seed=random.SystemRandom().randrange(1 << 32))
        print(f"peerlane: schedule {wanted} (repeat it with {VARIABLE}={wanted})", file=sys.stderr)
    _present[:] = [wanted]
    changes = None if wanted.changes is None else list(wanted.changes)
    _core.configure_schedule(NAMES.index(wanted.name), wanted.seed or 0, changes)
    if wanted.name == "seeded" and os.environ.get(REPORT):
        atexit.unregister(_report_own)
        atexit.register(_report_own)


def present() -> str:
    """Return the present schedule in the form that :func:`parse` reads: ``seeded:17``."""
    return str(_present[0]) if _present else "eager"


def _report_own() -> None:
    report(-1, _core.own_steps(), 0, 0)


def report(rank: int, steps: int, why: int, about: int) -> None:
    """Append the steps of a rank's group to the file that ``PEERLANE_SCHEDULE_REPORT`` names.

    ``why``: native code's number of the reason why the run may not repeat; 0 if it does.
    ``about``: the rank that the reason is about.
    """
    path = os.environ.get(REPORT)
    if not path:
        return
    line: dict[str, object] = {"pid": os.getpid(), "rank": rank, "steps": steps}
    if why:
        line |= {"why": dict(enumerate(_WHYS, 1)).get(why, "unknown"), "about": about}
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    except OSError as error:  # the run matters more
        warn_of_path(REPORT, path, f"nothing can be written there: {error.strerror}")


def lateness() -> str:
    """Return the schedule's name if it holds back what a channel writes, else an empty text."""
    name = _present[0].name if _present else "eager"
    return "" if name == "eager" else name
