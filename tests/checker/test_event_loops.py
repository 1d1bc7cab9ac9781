"""The order that threads and event loops of asyncio make: seen."""

from __future__ import annotations

import pytest

from checker.checking import TESTS, checked_program, told

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

PROGRAM = TESTS / "checker" / "programs" / "loops.py"


@pytest.mark.parametrize(
    "way", ["threadsafe", "queue", "to_thread", "executor", "coroutine", "awaits", "trio"]
)
def test_loop_that_is_told_comes_after_what_the_thread_did(way: str) -> None:
    done = checked_program(PROGRAM, way)
    assert (done.code, told(done.findings)) == (0, ""), done.output


@pytest.mark.parametrize("way", ["unsynced", "awaits_too_little"])
def test_loop_that_hears_of_a_copy_that_may_still_run_races_certainly(way: str) -> None:
    done = checked_program(PROGRAM, way)
    (found,) = done.findings
    assert (done.code, found["kind"], found["certain"]) == (3, "race", True), done.output
    assert {site["function"] for site in found["sites"]} == {"copy", "read"}


def test_loop_that_is_told_too_early_races() -> None:
    done = checked_program(PROGRAM, "none")
    (found,) = done.findings
    assert found["kind"] == "race"
    assert {site["function"] for site in found["sites"]} == {"write", "read"}
