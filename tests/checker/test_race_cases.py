"""What ``peerlane check`` says of the race cases; ``make check-score`` prints it for all of them."""

from __future__ import annotations

import pytest

from checker.checking import described
from checker.race_cases import CASES
from checker.race_cases.score import findings_of, judged, main

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(180)]

#: One of each kind of access, order and thread.
SHORT = {
    "conflict": ["001", "002", "006", "014", "027", "042"],
    "sync": ["004", "006", "007", "009"],
    "misc": ["002", "014"],
    "hybrid": ["003", "010", "022"],
}


@pytest.mark.parametrize("name", [f"{folder}-{number}" for folder in SHORT for number in SHORT[folder]])
def test_check_of_a_race_case_names_both_lines_of_its_race_or_nothing(name: str) -> None:
    verdict = judged(CASES[name], findings_of(CASES[name]))
    assert verdict.is_right, f"found: {verdict.is_detected}; unearned:\n{described(verdict.unearned)}"


@pytest.mark.parametrize("schedule", ["lazy", "seeded:1"])
def test_notify_of_a_nonblocking_write_brings_it_under_late_delivery_too(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    assert findings_of(CASES["sync-007"]) == ()


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_check_of_all_race_cases_reaches_the_score(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        assert main([]) == 0
