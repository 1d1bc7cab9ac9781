"""What peerlane itself notices of the end of an operation is not what the program knows."""

from __future__ import annotations

import pytest

from checker.checking import TESTS, checked_program, described

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(300)]

KINDS = ("shown", "reused", "trimmed", "waited")
PROGRAM = TESTS / "checker" / "programs" / "unasked.py"


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:2"])
def test_only_the_programs_own_query_proves_to_it_that_an_operation_is_over(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    done = checked_program(PROGRAM, "racy", devices=1)
    kinds = {at: line.rpartition("  # ")[2] for at, line in enumerate(PROGRAM.read_text().splitlines(), 1)}
    races = {
        kinds[each["sites"][1]["line"]]: each["certain"] for each in done.findings if each["kind"] == "race"
    }
    assert races == dict.fromkeys(KINDS, True), f"{described(done.findings)}\n{done.output}"
    done = checked_program(PROGRAM, "right", devices=1)
    assert (done.code, described(done.findings)) == (0, ""), done.output
