"""The output of ``peerlane check``: findings on standard error, and a file for programs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from peerlane.checker import texts
from peerlane.checker.page import MOST_EVENTS, write_page
from peerlane.checker.timeline import read_timeline
from peerlane.cli.launch.output import has_colours
from peerlane.cli.schedules import Failing

from .outcome import Outcome

_PREFIX = "peerlane check: "


def show(outcome: Outcome, file: TextIO | None, *, sources: Mapping[str, str], runs: int = 1) -> None:
    """Print the findings, what came of them, and a line that counts them; a closed standard error takes nothing."""
    if file is None:
        return
    is_coloured, width = False, texts.WIDTH
    with contextlib.suppress(OSError, ValueError):
        is_coloured = has_colours(file.fileno())
        if file.isatty():
            width = max(40, min(width, shutil.get_terminal_size().columns))
    style = texts.coloured if is_coloured else texts.plain
    known = texts.Sources(sources)
    blocks = [
        texts.finding_text(each, known, style=style, width=width) for each in outcome.report["findings"]
    ]
    blocks += [f"peerlane launch: {each}" for each in outcome.deadlocks]
    summary = texts.summary_text(outcome.report, style=style, width=width - len(_PREFIX))
    counted, *more = summary.splitlines()
    if outcome.code:
        counted += f"; the program ended with {outcome.code}"
    elif runs > 1 and not outcome.report["findings"]:
        counted += f" under {runs:,} schedules"
    _write(file, "\n" * bool(blocks) + "\n\n".join([*blocks, "\n".join([_PREFIX + counted, *more])]))


def print_line(text: str, file: TextIO | None) -> None:
    """Print a line of the command's own; a closed standard error takes nothing."""
    if file is not None:
        _write(file, _PREFIX + text)


def show_schedule(failing: Failing, file: TextIO | None, *, command: str) -> None:
    """Print how to repeat the run that failed."""
    if file is None:
        return
    changes = failing.changes
    fewest = f"; it needs {len(changes):,} priority change{'s' * (len(changes) != 1)}" if changes else ""
    lines = [f"run {failing.runs:,} failed{fewest}; this repeats it:", f"  {failing.command(command)}"]
    lines += [f"it may not repeat: {reason}" for reason in failing.reasons]
    _write(file, "\n".join(line if line.startswith(" ") else _PREFIX + line for line in lines))


def _write(file: TextIO, text: str) -> None:
    encoding = file.encoding or "utf-8"
    with contextlib.suppress(OSError, ValueError):
        file.write((text + "\n").encode(encoding, "backslashreplace").decode(encoding))
        file.flush()


def write_json(path: Path, outcome: Outcome, code: int, failing: Failing | None = None) -> None:
    """Write the report with the exit code, with the faults, and with the schedule of a run that failed."""
    report = outcome.report
    whole: dict[str, Any] = {"version": report["version"], "exit": code, **report}
    if outcome.faults:
        whole["faults"] = [fault.as_json() for fault in outcome.faults]
    if failing is not None:
        whole["schedule"] = failing.schedule
        whole["may_not_repeat"] = [reason._asdict() for reason in failing.reasons]
    _write_whole(path, json.dumps(whole, indent=1) + "\n")


def _write_whole(path: Path, text: str) -> None:
    """Write a file that is whole or not there; a link, a pipe or a device is written where it is."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        path.write_text(text, encoding="utf-8")
        return
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def write_html(path: Path, outcome: Outcome, *, command: str, sources: Mapping[str, str]) -> None:
    """Write the page with the findings and the timeline."""
    about = [
        (site["pid"], site["event"]) for finding in outcome.report["findings"] for site in finding["sites"]
    ]
    timeline = read_timeline(outcome.logs, about=about, most=MOST_EVENTS)
    write_page(path, outcome.report, timeline, texts.Sources(sources), command=command)
