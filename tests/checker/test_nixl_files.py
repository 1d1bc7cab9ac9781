"""Transfers between memory and files are accesses of the memory: the checker names them beside the host's line."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.checking import checked_program, described

PROGRAM = Path(__file__).parent / "programs" / "nixl_files.py"

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(180)]


def _line(marked: str) -> int:
    return next(
        at for at, line in enumerate(PROGRAM.read_text().splitlines(), 1) if line.endswith(f"# {marked}")
    )


@pytest.mark.parametrize("kind", ["VRAM", "view", "DRAM"])
def test_nixl_files_in_order_have_no_findings(kind: str) -> None:
    done = checked_program(PROGRAM, "right", kind, devices=1)
    assert (done.code, described(done.findings)) == (0, ""), done.output


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
@pytest.mark.parametrize("kind", ["VRAM", "view"])
@pytest.mark.parametrize(("mistake", "second"), [("changed", "the change"), ("early", "the early read")])
def test_nixl_mistake_with_a_file_is_a_race_between_the_transfer_and_the_host(
    mistake: str, second: str, kind: str, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    done = checked_program(PROGRAM, mistake, kind, devices=1)
    lines = {_line("the transfer"), _line(second)}
    races = [each for each in done.findings if {site["line"] for site in each["sites"]} == lines]
    assert [(each["kind"], each["certain"]) for each in races] == [("race", True)], (
        f"{described(done.findings)}\n{done.output}"
    )
    assert "nixl_agent.check_xfer_state" in races[0]["missing"]


@pytest.mark.parametrize("mistake", ["changed", "early"])
def test_nixl_mistake_with_a_file_and_an_array_of_numpy_is_a_race(mistake: str) -> None:
    done = checked_program(PROGRAM, mistake, "DRAM", devices=1)
    reported = [(each["kind"], {site["line"] for site in each["sites"]}) for each in done.findings]
    assert [kind for kind, _ in reported] == ["race"], done.output
    assert _line("the transfer") in reported[0][1]


def test_nixl_file_transfer_that_was_released_stays_an_access() -> None:
    done = checked_program(PROGRAM, "released", "VRAM", devices=1)
    lines = [{site["line"] for site in each["sites"]} for each in done.findings]
    assert lines == [{_line("the transfer"), _line("the read behind a release")}], done.output
