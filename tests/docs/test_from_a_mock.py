"""Pages "from a mock": the mock's test passes, peerlane's shows the lines of the page, and the repair passes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from helpers.documented import programs, repaired, seen
from helpers.prepared import run_python
from peerlane.testing.procs import Completed

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]

FOLDER = Path(__file__).parents[2] / "docs" / "from-a-mock"
PAGES = {page.stem: page.read_text() for page in sorted(FOLDER.glob("*.md")) if page.stem != "index"}


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest) -> str:
    return PAGES[request.param]


def run(folder: Path, *words: str) -> Completed:
    environment = {name: value for name, value in os.environ.items() if "PEERLANE" not in name}
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *words)
    return run_python(words, timeout=120, cwd=folder, env=environment)


def write(page: str, folder: Path) -> str:
    """Write the programs of a page and its ini-file; return the name of the code under test."""
    code, _, _ = all_programs = programs(page)
    for program in all_programs:
        (folder / program.name).write_text(program.code)
    for settings in re.findall(r"```ini\n(.*?)```", page, re.DOTALL):
        (folder / "pytest.ini").write_text(settings)
    return code.name


def test_pages_are_those_of_the_index() -> None:
    assert [*PAGES] == ["acl", "hcomm", "hip", "nixl"]
    index = (FOLDER / "index.md").read_text()
    assert all(f"]({name}.md)" in index for name in PAGES)


def test_mock_passes_the_mistake(page: str, tmp_path: Path) -> None:
    write(page, tmp_path)
    (tmp_path / "pytest.ini").unlink(missing_ok=True)
    done = run(tmp_path, "test_with_mock.py")
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_peerlane_names_what_the_page_shows(page: str, tmp_path: Path) -> None:
    write(page, tmp_path)
    [words] = re.findall(r"^`pytest (.*)` fails", page, re.MULTILINE)
    done = run(tmp_path, *words.split())
    # Which of two accesses comes first is chance, and what is missing depends on it.
    [shown] = re.findall(r"```text\n(.*?)(?:\n  missing:.*?)?```", page, re.DOTALL)
    assert done.returncode == 1
    assert seen(shown) <= seen(done.stdout), done.stdout
    assert len(seen(shown)) >= 2


def test_repair_passes_check_and_schedules(page: str, tmp_path: Path) -> None:
    code = tmp_path / write(page, tmp_path)
    code.write_text(repaired(page, code.read_text()))
    for option in ("--peerlane-check", "--peerlane-schedule=lazy", "--peerlane-schedule=seeded"):
        done = run(tmp_path, option, "test_on_peerlane.py")
        assert done.returncode == 0, done.stdout
        assert "1 passed" in done.stdout
