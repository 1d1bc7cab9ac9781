"""Host memory that a program writes before it knows that an asynchronous operation has read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.checking import checked_program, described
from checker.programs.host_sources import KINDS

PROGRAM = Path(__file__).parent / "programs" / "host_sources.py"

pytestmark = [pytest.mark.any_schedule, pytest.mark.usefixtures("each_schedule")]


def test_each_kind_of_source_that_is_written_too_early_is_one_certain_race() -> None:
    run = checked_program(PROGRAM, "racy", devices=1)

    assert all(each["certain"] and each["kind"] == "race" for each in run.findings), described(run.findings)
    assert [each["sites"][0]["function"] for each in run.findings] == [kind.__name__ for kind in KINDS]
    assert {each["sites"][1]["call"] for each in run.findings} == {"bytes have changed"}
    assert run.code == 3


def test_sources_that_a_wait_of_any_kind_releases_are_no_finding() -> None:
    run = checked_program(PROGRAM, "right", devices=1)

    assert not run.findings, described(run.findings)
    assert run.code == 0, run.output
    unseen = "not seen: whether the program looked too early at the host memory that 2 operations had to"
    assert unseen in " ".join(run.output.split())
