"""Orders that peerlane does not see: a right program is never accused with certainty, and a racy one is."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.checking import TESTS, checked_program
from checker.edge_programs.two_ranks import ALL, ALWAYS_OPEN

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

PROGRAM = TESTS / "checker" / "edge_programs" / "two_ranks.py"


@pytest.mark.parametrize("means", ALL)
def test_order_by_other_means_is_never_accused_with_certainty(means: str, tmp_path: Path) -> None:
    done = checked_program(PROGRAM, means, "right", str(tmp_path), ranks=2)
    assert done.code == 0, done.output
    assert [each for each in done.findings if each["certain"]] == [], done.output
    assert "not complete" not in done.output


@pytest.mark.parametrize("means", [each for each in ALL if each not in ALWAYS_OPEN])
def test_race_of_ranks_that_used_the_means_before_is_certain(means: str, tmp_path: Path) -> None:
    done = checked_program(PROGRAM, means, "early", str(tmp_path), ranks=2)
    assert done.code == 3, done.output
    assert {(each["kind"], each["certain"]) for each in done.findings} == {("race", True)}, done.output


@pytest.mark.parametrize(
    "means", ["polled_pipe", "event_descriptor", "watched_folder", "loop_thread", "signal_descriptor"]
)
def test_race_is_certain_though_a_message_sent_before_it_is_taken_behind_it(
    means: str, tmp_path: Path
) -> None:
    done = checked_program(PROGRAM, means, "late", str(tmp_path), ranks=2)
    assert done.code == 3, done.output
    assert {(each["kind"], each["certain"]) for each in done.findings} == {("race", True)}, done.output


@pytest.mark.parametrize("mode", ["right", "early"])
def test_descriptor_of_an_event_may_be_handed_to_another_rank(mode: str) -> None:
    done = checked_program(TESTS / "checker" / "edge_programs" / "handed_event.py", mode, ranks=2)
    assert done.code == (3 if mode == "early" else 0), done.output
    assert {each["certain"] for each in done.findings} == {mode == "early"}, done.output


def test_race_of_ranks_without_any_means_is_certain(tmp_path: Path) -> None:
    done = checked_program(PROGRAM, "tcp", "none", str(tmp_path), ranks=2)
    assert done.code == 3, done.output
    assert {(each["kind"], each["certain"]) for each in done.findings} == {("race", True)}, done.output


@pytest.mark.parametrize(
    "means", ["handled_end", "closed_pipe", "semaphore_value", "released_semaphore", "new_parent"]
)
def test_child_whose_end_or_semaphore_signals_is_never_accused_with_certainty(means: str) -> None:
    done = checked_program(TESTS / "checker" / "edge_programs" / "children.py", means, "right")
    assert done.code == 0, done.output
    assert [(each["kind"], each["certain"]) for each in done.findings] == [("race", False)], done.output


def test_child_whose_semaphore_was_taken_too_early_is_reported() -> None:
    done = checked_program(TESTS / "checker" / "edge_programs" / "children.py", "semaphore_value", "early")
    assert [each["kind"] for each in done.findings] == ["race"], done.output
