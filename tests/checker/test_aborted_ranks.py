"""Operations between ranks that were given up are accesses until the program knows of their end."""

from __future__ import annotations

import pytest

from checker.checking import TESTS, checked_program, described

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(300)]

KINDS = {"aborted_ranks.py": {"written", "read", "reduced"}, "aborted_hcomm.py": {"forced"}}


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:2"])
@pytest.mark.parametrize("name", KINDS)
def test_memory_of_an_abandoned_operation_between_ranks_is_not_free(
    name: str, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    program = TESTS / "checker" / "programs" / name
    done = checked_program(program, "racy", ranks=2, devices=2)
    kinds = {at: line.rpartition("  # ")[2] for at, line in enumerate(program.read_text().splitlines(), 1)}
    reported = {
        kinds[each["sites"][1]["line"]]
        for each in done.findings
        if (each["kind"], each["certain"]) == ("race", True)
    }
    assert reported == KINDS[name], f"{described(done.findings)}\n{done.output}"
    done = checked_program(program, "right", ranks=2, devices=2)
    assert (done.code, described(done.findings)) == (0, ""), done.output
