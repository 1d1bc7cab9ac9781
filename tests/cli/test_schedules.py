"""The search for a failing schedule, and ``--fault``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from peerlane.backends.virtual.node import faults
from peerlane.backends.virtual.node.schedule import Schedule, parse
from peerlane.cli import schedules
from peerlane.errors import InvalidValue

pytestmark = pytest.mark.timeout(60)


def _says(variables: Mapping[str, str], steps: int, why: str = "") -> None:
    line = {"pid": 1, "rank": 0, "steps": steps, "why": why}
    Path(variables["PEERLANE_SCHEDULE_REPORT"]).write_text(json.dumps(line) + "\n")


def test_search_no_run_fails_returns_none() -> None:
    ran: list[str] = []

    def run(variables: Mapping[str, str]) -> bool:
        ran.append(variables["PEERLANE_SCHEDULE"])
        return False

    assert schedules.search(run, 7, first_seed=10) is None
    assert [each.split(":")[1] for each in ran] == [str(seed) for seed in range(10, 17)]


def test_search_change_at_two_steps_fails_keeps_these_two() -> None:
    def run(variables: Mapping[str, str]) -> bool:
        _says(variables, 30)
        changes = parse(variables["PEERLANE_SCHEDULE"], "").changes or ()
        return any(step < 10 for step in changes) and any(step > 20 for step in changes)

    found = schedules.search(run, 200, first_seed=1)
    assert found is not None
    assert found.changes is not None
    assert len(found.changes) == 2
    assert found.repeats
    assert found.variables == {"PEERLANE_SCHEDULE": found.schedule}
    assert run(found.variables | {"PEERLANE_SCHEDULE_REPORT": "/dev/null"})
    assert found.command("peerlane run p.py") == f"PEERLANE_SCHEDULE={found.schedule} peerlane run p.py"


def test_search_first_run_fails_has_no_changes_and_says_whether_it_repeats() -> None:
    def run(variables: Mapping[str, str]) -> bool:
        _says(variables, 30, "rank 1 slept")
        return True

    found = schedules.search(run, 5, first_seed=3)
    assert found == schedules.Failing("seeded:3", {"PEERLANE_SCHEDULE": "seeded:3"}, None, 1, repeats=False)


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("seeded:5", Schedule("seeded", 5)),
        ("seeded:5:", Schedule("seeded", 5, ())),
        ("seeded:5:1,7,12", Schedule("seeded", 5, (1, 7, 12))),
    ],
)
def test_parse_schedule_text_comes_back(text: str, schedule: Schedule) -> None:
    assert parse(text, "here") == schedule
    assert str(schedule) == text


@pytest.mark.parametrize(
    "text", ["seeded:5:0", "seeded:5:3,2", "seeded:5:1,,2", "seeded:5:x", "lazy:1", "seeded:"]
)
def test_parse_wrong_schedule_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="here: "):
        parse(text, "here")


def test_parse_fault_same_seed_gives_same_fault() -> None:
    assert faults.parse("kill:rank=1,op=120", "", 4) == (1, 120, None)
    assert faults.parse("delay:op=7,rank=0,ms=50", "", 4) == (0, 7, 50)
    assert faults.parse("seed:5", "", 4) == faults.parse("seed:5", "", 4)
    assert len({faults.parse(f"seed:{seed}", "", 4) for seed in range(20)}) > 10


@pytest.mark.parametrize(
    "fault",
    [
        "",
        "kill",
        "kill:rank=1",
        "kill:rank=1,op=0",
        "kill:rank=x,op=1",
        "delay:rank=0,op=1",
        "drop:rank=0,op=1",
        "seed:",
    ],
)
@pytest.mark.parametrize("command", ["run", "launch"])
def test_fault_bad_syntax_exits_2_and_says_what_is_valid(command: str, fault: str) -> None:
    words = ["-n", "2"] if command == "launch" else []
    done = subprocess.run(
        [sys.executable, "-m", "peerlane", command, *words, "--fault", fault, "-c", "pass"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "valid are" in done.stderr
