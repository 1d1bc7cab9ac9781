"""The program of the site's first page runs, and without its synchronization it is named as the page shows."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from helpers.documented import programs
from helpers.prepared import run_python

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

PAGE = (Path(__file__).parents[2] / "docs" / "index.md").read_text()
[PROGRAM] = programs(PAGE)


def test_first_page_program_prints_what_its_comment_promises(tmp_path: Path) -> None:
    (tmp_path / PROGRAM.name).write_text(PROGRAM.code)
    done = PROGRAM.run(tmp_path, {**os.environ})
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert PROGRAM.prints == ["True"]


def test_first_page_program_without_wait_prints_what_the_page_shows(tmp_path: Path) -> None:
    wait = "    stream.sync()\n"
    assert PROGRAM.code.count(wait) == 1
    (tmp_path / PROGRAM.name).write_text(PROGRAM.code.replace(wait, ""))
    done = run_python(["-m", "peerlane", "check", PROGRAM.name], timeout=90, cwd=tmp_path)
    [shown] = re.findall(r"```console\n\$ peerlane check hand_over.py\n(.*?)```", PAGE, re.DOTALL)
    assert done.returncode == 3
    assert _plain(done.stdout + done.stderr) == _plain(shown)


def _plain(text: str) -> str:
    return " ".join(re.sub(r"(process|thread) \d+", r"\1", text).split())
