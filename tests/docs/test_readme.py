"""The README's programs, side by side in one fresh directory, print what their comments say."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from helpers.documented import Program, check, has_promised_words, programs, shadowed
from helpers.prepared import run_python

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule]

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PROGRAMS = programs(README)
GUIDES = {path.name: programs(path.read_text()) for path in sorted((ROOT / "docs" / "guides").glob("*.md"))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with all programs of the README side by side."""
    directory = tmp_path_factory.mktemp("readme")
    for program in PROGRAMS:
        (directory / program.name).write_text(program.code)
    return directory


def test_readme_is_short() -> None:
    assert README.count("\n") <= 150


def test_readme_programs_all_have_a_name() -> None:
    assert len(PROGRAMS) == README.count("```python\n") >= 4


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:17"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_readme_program_prints_what_its_comments_promise(
    program: Program, schedule: str, folder: Path
) -> None:
    done = program.run(folder, {**os.environ, "PEERLANE_SCHEDULE": schedule})
    check(done, program, program.prints, program.raises)


@pytest.mark.parametrize("backend", ["virtual", "reference"])
def test_readme_first_program_on_each_backend_prints_the_same(backend: str, folder: Path) -> None:
    first = PROGRAMS[0]
    assert first.name == "peers.py"
    done = first.run(folder, {**os.environ, "PEERLANE_NODE": f"backend={backend},devices=2"})
    prints = [each.replace("virtual:", f"{backend}:") for each in first.prints]
    assert any(f"{backend}:0" in each for each in prints)
    check(done, first, prints, first.raises)


def test_readme_and_guide_programs_shadow_no_module() -> None:
    for named in (PROGRAMS, *GUIDES.values()):
        names = [program.name for program in named]
        assert not shadowed(names)
        assert max(Counter(names).values(), default=1) == 1
    assert shadowed(["copy.py", "numpy.py", "peers.py"]) == {"copy", "numpy"}


#: Runs a program 20 times, and counts how often its own assertion fails.
_TWENTY = """
import sys
import peerlane as pl
program, failed = compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), 0
for _ in range(20):
    try:
        exec(program, {"__name__": "__main__"})
    except AssertionError:
        failed += 1
    except pl.Error:  # how the whole program ends
        pass
print(failed)
"""


@pytest.mark.parametrize("schedule", ["lazy", "seeded:17"])
def test_readme_streams_program_without_wait_shows_wrong_bytes(tmp_path: Path, schedule: str) -> None:
    wait = "    t.sync(timeout=30)\n"
    [streams] = [each for each in PROGRAMS if wait in each.code]
    program = tmp_path / streams.name
    # Who makes no call for 1 s is taken to poll, and on a loaded machine a look at 64 MiB takes so long.
    program.write_text(streams.code.replace(wait, "").replace("64 << 20", "1 << 20"))
    environment = {**os.environ, "PEERLANE_SCHEDULE": schedule}
    done = run_python(["-c", _TWENTY, str(program)], timeout=100, env=environment)
    assert done.returncode == 0, done.stderr
    assert "20" in done.stdout.splitlines()


def test_readme_streams_program_without_wait_is_named_by_check(tmp_path: Path) -> None:
    wait = "    t.sync(timeout=30)\n"
    [streams] = [each for each in PROGRAMS if wait in each.code]
    code = streams.code.replace(wait, "").replace("64 << 20", "1 << 20")
    (tmp_path / streams.name).write_text(code)
    done = run_python(["-m", "peerlane", "check", streams.name], timeout=100, cwd=tmp_path)
    for line in ("c.copy_from(b, stream=t)", "assert (c.view() == 7).all()"):
        assert re.search(rf"^ +\d+ \| {re.escape(line)}$", done.stderr, re.MULTILINE), done.stderr
    assert done.returncode != 0


@pytest.mark.parametrize("page", re.findall(r"\]\(((?!http)[^)#]+)\)", README))
def test_readme_link_leads_to_a_file(page: str) -> None:
    assert (ROOT / page).exists()


def test_program_comments_give_prints_and_raises() -> None:
    code = "print(1)  # 1\nif x:\n    print(f(2))  # a ... b\ny.z()  # Closed: it was\n#      closed\nw()  # silent\n"
    program = Program("a.py", code, [])
    assert (program.prints, program.raises) == (["1", "a ... b"], "Closed: it was closed")
    assert has_promised_words("so: a lot\nof b", "a ... b") and has_promised_words("ab", "ab")
    assert not has_promised_words("a and c", "a ... b") and not has_promised_words("x.y", "xzy")
