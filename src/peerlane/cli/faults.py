"""Faults by ``--fault``: kill or delay a rank at its n-th logged event, and report which faults struck."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peerlane.backends.virtual.node import faults
from peerlane.support.scratch_folders import scratch_folder

_LOG, _LOG_BYTES, _SMALL = "PEERLANE_LOG", "PEERLANE_LOG_BYTES", "1MiB"


@dataclass(frozen=True)
class Fate:
    """What became of a fault."""

    text: str  #: the value of ``--fault``
    planned: faults.Planned
    pid: int | None  #: the process that it struck
    events: int  #: how many events the rank had logged when it ended

    def as_json(self) -> dict[str, object]:
        return {
            "given": self.text,
            "fault": str(self.planned),
            **self.planned._asdict(),
            "struck": self.pid is not None,
            "events": self.events,
        }

    def __str__(self) -> str:
        what = f"--fault {self.planned}"
        if self.pid is not None:
            return f"{what} struck process {self.pid}"
        return f"{what} did not strike: rank {self.planned.rank} logged {self.events:,} events"


class Report:
    """The faults of a run, and the file in which its processes note them.

    ``texts``: the values of ``--fault``.
    ``ranks``: the number of ranks.
    """

    def __init__(self, texts: list[str], ranks: int, path: Path) -> None:
        self._texts, self.path = texts, path
        self.planned = [faults.parse(text, "--fault", ranks) for text in texts]
        for each in self.planned:
            faults.check_rank(each, ranks)

    @property
    def variables(self) -> dict[str, str]:
        """The variables that bring the faults to the ranks."""
        return {faults.VARIABLE: ";".join(map(str, self.planned)), faults.REPORT: str(self.path)}

    @property
    def drawn(self) -> list[str]:
        """A line for each fault that a seed drew."""
        pairs = zip(self._texts, self.planned, strict=True)
        return [f"--fault {text} is {planned}" for text, planned in pairs if text != str(planned)]

    @property
    def fates(self) -> list[Fate]:
        """What became of each fault."""
        lines = records_in(self.path)
        pids = {line["struck"]: line["pid"] for line in lines if "struck" in line}
        events: dict[int, int] = {}
        for line in lines:
            if "events" in line:
                events[line["rank"]] = max(line["events"], events.get(line["rank"], 0))
        for number, planned in enumerate(self.planned):
            if number in pids:
                events[planned.rank] = max(planned.op, events.get(planned.rank, 0))
        return [
            Fate(text, planned, pids.get(number), events.get(planned.rank, 0))
            for number, (text, planned) in enumerate(zip(self._texts, self.planned, strict=True))
        ]


def records_in(path: Path) -> list[dict[str, Any]]:
    """Return the JSON records that processes have appended to a file, one a line."""
    records = []
    with contextlib.suppress(OSError):
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):  # its writer was killed
                records.append(json.loads(line))
    return [record for record in records if isinstance(record, dict)]


def killer_of(pid: int) -> str:
    """Return the fault that killed a process, empty if none did; by the variables of this process."""
    path, planned = os.environ.get(faults.REPORT), os.environ.get(faults.VARIABLE, "").split(";")
    for line in records_in(Path(path)) if path else ():
        if line.get("pid") == pid and line.get("struck", -1) in range(len(planned)):
            fault: str = planned[line["struck"]]
            if fault.startswith("kill:"):
                return fault
    return ""


@contextlib.contextmanager
def reported(texts: list[str] | None, ranks: int) -> Iterator[Report | None]:
    """Yield the report of a run's faults; None without faults."""
    if not texts:
        yield None
        return
    with scratch_folder() as folder:
        path = folder / "faults.jsonl"
        path.touch()
        yield Report(texts, ranks, path)


@contextlib.contextmanager
def counted(
    args: argparse.Namespace, ranks: int, command: str, show: Callable[[str], None]
) -> Iterator[None]:
    """Bring the faults to the processes that are started in the block; show those that did not strike.

    Events are counted where they are logged.  A log that was asked for already stays; else there is a small one until
    the block ends.
    """
    with reported(args.fault, ranks) as report, contextlib.ExitStack() as ends:
        if report is None:
            yield
            return
        for line in report.drawn:
            show(f"{command}: {line}")
        variables = report.variables
        if not os.environ.get(_LOG):
            variables |= {_LOG: str(ends.enter_context(scratch_folder())), _LOG_BYTES: _SMALL}
        os.environ.update(variables)
        try:
            yield
        finally:
            faults.report_events()  # of this process, if the program ran here
            for name in variables:
                os.environ.pop(name, None)
            for fate in report.fates:
                if fate.pid is None:
                    show(f"{command}: {fate}")
