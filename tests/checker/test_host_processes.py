"""The order that processes make by what Python has for it: seen, or else labelled."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.checking import TESTS, checked_program, described

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

PROGRAM = TESTS / "checker" / "programs" / "processes.py"
SEEN = ("pipe", "killed", "queue", "event", "semaphore", "barrier", "join", "executor", "program", "forked")


@pytest.mark.parametrize("case", SEEN)
def test_order_of_processes_that_python_makes_is_seen(case: str) -> None:
    done = checked_program(PROGRAM, case)
    assert (done.code, described(done.findings)) == (0, ""), done.output
    assert "not complete" not in done.output


@pytest.mark.parametrize("case", ["pipe", "queue", "join", "executor"])
@pytest.mark.parametrize("method", ["forkserver", "preloaded"])
def test_order_of_processes_that_a_fork_server_starts_is_seen(case: str, method: str) -> None:
    done = checked_program(PROGRAM, case, method)
    assert (done.code, described(done.findings)) == (0, ""), done.output
    assert "not complete" not in done.output


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_race_of_two_children_is_certain(method: str) -> None:
    done = checked_program(PROGRAM, "siblings", method)
    assert done.code == 3, done.output
    assert [(each["kind"], each["certain"]) for each in done.findings] == [("race", True)], done.output


@pytest.mark.parametrize("case", ["sockets", "files", "folders", "shared_memory"])
def test_order_of_processes_by_other_means_is_not_seen_and_labelled(case: str) -> None:
    done = checked_program(PROGRAM, case)
    assert done.code == 0, done.output
    assert {(each["kind"], each["certain"]) for each in done.findings} == {("race", False)}, done.output


def test_order_of_ranks_by_a_socket_of_a_c_library_is_not_seen_and_labelled(tmp_path: Path) -> None:
    done = checked_program(PROGRAM.with_name("by_c_library.py"), str(tmp_path / "socket"), ranks=2)
    assert done.code == 0, done.output
    (race,) = done.findings
    assert (race["kind"], race["certain"]) == ("race", False)
    assert "a means that peerlane does not see" in race["why"]
    assert "`peerlane.order(key).post()`" in race["why"]  # what to do about it


@pytest.mark.parametrize("case", ["none", "early_puts"])
def test_race_of_processes_without_another_connection_is_certain(case: str) -> None:
    done = checked_program(PROGRAM, case)
    assert done.code == 3, done.output
    assert [(each["kind"], each["certain"]) for each in done.findings] == [("race", True)], done.output


LATE_CHILD = PROGRAM.with_name("late_children.py")


@pytest.mark.parametrize("means", ["word", "argument", "unprepared"])
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_word_that_a_child_polls_before_it_imports_peerlane_excuses(method: str, means: str) -> None:
    done = checked_program(LATE_CHILD, means, method)
    assert done.code == 0, done.output
    assert [(each["kind"], each["certain"]) for each in done.findings] == [("race", False)], done.output


@pytest.mark.parametrize("means", ["event", "queue"])
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_message_that_a_child_receives_before_it_imports_peerlane_orders(method: str, means: str) -> None:
    done = checked_program(LATE_CHILD, means, method)
    assert (done.code, described(done.findings)) == (0, ""), done.output
    done = checked_program(LATE_CHILD, means, method, "early")
    assert [(each["kind"], len(each["sites"])) for each in done.findings] == [("race", 2)], done.output


LATE = """\
import multiprocessing, sys, threading

def work(lock, handle):
    if "held" in sys.argv:
        lock.acquire()
    import peerlane as pl
    buffer = pl.Buffer.open(handle)
    if "held" not in sys.argv:
        lock.acquire()
    print(bytes(buffer[:4]))
    lock.release()
    buffer.close()

if __name__ == "__main__":
    import peerlane as pl
    context = multiprocessing.get_context(sys.argv[1])
    buffer, lock = pl.devices()[0].allocate(64), context.Lock()
    buffer.fill(0)
    lock.acquire()
    child = context.Process(target=work, args=(lock, bytes(buffer.export(allow="user"))))
    child.start()
    threading.Event().wait(0.5)
    if "racy" in sys.argv:
        lock.release()
        buffer.fill(7)
    else:
        buffer.fill(7)
        lock.release()
    child.join(60)
"""


@pytest.mark.parametrize("when", ["held", "free"])
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_lock_that_a_child_receives_before_it_imports_peerlane_orders(
    method: str, when: str, tmp_path: Path
) -> None:
    program = tmp_path / "late.py"
    program.write_text(LATE)
    done = checked_program(program, method, when, devices=1)
    assert (done.code, described(done.findings)) == (0, ""), done.output
    done = checked_program(program, method, when, "racy", devices=1)
    assert [(each["kind"], len(each["sites"])) for each in done.findings] == [("race", 2)], done.output
