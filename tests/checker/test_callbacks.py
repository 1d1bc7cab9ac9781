"""Bodies of callbacks: ordered by their streams and by what they take, not by the thread that runs them."""

from __future__ import annotations

import pytest

from checker.checking import TESTS, checked_program, described

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

PROGRAM = TESTS / "checker" / "programs" / "callbacks.py"


@pytest.mark.parametrize("case", ["event", "signalled", "acl"])
def test_bodies_of_two_streams_that_agree_are_ordered(case: str) -> None:
    done = checked_program(PROGRAM, case)
    assert (done.code, described(done.findings)) == (0, ""), done.output


@pytest.mark.parametrize(("case", "call"), [("neutral", "Stream.wait"), ("hip", "hipStreamWaitEvent")])
def test_bodies_of_two_streams_that_do_not_agree_race(case: str, call: str) -> None:
    done = checked_program(PROGRAM, case)
    (finding,) = done.findings
    assert (finding["kind"], finding["certain"]) == ("race", False), done.output  # they may share a variable
    assert sorted(site["function"] for site in finding["sites"]) == ["read", "write"]
    one, other = sorted(site["callback"] for site in finding["sites"])
    assert 0 < one < other
    assert finding["missing"].startswith(f"a wait ({call}) of stream ")
    assert "after the callback that runs line " in finding["missing"]
    assert f"callback of stream {other}: host access" in done.output


def test_callers_are_lines_of_the_program() -> None:
    (finding,) = checked_program(PROGRAM, "neutral").findings
    callers = [file for site in finding["sites"] for file, _, _ in site["callers"]]
    assert not [file for file in callers if "/peerlane/" in file], callers
