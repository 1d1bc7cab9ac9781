"""Programs that write event logs, and the logs as Python reads them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peerlane import _core

_NAMES = {number: name for name, number in _core.LOG_KINDS.items()}


@dataclass(frozen=True)
class Logged:
    """An event: as ``native/log/event.h`` has it, with its line and the functions that called."""

    kind: str
    line: int
    callers: tuple[str, ...]
    thread: int
    flags: int
    repeats: int
    stream: int
    sequence: int
    words: tuple[int, int, int, int]
    spans: tuple[tuple[int, int, int, bool], ...]
    rows: tuple[tuple[int, int, int], ...]


class Log:
    """The log of a process, read to its end."""

    def __init__(self, path: Path) -> None:
        reader = _core.LogReader(str(path))
        self.pid, self.rank = reader.pid, reader.rank
        fields = [json.loads(line) for line in path.with_suffix(".names").read_text().splitlines()]
        self.names = [each for each in fields if "frames" not in each]
        sites = {each["site"]: each["frames"] for each in fields if "frames" in each}
        self.events = [_event(each, sites) for each in reader.take(True)]
        self.dropped, self.has_ended = reader.dropped, reader.has_ended

    def of(self, *kinds: str) -> list[Logged]:
        """Return the events of some kinds."""
        return [each for each in self.events if each.kind in kinds]


def _event(fields: Any, sites: dict[int, list[Any]]) -> Logged:
    kind, flags, _op, site, thread, repeats, _time, stream, sequence, words, spans, rows = fields
    frames = sites.get(site, [["", 0, ""]])
    functions = tuple(frame[2] for frame in frames)
    where = (thread, flags, repeats, stream, sequence)
    return Logged(_NAMES[kind], frames[0][1], functions, *where, words, tuple(map(tuple, spans)), tuple(rows))


def logs_in(folder: Path) -> list[Log]:
    """Return the logs of a directory, by rank."""
    return sorted(map(Log, folder.glob("*.log")), key=lambda log: (log.rank, log.pid))


def run_logged(folder: Path, program: str, *options: str, **variables: str) -> list[Log]:
    """Run a program with a log, under the options of the command ``peerlane`` if there are any; return the logs."""
    path = folder / "program.py"
    path.write_text(textwrap.dedent(program))
    where = folder / "logs"
    where.mkdir(exist_ok=True)
    words = ["-m", "peerlane", *options] if options else []
    environ = os.environ | {"PEERLANE_LOG": str(where)} | variables
    done = subprocess.run(
        [sys.executable, *words, str(path)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return logs_in(where)


def line_of(program: str, text: str) -> int:
    """Return the line of a program that has some text, as `run_logged` writes it."""
    numbers: Iterator[int] = (
        number for number, line in enumerate(textwrap.dedent(program).splitlines(), 1) if text in line
    )
    return next(numbers)
