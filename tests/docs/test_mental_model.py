"""The programs of the mental model print what their comments say; its drawings are those of the script."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from docs_site.drawings import DRAWINGS, FOLDER
from helpers.documented import Program, check, programs, shadowed

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

PAGE = (Path(__file__).parents[2] / "docs" / "mental-model.md").read_text()
PROGRAMS = programs(PAGE)
#: Programs of which the page claims an order run under each schedule; those that show its absence name theirs.
RUNS = [
    pytest.param(program, schedule, id=f"{program.name}-{schedule or 'its own'}")
    for program in PROGRAMS
    for schedule in ([""] if "schedule=lazy" in program.words else ["eager", "lazy", "seeded:17"])
]


@pytest.mark.parametrize(("program", "schedule"), RUNS)
def test_program_of_model_prints_what_its_comments_promise(
    program: Program, schedule: str, tmp_path: Path
) -> None:
    (tmp_path / program.name).write_text(program.code)
    done = program.run(tmp_path, {**os.environ, "PEERLANE_SCHEDULE": schedule})
    check(done, program, program.prints, program.raises)


def test_programs_of_model_all_have_a_name_and_are_short() -> None:
    assert len(PROGRAMS) == PAGE.count("```python\n") >= 10
    assert not shadowed(program.name for program in PROGRAMS)
    assert {program.name: n for program in PROGRAMS if (n := program.code.count("\n")) > 16} == {}


def test_drawings_are_those_of_the_script() -> None:
    assert {path.stem: path.read_text() for path in FOLDER.glob("*.svg")} == {
        name: draw().svg() for name, draw in DRAWINGS.items()
    }


def test_page_shows_each_drawing_under_its_title() -> None:
    shown = re.findall(r"!\[(.*)\]\(drawings/(\w+)\.svg\)", PAGE)
    assert {name: title for title, name in shown} == {name: draw().title for name, draw in DRAWINGS.items()}
