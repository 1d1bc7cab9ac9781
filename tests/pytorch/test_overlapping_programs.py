"""`peerlane check` on programs that overlap work: both lines of each missing order, and no right one accused."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.torch_ranks import BOTH_NAMES, needs_torch
from peerlane.testing.procs import run_python

needs_torch()

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(580)]
FOLDER = Path(__file__).with_name("check_programs")
SOURCES = pytest.mark.parametrize("source", ["overlapping", "caches_and_gradients"])
SCHEDULES = pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:3"])


def _lines_of_programs(source: str) -> dict[str, tuple[range, set[int]]]:
    """Return for each program its lines, and the marked ones."""
    lines = (FOLDER / f"{source}.py").read_text().splitlines()
    begins = [number for number, line in enumerate(lines, 1) if line == "@program"]
    programs = {}
    for begin, end in zip(begins, [*begins[1:], len(lines)], strict=True):
        name = lines[begin].removeprefix("def ").partition("(")[0]
        marked = {
            n for n in range(begin, end) if any(f"# {mark}" in lines[n - 1] for mark in ("first", "second"))
        }
        programs[name] = (range(begin, end), marked)
    return programs


def _findings(
    source: str, form: str, schedule: str, options: list[str], folder: Path
) -> list[dict[str, Any]]:
    report = folder / "report.json"
    program = str(FOLDER / f"{source}.py")
    words = ["-m", "peerlane", "check", *options, "--devices", "2", "--json", str(report), program, form]
    settings = {"PEERLANE_SCHEDULE": schedule, "OMP_NUM_THREADS": "1"}
    done = run_python(words, timeout=560, env={**os.environ, **settings})  # the first one compiles the device
    assert done.returncode == (3 if form == "racy" else 0), done.stdout + done.stderr
    return list(_with_consequences(json.loads(report.read_text())["findings"]))


def _with_consequences(findings: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for each in findings:
        yield each
        yield from _with_consequences(each["consequences"])


@SCHEDULES
@BOTH_NAMES
@SOURCES
def test_right_programs_have_no_finding(
    tmp_path: Path, source: str, options: list[str], schedule: str
) -> None:
    assert _findings(source, "right", schedule, options, tmp_path) == []


@SCHEDULES
@BOTH_NAMES
@SOURCES
def test_racy_programs_have_a_certain_finding_with_both_lines(
    tmp_path: Path, source: str, options: list[str], schedule: str
) -> None:
    programs = _lines_of_programs(source)
    assert len(programs) >= 20
    certain, others = set(), []
    module = "torch.cuda" if options else "torch"
    for each in _findings(source, "racy", schedule, options, tmp_path):
        lines = {site["line"] for site in each["sites"]}
        name = next((name for name, (own, _) in programs.items() if lines <= set(own)), None)
        if name is None or lines != programs[name][1]:
            others.append((name, sorted(lines)))
        elif each["certain"]:
            certain.add(name)
        assert f"{module}." in each["missing"] or "Tensor.record_stream" in each["missing"], each["missing"]
    assert (sorted(set(programs) - certain), others) == ([], [])
