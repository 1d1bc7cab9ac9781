"""What callbacks of streams order in programs in C, under ``peerlane check``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.c_programs import PEERLANE, PROGRAMS, Run

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(180)]


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:3"])
@pytest.mark.parametrize(
    ("program", "dialect", "mark"),
    [
        ("callback_orders.c", "hip", "behind the callback"),
        ("callback_orders_acl.c", "acl", "in the callback"),
    ],
)
def test_callback_of_c_comes_after_what_its_stream_did_before_it_and_no_more(
    compiled_program: Callable[..., Path],
    run: Run,
    tmp_path: Path,
    program: str,
    dialect: str,
    mark: str,
    schedule: str,
) -> None:
    report = tmp_path / "findings.json"
    words = (*PEERLANE, "check", "--json", report, compiled_program(program, dialect))

    done = run(*words, "right", PEERLANE_SCHEDULE=schedule)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert not any(each["certain"] for each in json.loads(report.read_text())["findings"]), done.stderr

    done = run(*words, "racy", PEERLANE_SCHEDULE=schedule)
    assert (done.returncode, done.stdout) == (3, "done\n"), done.stderr
    lines = (PROGRAMS / program).read_text().splitlines()
    certain = [each for each in json.loads(report.read_text())["findings"] if each["certain"]]
    assert {each["kind"] for each in certain} == {"race"}
    assert any(lines[site["line"] - 1].endswith(mark) for each in certain for site in each["sites"]), (
        done.stderr
    )
