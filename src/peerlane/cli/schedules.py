"""Runs of a program under many schedules: the first that fails, what repeats it, and whether a run repeats at all."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from peerlane.backends.virtual.node import schedule
from peerlane.backends.virtual.node.schedule import Reason
from peerlane.support.scratch_folders import scratch_folder

from .faults import records_in

_CHANGES = 3  # priority changes of a drawn schedule
_FEWEST_STEPS = 16  # that changes are drawn from, where a program has hardly any

Run = Callable[[Mapping[str, str]], bool]


@dataclass(frozen=True)
class Failing:
    """A schedule under which a program fails."""

    schedule: str  #: the value of ``PEERLANE_SCHEDULE`` that repeats it
    variables: dict[str, str]  #: all variables that repeat it
    #: The steps at which a priority changes, as few as still fail; None if the schedule has no priorities.
    changes: tuple[int, ...] | None
    runs: int  #: how many runs it took to find it, without those that reduced the changes
    reasons: tuple[Reason, ...]  #: why the failing run may not repeat; empty if it does

    def command(self, words: str) -> str:
        """Return the command line that repeats the failure; ``words`` is the rest of it."""
        return f"{schedule.VARIABLE}={self.schedule} {words}"


class Report:
    """The records of a run's processes about their steps."""

    def __init__(self, path: Path) -> None:
        self.path = path  #: the file to which they append

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why the run may not repeat; empty if it does."""
        reasons = {
            Reason(str(each["why"]), int(each["about"])) for each in records_in(self.path) if "why" in each
        }
        return tuple(sorted(reasons))

    @property
    def steps(self) -> int:
        """The most steps that a group or a process had."""
        return max((int(each.get("steps", 0)) for each in records_in(self.path)), default=0)


@contextlib.contextmanager
def reported(environ: Mapping[str, str]) -> Iterator[tuple[Report, dict[str, str]]]:
    """Yield a report, and the variables with which the processes of a run write it."""
    path = environ.get(schedule.REPORT)
    if path:  # whoever started this process reads it
        yield Report(Path(path)), {}
        return
    with scratch_folder() as folder:
        steps = folder / "steps.jsonl"
        yield Report(steps), {schedule.REPORT: str(steps)}


@contextlib.contextmanager
def shared_seed(command: str, show: Callable[[str], None]) -> Iterator[None]:
    """Draw one seed for all processes that are started in the block; afterwards show why the run may not repeat.

    ``command``: ``"peerlane launch"``, for the text.
    ``show``: shows a line.
    """
    wanted = schedule.parse(os.environ.get(schedule.VARIABLE) or "eager", schedule.VARIABLE)
    if wanted.name != "seeded":
        yield
        return
    if wanted.seed is None:
        wanted = wanted._replace(seed=random.SystemRandom().randrange(1 << 32))
        os.environ[schedule.VARIABLE] = str(wanted)
        show(f"{command}: schedule {wanted} (repeat it with {schedule.VARIABLE}={wanted})")
    with reported(os.environ) as (report, variables):
        os.environ.update(variables)
        try:
            yield
        finally:
            for name in variables:
                del os.environ[name]
        for reason in report.reasons:
            show(f"{command}: this run may not repeat under {schedule.VARIABLE}={wanted}: {reason}")


def search(
    run: Run, schedules: int, *, environ: Mapping[str, str] | None = None, first_seed: int | None = None
) -> Failing | None:
    """Run a program under different seeded schedules until it fails; then find the fewest priority changes.

    Every second schedule draws each choice; the first tells how many steps the program has.  The others draw
    priorities, and change one at a few of these steps: most mistakes need one or two changes to show.

    ``run``: runs the program once with the given variables besides the environment's; returns whether it failed.
    ``schedules``: the most runs.
    ``environ``: the environment, by default this process's.
    ``first_seed``: the seeds count up from it; by default it is drawn.
    Returns None if no run failed.
    """
    environ = os.environ if environ is None else environ
    seed = random.SystemRandom().randrange(1 << 32) if first_seed is None else first_seed
    steps = _FEWEST_STEPS

    def fails(wanted: schedule.Schedule) -> tuple[bool, tuple[Reason, ...]]:
        nonlocal steps
        with reported({}) as (report, variables):
            failed = run({schedule.VARIABLE: str(wanted), **variables})
            steps = max(steps, report.steps)
            return failed, report.reasons

    for number in range(schedules):
        dice = random.Random(seed + number)
        changes = None
        if number % 2:
            most = min(number // 2 % (_CHANGES + 1), steps)
            changes = tuple(sorted(dice.sample(range(1, steps + 1), most)))
        wanted = schedule.Schedule("seeded", seed + number, changes)
        failed, reasons = fails(wanted)
        if failed:
            if changes:
                wanted, reasons = _with_fewest(wanted, reasons, fails)
            variables = {schedule.VARIABLE: str(wanted)}
            return Failing(str(wanted), variables, wanted.changes, number + 1, reasons)
    return None


def _with_fewest(
    wanted: schedule.Schedule,
    reasons: tuple[Reason, ...],
    fails: Callable[[schedule.Schedule], tuple[bool, tuple[Reason, ...]]],
) -> tuple[schedule.Schedule, tuple[Reason, ...]]:
    """Leave out priority changes one by one, as long as the program still fails."""
    for step in wanted.changes or ():
        fewer = wanted._replace(changes=tuple(each for each in wanted.changes or () if each != step))
        failed, again = fails(fewer)
        if failed:
            wanted, reasons = fewer, again
    return wanted, reasons
