"""Mistakes of programs of Mooncake's engine are named with both lines; the right program has no findings."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.checking import checked_program, described

PROGRAM = Path(__file__).parent / "programs" / "mooncake_requests.py"

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(180)]


def _line(marked: str) -> int:
    return next(
        at for at, line in enumerate(PROGRAM.read_text().splitlines(), 1) if line.endswith(f"# {marked}")
    )


@pytest.mark.parametrize("memory", ["near", "far"])
def test_mooncake_requests_in_order_have_no_findings(memory: str) -> None:
    done = checked_program(PROGRAM, "right", memory, devices=2)
    assert (done.code, described(done.findings)) == (0, ""), done.output


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
@pytest.mark.parametrize(
    ("mistake", "memory", "first", "second", "call"),
    [
        ("early read", "near", "prefill: the write", "decode: the read", "get_notifies"),
        # The bytes of another machine are named by the line that registered their target.
        ("early read", "far", "decode: the target", "decode: the read", "order between thread"),
        ("unfinished pass", "near", "prefill: the forward pass", "prefill: the write", "stream 1"),
        ("unfinished pass", "far", "prefill: the forward pass", "prefill: the write", "stream 1"),
        ("reused block", "near", "prefill: begun", "prefill: the reuse", "get_batch_transfer_status"),
        ("reused block", "far", "prefill: begun", "prefill: the reuse", "get_batch_transfer_status"),
    ],
)
def test_mooncake_mistake_is_a_race_between_the_transfer_and_the_other_line(
    mistake: str,
    memory: str,
    first: str,
    second: str,
    call: str,
    schedule: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    done = checked_program(PROGRAM, mistake, memory, devices=2)
    lines = {_line(first), _line(second)}
    races = [each for each in done.findings if {site["line"] for site in each["sites"]} == lines]
    assert races, f"{described(done.findings)}\n{done.output}"
    assert races[0]["kind"] == "race"
    assert call in races[0]["missing"]
