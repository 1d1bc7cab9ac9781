"""Mistakes of KV connectors on the dialect nixl are named with both lines; the right program has no findings."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.checking import checked_program, described

PROGRAM = Path(__file__).parent / "programs" / "nixl_requests.py"

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(180)]


def _line(marked: str) -> int:
    return next(
        at for at, line in enumerate(PROGRAM.read_text().splitlines(), 1) if line.endswith(f"# {marked}")
    )


def test_nixl_requests_in_order_have_no_findings() -> None:
    done = checked_program(PROGRAM, "right", devices=2)
    assert (done.code, described(done.findings)) == (0, ""), done.output


@pytest.mark.parametrize(
    "schedule", ["eager", "lazy"]
)  # a transfer that is over at once is not known to be over
@pytest.mark.parametrize(
    ("mistake", "second"),
    [
        ("early read", "decode: the read"),
        ("wrong request", "decode: the read"),
        ("overtaking", "decode: the read"),
        ("reused block", "prefill: the reuse"),
    ],
)
def test_nixl_mistake_is_a_race_between_the_transfer_and_the_other_line(
    mistake: str, second: str, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    done = checked_program(PROGRAM, mistake, devices=2)
    lines = {_line("prefill: the write"), _line(second)}
    reported = [each for each in done.findings if {site["line"] for site in each["sites"]} == lines]
    assert reported, f"{described(done.findings)}\n{done.output}"
    assert reported[0]["kind"] == "race"
    call = "check_xfer_state" if mistake == "reused block" else "check_remote_xfer_done"
    assert f"nixl_agent.{call}" in reported[0]["missing"]
