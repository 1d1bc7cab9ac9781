"""A vendor's free ends memory for queued work and for importers, unless it waits for them."""

from __future__ import annotations

import pytest

from checker.checking import TESTS, checked_program, described

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(300)]

PROGRAM = TESTS / "checker" / "programs" / "freed.py"
KINDS = ("source", "target", "pinned", "unmapped", "other stream", "imported")
SCHEDULES = ("eager", "lazy", "seeded")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_memory_freed_while_in_use_is_reported(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    done = checked_program(PROGRAM, "racy", devices=2)
    ends = {at: line.rpartition("  # ")[2] for at, line in enumerate(PROGRAM.read_text().splitlines(), 1)}
    reported = [(ends[each["sites"][1]["line"]], each["kind"], each["certain"]) for each in done.findings]
    assert sorted(reported) == sorted((kind, "use-after-free", True) for kind in KINDS), done.output


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_memory_that_is_freed_behind_its_last_use_is_right(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    done = checked_program(PROGRAM, "right", devices=2)
    assert (done.code, described(done.findings)) == (0, ""), done.output
