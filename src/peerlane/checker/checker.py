"""Reads the logs of all processes while they grow, and reports the findings."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from peerlane._check import Analysis
from peerlane.checker.clocks import align
from peerlane.checker.findings import findings_of
from peerlane.checker.sites import Helpers
from peerlane.diagnostics.log.log_files import Frame, ProcessLog, logs_in, read_names
from peerlane.support.processes import lives

#: How much later an event may be published than it is dated.
_MARGIN_NS = 100_000_000


class Checker:
    """The analysis of the event logs in a directory.

    Parameters
    ----------
    directory : Path or str
        Where ``PEERLANE_LOG`` points; logs may come at any time.
    give_back : bool
        Free the logs' room as they are read, so that a long run needs no more than the rings' pages.
    """

    def __init__(self, directory: Path | str, *, give_back: bool = True) -> None:
        self._directory, self._give_back = Path(directory), give_back
        self._analysis = Analysis()
        self._logs: dict[str, int] = {}
        self._open: dict[str, int] = {}  # names and processes of logs that may still grow
        self._refused: dict[str, str] = {}
        self._shifts: dict[str, int] = {}
        self._looked_ns = 0

    def poll(self) -> None:
        """Read the new records of all logs; to be called repeatedly, by one thread at a time."""
        # The newest record of a log may still grow.  It is read one poll after it was first seen, and until then no
        # other log is read beyond its time.
        horizon = max(0, min(time.monotonic_ns() - _MARGIN_NS, self._looked_ns - _MARGIN_NS // 10))
        self._find()
        for name, pid in list(self._open.items()):
            if not lives(pid):
                self._analysis.close(self._logs[name])
                del self._open[name]
        self._analysis.poll(horizon)
        self._looked_ns = time.monotonic_ns()
        self._analysis.end_growth()

    def finish(self) -> dict[str, Any]:
        """Read the rest of all logs, whose processes have ended.

        Returns
        -------
        dict
            ``version``, ``complete``, ``dropped``, ``unwatched``, ``findings`` and, if there are any, ``unseen``:
            see ``docs/design/checker.md``.
        """
        logs_in_folder = logs_in(self._directory)
        align(logs_in_folder)
        self._shifts = {log.path.stem: log.shift_ns for log in logs_in_folder}
        self._find()
        self._analysis.finish()
        logs, is_whole = {}, not self._refused
        for name, number in self._logs.items():
            pid, rank, problem = self._analysis.facts(number)
            logs[number] = ProcessLog(self._directory / f"{name}.log", pid=pid, rank=rank)
            read_names(logs[number])
            is_whole = is_whole and not problem
        stats = self._analysis.stats()
        unseen = _unseen(logs.values())
        return {
            "version": 1,
            "complete": is_whole and stats["dropped"] == 0 and stats["forgotten"] == 0,
            "dropped": stats["dropped"],
            "unwatched": [
                {"what": what, "count": count, "first": _line(logs[log], site)}
                for what, count, log, site in self._analysis.unwatched()
            ],
            **({"unseen": unseen} if unseen else {}),
            "findings": findings_of(self._analysis.findings(), logs, Helpers(self._lines(logs))),
        }

    def _lines(self, logs: Mapping[int, ProcessLog]) -> Iterator[tuple[list[Frame], Any]]:
        for number, log in logs.items():
            verbs = self._analysis.verbs_of_lines(number)
            for site, frames in log.sites.items():
                if site in verbs:
                    yield frames, (verbs[site], log.calls.get(site))

    @property
    def stats(self) -> dict[str, int]:
        """Counts: of events, and of what is kept."""
        return dict(self._analysis.stats())

    def _find(self) -> None:
        for path in sorted(self._directory.glob("*.log")):
            if path.stem in self._logs or path.stem in self._refused:
                continue
            try:
                number = self._analysis.add(str(path), self._give_back, self._shifts.get(path.stem, 0))
            except ValueError as error:
                # A process makes the file before its header; one that died in between has no log.
                if not lives(_pid_of(path.stem)):
                    self._refused[path.stem] = str(error)
                continue
            self._logs[path.stem] = number
            self._open[path.stem] = self._analysis.facts(number)[0]


def _line(log: ProcessLog, site: int) -> list[Any] | None:
    frames = log.sites.get(site)
    return list(frames[0][:2]) if frames else None


def _unseen(logs: Iterable[ProcessLog]) -> list[dict[str, Any]]:
    """Return the processes without a log that may use memory of those that have one."""
    logs = list(logs)
    seen = {log.pid for log in logs}
    unseen: dict[int, dict[str, Any]] = {}
    for log in logs:
        for pid, argv in log.sharers.items():
            if pid not in seen:
                each = unseen.setdefault(pid, {"pid": pid, "argv": argv, "shares_with": []})
                each["shares_with"].append(log.pid)
    return [unseen[pid] for pid in sorted(unseen)]


def _pid_of(stem: str) -> int:
    pid = stem.partition("-")[0]
    return int(pid) if pid.isdecimal() else 0
