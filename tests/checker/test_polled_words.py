"""Words that a stream or a peer writes, and that a program polls by plain loads, which nobody sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.checking import TESTS, Checked, checked_program
from checker.edge_programs.aliases import MEANS
from checker.edge_programs.copied_words import MEANS as COPIES
from helpers.c_programs import compiled, folder_of_programs

pytestmark = [
    pytest.mark.any_schedule,
    pytest.mark.schedules_in_turn,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("each_schedule"),
]

PROGRAMS = TESTS / "checker" / "edge_programs"
#: How the word is written, and what the program does with what came before it.
CASES = (
    ("value32", "read"),
    ("value64", "overwrite"),
    ("copy", "read"),
    ("fill", "overwrite"),
    ("value32", "stage"),
)


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(folder_of_programs(tmp_path_factory), PROGRAMS / "polled_word.c", "hip")


def in_c(program: Path, *words: str) -> Checked:
    done = checked_program(program, *words)
    assert "done" in done.stdout, done.output
    return done


@pytest.mark.parametrize(("case", "use"), CASES)
def test_poll_of_a_program_in_c_is_never_accused_with_certainty(program: Path, case: str, use: str) -> None:
    done = in_c(program, case, "right", use)
    assert done.code == 0, done.output
    assert [each for each in done.findings if each["certain"]] == [], done.output


@pytest.mark.parametrize("mode", ["early", "none"])
@pytest.mark.parametrize(("case", "use"), CASES)
def test_use_before_the_word_is_written_is_a_certain_race(
    program: Path, case: str, use: str, mode: str
) -> None:
    done = in_c(program, case, mode, use)
    assert done.code == 3, done.output
    assert any(each["certain"] for each in done.findings), done.output


@pytest.mark.parametrize("mode", ["right", "message"])
def test_poll_of_pinned_memory_through_ctypes_is_never_accused_with_certainty(mode: str) -> None:
    done = checked_program(PROGRAMS / "polled_alias.py", mode, ranks=2)
    assert done.code == 0, done.output
    assert [each for each in done.findings if each["certain"]] == [], done.output


@pytest.mark.parametrize("mode", ["early", "early message"])
def test_use_before_the_word_of_pinned_memory_is_written_is_a_certain_race(mode: str) -> None:
    done = checked_program(PROGRAMS / "polled_alias.py", mode, ranks=2)
    assert done.code == 3, done.output
    assert {(each["kind"], each["certain"]) for each in done.findings} == {("race", True)}, done.output


@pytest.mark.parametrize("means", COPIES)
def test_poll_by_copies_or_without_source_is_never_accused_with_certainty(means: str) -> None:
    done = checked_program(PROGRAMS / "copied_words.py", means, "right", ranks=2)
    assert done.code == 0, done.output
    assert [each for each in done.findings if each["certain"]] == [], done.output
    # What a loop of Python reads by a view is known exactly, also while its writer logs nothing more.
    assert means != "view" or not done.findings, done.output


@pytest.mark.parametrize("means", COPIES)
def test_data_that_come_behind_the_polled_word_are_a_certain_race(means: str) -> None:
    done = checked_program(PROGRAMS / "copied_words.py", means, "early", ranks=2)
    assert done.code == 3, done.output
    certain = [each for each in done.findings if each["certain"]]
    assert [(each["kind"], each["bytes"]) for each in certain] == [("race", [0, 4096])], done.output


ALIASES = PROGRAMS / "aliases.py"
#: Aliases that end with their arrays.
ENDING = ["array", "memoryview", "memoryview of a view", "plain array", "plain slice"]


@pytest.mark.parametrize("means", MEANS)
def test_poll_of_a_window_through_an_alias_is_never_accused_with_certainty(means: str) -> None:
    done = checked_program(ALIASES, means, "right", ranks=2)
    assert done.code == 0, done.output
    assert [each for each in done.findings if each["certain"]] == [], done.output


@pytest.mark.parametrize(
    ("means", "mode"),
    [
        ("array", "early"),
        ("ctypes", "early"),
        ("plain array", "early"),
        *((each, "ended") for each in ENDING),
    ],
)
def test_bytes_that_no_word_of_an_alias_covers_are_a_certain_race(means: str, mode: str) -> None:
    done = checked_program(ALIASES, means, mode, ranks=2)
    assert done.code == 3, done.output
    assert [each["kind"] for each in done.findings if each["certain"]] == ["race"], done.output
