"""Reads the event logs of other processes: their events, and the names that go with them.

Other processes write the files: what is wrong or cut off in one of them is left out, and the rest is read.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from peerlane import _core

Frame: TypeAlias = tuple[str, int, str]  #: file, line, function

KINDS: tuple[str, ...] = tuple(_core.LOG_KINDS)  #: the names of the kinds of events, by number
OPS: tuple[str, ...] = _core.LOG_OPS  #: the names of the operations of an access, by number

LOOSE, SHARED, END, UNKNOWN, ROWS, MERGED, FETCH = (1 << bit for bit in range(7))  #: flags of events

FIRST_SHARED_KEY = 4  #: keys of posts with a lower first word belong to one process or machine

_LIBRARY, _OWN = (f"{path}{os.sep}" for path in (sysconfig.get_path("stdlib"), Path(__file__).parents[2]))
_PACKAGES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
_RUNNERS = tuple(f"{os.sep}{name}{os.sep}" for name in ("_pytest", "pluggy"))

_AT_ONCE = 1 << 14  # events


class LoggedSpan(NamedTuple):
    """Bytes of a block, or with ``block`` 0 of the host."""

    block: int
    offset: int
    size: int
    written: bool


class LoggedEvent(NamedTuple):
    """A record of a log; ``native/log/event.h`` describes its fields.

    ``rows`` has a pitch, a width and a height for each span if the bytes are rows of spans; else it is empty.
    """

    number: int
    kind: str
    flags: int
    op: int
    site: int
    thread: int
    repeats: int
    time_ns: int
    stream: int
    sequence: int
    words: tuple[int, int, int, int]
    spans: tuple[LoggedSpan, ...]
    rows: tuple[tuple[int, int, int], ...]


@dataclass
class ProcessLog:
    """The log of a process.

    Attributes
    ----------
    rank : int
        -1 if it is not known.
    argv : list of str
        The words of its command.
    sites : dict
        For the number of a site its frames, innermost first: file, line, function.  Those of the standard library,
        of pytest and of peerlane are left out.
    launches : dict
        For the number of a site of an operation of a graph the frames of the launch.
    with_ends : set of int
        The sites at which the end of a ``with`` block called peerlane: their line is that of the ``with``.
    failing : set of int
        The sites within the end of a ``with`` block that an exception left, and in clean-ups after one.
    dialects : dict
        For the number of a site the dialect that was called there, if one was.
    calls : dict
        For the same its function.
    threads, streams : dict
        Names, by number.
    sharers : dict
        The words of the command of each process, by its number, that may use the same memory and had no log by then.
    machine : str
        The name of its machine, if it has one.
    clock, since_epoch_ns : int
        The clock of its times, 0 if unknown, and the time of day at which that clock was 0.
    shift_ns : int
        How much later its times are on the clock of the others.
    problem : str
        Why the log could not be read to its end; else empty.
    """

    path: Path
    pid: int = 0
    rank: int = -1
    argv: list[str] = field(default_factory=list)
    sites: dict[int, list[Frame]] = field(default_factory=dict)
    launches: dict[int, list[Frame]] = field(default_factory=dict)
    with_ends: set[int] = field(default_factory=set)
    failing: set[int] = field(default_factory=set)
    dialects: dict[int, str] = field(default_factory=dict)
    calls: dict[int, str] = field(default_factory=dict)
    threads: dict[int, str] = field(default_factory=dict)
    streams: dict[int, str] = field(default_factory=dict)
    sharers: dict[int, list[str]] = field(default_factory=dict)
    machine: str = ""
    clock: int = 0
    since_epoch_ns: int = 0
    shift_ns: int = 0
    dropped: int = 0
    problem: str = ""

    @property
    def name(self) -> str:
        """``rank 0``, or the process's number if it has no rank."""
        return f"rank {self.rank}" if self.rank >= 0 else f"process {self.pid}"

    def events(self) -> Iterator[LoggedEvent]:
        """Yield the events that are in the file, in their order; set :attr:`problem` if one is wrong."""
        number = 0
        try:
            reader = _core.LogReader(str(self.path))
            reader.shift(self.shift_ns)
            while taken := reader.take(also_open=True, most=_AT_ONCE):
                self.dropped = reader.dropped
                for kind, *facts, spans, rows in taken:
                    touched = tuple(LoggedSpan(*span) for span in spans)
                    yield LoggedEvent._make((number, KINDS[kind], *facts, touched, tuple(rows)))
                    number += 1
        except ValueError as error:
            self.problem = str(error)


