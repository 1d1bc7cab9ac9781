"""Order that processes make by the states of files and of each other: seen, or else labelled."""

from __future__ import annotations

import pytest

from checker.checking import TESTS, checked_program, described
from checker.programs.by_state import STATES

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

PROGRAM = TESTS / "checker" / "programs" / "by_state.py"


@pytest.mark.parametrize("case", [*STATES, "flock", "lockf"])
def test_order_by_the_state_of_a_file_or_a_process_is_labelled(case: str) -> None:
    done = checked_program(PROGRAM, case)
    assert done.code == 0, done.output
    assert {(each["kind"], each["certain"]) for each in done.findings} == {("race", False)}, done.output


@pytest.mark.parametrize(
    ("case", "method"),
    [("sentinel", "spawn"), ("sentinel", "forkserver"), ("exitcode", "forkserver"), ("waitid", "spawn")],
)
def test_order_by_the_end_of_a_child_is_seen(case: str, method: str) -> None:
    done = checked_program(PROGRAM, case, method)
    assert (done.code, described(done.findings)) == (0, ""), done.output


def test_files_of_the_same_name_in_two_folders_excuse_nothing() -> None:
    done = checked_program(PROGRAM, "own_files")
    assert done.code == 3, done.output
    assert [(each["kind"], each["certain"]) for each in done.findings] == [("race", True)], done.output


def test_functions_of_os_do_under_check_what_they_do_without() -> None:
    done = checked_program(PROGRAM.with_name("uses_os.py"))
    assert done.code == 0, done.output
    assert "as ever" in done.output
