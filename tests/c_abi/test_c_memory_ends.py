"""Memory of programs in C that ends, or is used again, while queued work uses it, under ``peerlane check``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.c_programs import PEERLANE, PROGRAMS, Run

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(180)]

KINDS = {
    ("freed.c", "acl"): {
        "source": "use-after-free",
        "target": "use-after-free",
        "pinned": "use-after-free",
        "forced": "race",
    },
    ("freed_hip.c", "hip"): {"other stream": "use-after-free"},
}


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:3"])
@pytest.mark.parametrize(("program", "dialect"), KINDS)
def test_memory_of_a_c_program_freed_while_in_use_is_reported(
    compiled_program: Callable[..., Path], run: Run, tmp_path: Path, program: str, dialect: str, schedule: str
) -> None:
    report = tmp_path / "findings.json"
    words = (*PEERLANE, "check", "--json", report, compiled_program(program, dialect))
    done = run(*words, "racy", PEERLANE_SCHEDULE=schedule)
    assert (done.returncode, done.stdout) == (3, "done\n"), done.stderr
    ends = {
        at: line.rpartition("   // ")[2]
        for at, line in enumerate((PROGRAMS / program).read_text().splitlines(), 1)
    }
    findings = json.loads(report.read_text())["findings"]
    reported = {ends[each["sites"][1]["line"]]: each["kind"] for each in findings if each["certain"]}
    assert reported == KINDS[program, dialect], done.stderr
    done = run(*words, "right", PEERLANE_SCHEDULE=schedule)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert not json.loads(report.read_text())["findings"], done.stderr