def logs_in(directory: Path) -> list[ProcessLog]:
    """Return the logs in a directory, by rank and process."""
    logs = []
    for path in directory.glob("*.log"):
        log = ProcessLog(path)
        try:
            reader = _core.LogReader(str(path))
            log.pid, log.rank = reader.pid, reader.rank
            log.clock, log.since_epoch_ns = reader.clock, reader.since_epoch_ns
        except ValueError as error:
            log.problem = str(error)
        read_names(log)
        logs.append(log)
    return sorted(logs, key=lambda log: (log.rank < 0, log.rank, log.pid, str(log.path)))


def read_names(log: ProcessLog) -> None:
    """Read the file with the names; what is cut off or wrong is left out."""
    try:
        lines = log.path.with_suffix(".names").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            _take_name(log, json.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError):  # cut off, or not of a log
            continue


def is_installed(file: str) -> bool:
    """Return whether a file belongs to a library that is installed."""
    return any(each in file for each in _PACKAGES)


def _is_of_program(file: str) -> bool:
    if file.startswith((_OWN, "<frozen ")) or any(each in file for each in _RUNNERS):
        return False
    return not file.startswith(_LIBRARY) or is_installed(file)


def _frames(listed: Any) -> list[Frame]:
    return [(str(file), int(line), str(name)) for file, line, name in listed]


def _of_program(frames: list[Frame]) -> list[Frame]:
    return [each for each in frames if _is_of_program(each[0])]


def _take_name(log: ProcessLog, entry: dict[str, Any]) -> None:
    if "frames" in entry:
        frames = _frames(entry["frames"])
        # Lines of the program, if there are any; else the innermost line of the library.
        of_program = _of_program(frames)
        log.sites[int(entry["site"])] = of_program or frames[:1]
        if "launched" in entry:
            launch = _frames(entry["launched"])
            log.launches[int(entry["site"])] = _of_program(launch) or launch[:1]
        if "with_end" in entry and of_program[:1] == frames[:1]:
            log.with_ends.add(int(entry["site"]))
        if "failing" in entry or ("handled" in entry and any(_is_cleanup(*each[:2]) for each in of_program)):
            log.failing.add(int(entry["site"]))
        if "dialect" in entry:
            log.dialects[int(entry["site"])] = str(entry["dialect"])
            log.calls[int(entry["site"])] = str(entry["call"])
    elif "process" in entry:
        log.argv = [str(word) for word in entry["process"]["argv"]]
        if log.rank < 0:
            log.rank = int(entry["process"]["rank"])
    elif "thread" in entry:
        log.threads[int(entry["thread"])] = str(entry["name"])
    elif "stream" in entry:
        log.streams[int(entry["stream"])] = str(entry["name"])
    elif "sharer" in entry:
        log.sharers[int(entry["sharer"])] = [str(word) for word in entry["argv"]]
    elif "machine" in entry:
        log.machine = str(entry["machine"])


def _is_cleanup(file: str, line: int) -> bool:
    """Tell whether a line cleans up after an exception: in a ``finally``, or in an ``except`` that raises again."""
    return any(line in each for each in _cleanups(file))


@functools.lru_cache(maxsize=256)
def _cleanups(file: str) -> tuple[range, ...]:
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(
        range(body[0].lineno, (body[-1].end_lineno or 0) + 1) for body in _cleanup_bodies(tree) if body
    )


def _cleanup_bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and isinstance(node.body[-1], ast.Raise):
            yield node.body
        elif hasattr(node, "finalbody"):
            yield node.finalbody
