"""The tutorial, done as it is written: the checker names the mistake, and the repair and the tests hold."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from helpers.documented import programs, repaired
from helpers.prepared import run_python
from peerlane.testing.procs import Completed

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial" / "kv-cache.md").read_text()
PROGRAM, TESTS = programs(PAGE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an otherwise empty directory with both files of the page."""
    for program in (PROGRAM, TESTS):
        (tmp_path / program.name).write_text(program.code)
    return tmp_path


def run(folder: Path, *words: str, **variables: str) -> Completed:
    environment = {name: value for name, value in os.environ.items() if "PEERLANE" not in name}
    return run_python(["-m", *words], timeout=120, cwd=folder, env={**environment, **variables})


def pytest_words(*words: str) -> tuple[str, ...]:
    return ("pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *words)


def plain(text: str) -> str:
    return " ".join(re.sub(r"(process|thread) \d+", r"\1", text).split())


def test_tutorial_program_has_at_most_40_lines() -> None:
    assert len([line for line in PROGRAM.code.splitlines() if line.strip()]) <= 40


def test_tutorial_program_passes_and_lazy_shows_its_mistake(folder: Path) -> None:
    assert run(folder, "kv_cache").stdout == "3 requests arrived\n"
    done = run(folder, "kv_cache", PEERLANE_SCHEDULE="lazy")
    assert done.returncode == 1
    assert done.stderr.endswith("AssertionError\n")


def test_tutorial_mistake_is_named_as_the_page_shows(folder: Path) -> None:
    done = run(folder, "peerlane", "check", PROGRAM.name)
    [shown] = re.findall(r"\$ peerlane check kv_cache.py\n(.*?)```", PAGE, re.DOTALL)
    assert done.returncode == 3
    assert plain(done.stdout + done.stderr) == plain(shown)


def test_tutorial_tests_fail_with_the_mistake_and_show_both_lines(folder: Path) -> None:
    done = run(folder, *pytest_words("--peerlane-check"))
    assert done.returncode == 1
    assert "2 passed, 1 error" in done.stdout.replace(" 1 warning,", "")
    assert "kv_cache.py:26, in Lane.send" in done.stdout
    assert "kv_cache.py:37, in serve" in done.stdout


def test_tutorial_repair_passes_check_and_each_run_of_ci(folder: Path) -> None:
    (folder / PROGRAM.name).write_text(repaired(PAGE, PROGRAM.code))
    done = run(folder, "peerlane", "check", "--schedules", "10", PROGRAM.name)
    assert (done.returncode, done.stdout.count("3 requests arrived")) == (0, 10)
    assert done.stderr.endswith("peerlane check: no findings under 10 schedules\n")
    options = re.findall(r"^- run: pytest (\S+)$", PAGE, re.MULTILINE)
    assert len(options) == 3
    for option in options:
        done = run(folder, *pytest_words(option))
        assert done.returncode == 0, done.stdout
        assert "2 passed" in done.stdout
