"""Bodies of callbacks: ordered by their streams and by what they take, not by the thread that runs them."""

from __future__ import annotations

import pytest

from checker.checking import TESTS, checked_program, told

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

PROGRAM = TESTS / "checker" / "programs" / "callbacks.py"


@pytest.mark.parametrize("way", ["event", "told", "acl"])
def test_bodies_of_two_streams_that_agree_are_ordered(way: str) -> None:
    done = checked_program(PROGRAM, way)
    assert (done.code, told(done.findings)) == (0, ""), done.output


@pytest.mark.parametrize(("way", "call"), [("neutral", "Stream.wait"), ("hip", "hipStreamWaitEvent")])
def test_bodies_of_two_streams_that_do_not_agree_race(way: str, call: str) -> None:
    done = checked_program(PROGRAM, way)
    (found,) = done.findings
    assert (found["kind"], found["certain"]) == ("race", False), done.output  # they may share a variable
    assert sorted(site["function"] for site in found["sites"]) == ["read", "write"]
    one, other = sorted(site["callback"] for site in found["sites"])
    assert 0 < one < other
    assert found["missing"].startswith(f"a wait ({call}) of stream ")
    assert "after the callback that runs line " in found["missing"]
    assert f"callback of stream {other}: host access" in done.output


def test_callers_are_lines_of_the_program() -> None:
    (found,) = checked_program(PROGRAM, "neutral").findings
    callers = [file for site in found["sites"] for file, _, _ in site["callers"]]
    assert not [file for file in callers if "/peerlane/" in file], callers
