"""The programs of the guide to event loops print what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.prepared import run_python

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "asyncio.md").read_text()
PROGRAMS = {text.split()[1]: text for text in re.findall(r"```python\n(# \w+\.py.*?)```", GUIDE, re.DOTALL)}
WORDS = {
    "serve.py": ([], ["[0, 1, 2, 3, 4]"]),
    "late.py": ([], ["late; 1 operation is still queued", "done"]),
    "answers.py": (["-m", "peerlane", "launch", "-n", "2"], ["[0] answer 0 10", "[0] answer 1 20"]),
}

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(120)]


def test_asyncio_guide_programs_are_all_tested() -> None:
    assert set(PROGRAMS) == set(WORDS)
    assert GUIDE.count("```python") == len(PROGRAMS)


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:17"])
@pytest.mark.parametrize("name", WORDS)
def test_asyncio_guide_program_prints_the_output_of_the_guide(
    name: str, schedule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    program, (words, printed) = tmp_path / name, WORDS[name]
    program.write_text(PROGRAMS[name])
    done = run_python([*words, str(program)], timeout=90)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, sorted(printed)), done.stderr
