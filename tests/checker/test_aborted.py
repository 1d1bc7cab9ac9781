"""Operations that were given up are accesses until the program knows of their end."""

from __future__ import annotations

import pytest

from checker.checking import TESTS, checked_program, described
from checker.programs.aborted import KINDS

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(300)]

PROGRAM = TESTS / "checker" / "programs" / "aborted.py"
SCHEDULES = ("eager", "lazy", "seeded")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_memory_of_an_abandoned_operation_is_not_free_in_any_round(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    done = checked_program(PROGRAM, "racy", devices=2)
    lines = {
        at: line.rpartition("# ")[2]
        for at, line in enumerate(PROGRAM.read_text().splitlines(), 1)
        if line.rpartition("# ")[2] in KINDS
    }
    races = {lines.get(each["sites"][1]["line"]): each for each in done.findings if each["kind"] == "race"}
    assert sorted(filter(None, races)) == sorted(KINDS), f"{described(done.findings)}\n{done.output}"
    assert {(each["certain"], each["count"]) for each in races.values()} == {(True, 3)}, done.output


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_memory_of_an_operation_whose_end_is_known_is_free(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    done = checked_program(PROGRAM, "right", devices=2)
    assert (done.code, described(done.findings)) == (0, ""), done.output
