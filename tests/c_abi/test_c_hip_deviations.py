"""Programs in C that rely on what AMD's library was measured or read to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.c_programs import PEERLANE, PROGRAMS, Run

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(120)]


@pytest.mark.parametrize(
    "case",
    [
        "registers_again",
        "links",
        "imports_own_pointer",
        "handles_of_pool_memory",
        "access_of_the_host",
        "interior_handle",
    ],
)
def test_program_in_c_gets_what_the_vendors_library_answers(
    compiled_program: Callable[..., Path], run: Run, case: str
) -> None:
    done = run(*PEERLANE, "run", compiled_program("hip_deviations.c", "hip"), case)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:3"])
def test_wait_of_a_c_program_for_a_word_that_nobody_writes_ends_and_names_the_line(
    compiled_program: Callable[..., Path], run: Run, schedule: str
) -> None:
    program = compiled_program("awaited_word.c", "hip")
    done = run(*PEERLANE, "run", program, AMD_LOG_LEVEL="1", PEERLANE_SCHEDULE=schedule)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "no submitted operation writes the word" in done.stderr
    assert f"submitted at awaited_word.c:{_line('// submits')}" in done.stderr


def test_wait_of_a_c_program_for_a_word_that_a_thread_may_write_is_named_once(
    compiled_program: Callable[..., Path], run: Run
) -> None:
    done = run(*PEERLANE, "run", compiled_program("awaited_word.c", "hip"), "late", PEERLANE_SCHEDULE="eager")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    (warning,) = done.stderr.splitlines()
    assert warning.startswith("peerlane: after 5 s operation 1 of stream")
    assert f"submitted at awaited_word.c:{_line('// submits')}, waits for the word of 4 bytes" in warning
    assert f"allocated at awaited_word.c:{_line('// allocates')})" in warning
    assert warning.endswith("to be equal to 3 under the mask 0xff; it is 0")


def _line(mark: str) -> int:
    lines = (PROGRAMS / "awaited_word.c").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(mark))


def test_text_of_a_refused_launch_has_its_arguments(compiled_program: Callable[..., Path], run: Run) -> None:
    done = run(
        *PEERLANE, "run", compiled_program("hip_deviations.c", "hip"), "launch_text", AMD_LOG_LEVEL="1"
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "sharedMemBytes=32" in done.stderr
    assert "no arguments" not in done.stderr
