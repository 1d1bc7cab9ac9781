"""The order that threads and event loops of asyncio make: seen."""

from __future__ import annotations

import pytest

from checker.checking import TESTS, checked_program, described

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

PROGRAM = TESTS / "checker" / "programs" / "loops.py"


@pytest.mark.parametrize(
    "case", ["threadsafe", "queue", "to_thread", "executor", "coroutine", "awaits", "trio"]
)
def test_loop_that_a_thread_signals_comes_after_what_the_thread_did(case: str) -> None:
    done = checked_program(PROGRAM, case)
    assert (done.code, described(done.findings)) == (0, ""), done.output


@pytest.mark.parametrize("case", ["unsynced", "awaits_too_little"])
def test_loop_that_hears_of_a_copy_that_may_still_run_races_certainly(case: str) -> None:
    done = checked_program(PROGRAM, case)
    (finding,) = done.findings
    assert (done.code, finding["kind"], finding["certain"]) == (3, "race", True), done.output
    assert {site["function"] for site in finding["sites"]} == {"copy", "read"}


def test_loop_that_a_thread_signals_too_early_races() -> None:
    done = checked_program(PROGRAM, "none")
    (finding,) = done.findings
    assert finding["kind"] == "race"
    assert {site["function"] for site in finding["sites"]} == {"write", "read"}
