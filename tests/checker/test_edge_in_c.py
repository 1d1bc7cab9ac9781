"""Orders of programs in C that peerlane does not see: a right one is never accused with certainty, a racy one is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from checker.checking import TESTS, Checked, checked_program
from helpers.c_programs import compiled, folder_of_programs

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

SOURCE = TESTS / "checker" / "edge_programs" / "two_processes.c"
SENT = (
    *("socket", "poll", "pipe", "stream", "event", "system_semaphore", "named_semaphore", "signal"),
    *("group", "session", "priority", "scheduler", "timer", "pending", "asynchronous"),
)
#: A word behind the data, which the parent copies to the host until it is set.
COPIED = ("copied", "streamed")
#: Memory that both have mapped can carry an order at any time, and so can what ``/proc`` has of a process.
OPEN = ("semaphore", "barrier", "condition", "word", "futex", "process_name", "mask")
#: What a parent waits with for the end of a child.
WAITS = ("wait", "wait3", "wait4", "waitpid", "waitpid_of_killed", "waitid", "waitid_without_info", "loop")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(folder_of_programs(tmp_path_factory), SOURCE, "hip")


@pytest.fixture(scope="session")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(folder_of_programs(tmp_path_factory), SOURCE.with_name("end_of_child.c"), "hip")


@pytest.fixture(scope="session")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(folder_of_programs(tmp_path_factory), SOURCE.with_name("started_child.c"), "hip")


def run(program: Path, *words: str) -> Checked:
    done = checked_program(program, *words)
    assert done.stdout.startswith("done"), done.output
    assert "not complete" not in done.output
    return done


@pytest.mark.parametrize("means", [*SENT, *OPEN, *COPIED])
def test_order_by_means_of_the_system_is_never_accused_with_certainty(program: Path, means: str) -> None:
    done = run(program, means, "right")
    assert done.code == 0, done.output
    assert [each for each in done.findings if each["certain"]] == [], done.output


@pytest.mark.parametrize("means", [*SENT, *COPIED])
def test_race_of_processes_that_used_the_means_before_is_certain(program: Path, means: str) -> None:
    done = run(program, means, "early")
    assert done.code == 3, done.output
    certain = [each for each in done.findings if each["certain"]]
    assert [(each["kind"], each["bytes"]) for each in certain] == [("race", [0, 4096])], done.output
    # A copy of the word may be a look; what is uncertain says so.
    others = [each for each in done.findings if not each["certain"]]
    assert bool(others) == (means in COPIED), done.output
    assert all("loop may wait" in each["why"] for each in others), done.output


def test_race_of_processes_without_any_means_is_certain(program: Path) -> None:
    done = run(program, "socket", "none")
    assert done.code == 3, done.output
    assert {(each["kind"], each["certain"]) for each in done.findings} == {("race", True)}, done.output


def test_race_is_certain_though_the_second_process_reads_its_new_program_for_a_line(
    program: Path, tmp_path: Path
) -> None:
    done = run(Path(shutil.copy(program, tmp_path / "new")), "socket", "unheard")
    assert done.code == 3, done.output
    assert {(each["kind"], each["certain"]) for each in done.findings} == {("race", True)}, done.output


@pytest.mark.parametrize("wait", WAITS)
def test_wait_for_the_end_of_a_child_orders_all_that_the_child_did(parent: Path, wait: str) -> None:
    done = run(parent, wait, "right")
    assert (done.code, done.findings) == (0, ()), done.output


def test_access_before_the_wait_for_the_end_of_a_child_may_be_a_race(parent: Path) -> None:
    done = run(parent, "waitpid", "early")
    assert [(each["kind"], each["certain"]) for each in done.findings] == [("race", False)], done.output


def test_wait_for_a_stopped_child_does_not_order(parent: Path) -> None:
    done = run(parent, "stopped", "right")
    assert [each["kind"] for each in done.findings] == ["race"], done.output


@pytest.mark.parametrize("how", ["posix_spawn", "posix_spawnp", "fork"])
def test_start_of_a_program_orders_what_its_parent_did_before(starter: Path, how: str) -> None:
    done = run(starter, how, "before")
    assert (done.code, done.findings) == (0, ()), done.output


def test_program_that_hears_of_memory_before_its_first_call_is_not_accused_with_certainty(
    starter: Path,
) -> None:
    done = run(starter, "posix_spawn", "behind")
    assert [(each["kind"], each["certain"]) for each in done.findings] == [("race", False)], done.output
