"""Waits that no call of peerlane makes: for descriptors of events and polled words; and views of closed memory."""

from __future__ import annotations

import pytest

from checker.checking import TESTS, Checked, checked_program, described

pytestmark = [
    pytest.mark.any_schedule,
    pytest.mark.schedules_in_turn,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("each_schedule"),
]

PROGRAM = TESTS / "checker" / "programs" / "own_waits.py"


def checked(case: str, ranks: int | None = None) -> Checked:
    done = checked_program(PROGRAM, case, ranks=ranks)
    assert "Traceback" not in done.output, done.output
    return done


def kinds(done: Checked) -> set[tuple[str, bool]]:
    return {(each["kind"], each["certain"]) for each in done.findings}


@pytest.mark.parametrize("case", ["in_select", "in_poll", "in_epoll", "in_selector", "in_loop", "by_read"])
def test_wait_for_the_descriptor_of_an_event_is_a_wait(case: str) -> None:
    done = checked(case)
    assert (done.code, described(done.findings)) == (0, ""), done.output


def test_wait_for_a_descriptor_that_another_thread_makes_is_never_a_certain_race() -> None:
    done = checked("in thread")
    assert done.code == 0, done.output


@pytest.mark.parametrize(
    "case",
    [
        *("in_while", "in_helper", "in_lambda", "by_break", "when_it_is_there", "in_nested_helpers"),
        *("in_generator", "in_recursion", "by_assertion", "by_condition", "many_in_turn"),
    ],
)
def test_poll_that_saw_the_value_orders_what_was_before_it(case: str) -> None:
    done = checked(case)
    assert (done.code, described(done.findings)) == (0, ""), done.output


@pytest.mark.parametrize(
    "case", ["slice", "declared", "by_copies", "by_copies_in_helper", "by_memcpy_of_hip", "by_memcpy_of_acl"]
)
def test_poll_whose_value_is_not_seen_is_never_a_certain_race(case: str) -> None:
    done = checked(case)
    assert done.code == 0, done.output


@pytest.mark.parametrize(
    "case", ["once", "once_by_copy", "word_before_data", "for_old_value", "other_stream"]
)
def test_look_that_orders_nothing_leaves_a_certain_race(case: str) -> None:
    done = checked(case)
    assert (done.code, kinds(done)) == (3, {("race", True)}), done.output


@pytest.mark.parametrize("case", ["each_element_in_for", "each_element_in_while", "copies_of_data"])
def test_loop_that_reads_other_bytes_each_time_is_no_poll(case: str) -> None:
    done = checked(case)
    assert (done.code, kinds(done)) == (3, {("race", True)}), done.output


def test_poll_of_a_window_orders_the_bytes_that_were_written_before_the_word() -> None:
    done = checked("window", ranks=2)
    assert (done.code, described(done.findings)) == (0, ""), done.output


def test_poll_of_a_window_does_not_bring_what_was_written_behind_the_word() -> None:
    done = checked("window racy", ranks=2)
    assert (done.code, kinds(done)) == (3, {("race", True)}), done.output


@pytest.mark.parametrize("use", ["read", "write", "part"])
def test_use_of_a_view_after_the_buffer_was_closed_is_a_certain_use_after_free(use: str) -> None:
    done = checked(f"view {use}")
    assert (done.code, kinds(done)) == (3, {("use-after-free", True)}), done.output
    (finding,) = done.findings
    lines = [PROGRAM.read_text().splitlines()[site["line"] - 1].strip() for site in finding["sites"]]
    assert "view" in lines[0] or "part" in lines[0], lines
    assert lines[1] == "buffer.close()"


@pytest.mark.parametrize("use", ["copied", "dropped", "within block"])
def test_copy_or_memory_that_a_block_or_no_line_holds_may_be_used(use: str) -> None:
    done = checked(f"view {use}")
    assert (done.code, described(done.findings)) == (0, ""), done.output
