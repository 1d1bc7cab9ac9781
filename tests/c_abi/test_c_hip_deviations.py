"""Programs in C that rely on what AMD's library was measured or read to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.c_programs import PEERLANE, Run

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]


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
    made: Callable[..., Path], run: Run, case: str
) -> None:
    done = run(*PEERLANE, "run", made("hip_deviations.c", "hip"), case)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_text_of_a_refused_launch_has_its_arguments(made: Callable[..., Path], run: Run) -> None:
    done = run(*PEERLANE, "run", made("hip_deviations.c", "hip"), "launch_text", AMD_LOG_LEVEL="1")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "sharedMemBytes=32" in done.stderr
    assert "no arguments" not in done.stderr
