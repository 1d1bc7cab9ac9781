"""The programs of the guide to sharing print what their comments say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.prepared import run_python
from peerlane.testing.procs import Completed

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "sharing.md").read_text()
PROGRAMS = {text.split()[1]: text for text in re.findall(r"```python\n(# \w+\.py.*?)```", GUIDE, re.DOTALL)}

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(120)]


def run(tmp_path: Path, name: str, *words: str) -> Completed:
    program = tmp_path / name
    program.write_text(PROGRAMS[name])
    done = run_python([*words, str(program)], timeout=90)
    assert done.returncode == 0, done.stderr
    return done


def test_sharing_guide_programs_are_all_tested() -> None:
    assert set(PROGRAMS) == {"share.py", "ranges.py", "survive.py", "order.py", "descriptor.py"}
    assert GUIDE.count("```python") == len(PROGRAMS)


def test_share_program_gives_both_ranks_the_same_weights(tmp_path: Path) -> None:
    done = run(tmp_path, "share.py", "-m", "peerlane", "launch", "-n", "2")
    assert done.stdout == "[0] [9 7 7]\n"


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:17"])
def test_ranges_program_prints_shared_blocks_and_no_access(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schedule: str
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    assert run(tmp_path, "ranges.py").stdout == "[0 0 5 5]\nNO_ACCESS\n"


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:17"])
def test_order_program_sees_bytes_after_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schedule: str
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    assert run(tmp_path, "order.py", "-m", "peerlane", "launch", "-n", "2").stdout == "[1] [7 7 7]\n"


def test_descriptor_program_passes_memory_on(tmp_path: Path) -> None:
    assert run(tmp_path, "descriptor.py").stdout == "bytes\n"


def test_survive_program_reads_memory_of_ended_maker(tmp_path: Path) -> None:
    read, lost = run(tmp_path, "survive.py").stdout.splitlines()
    assert read == "[1 1 1 1]"
    assert re.match(r"process \d+, which made the handle, has ended or left the node", lost)


@pytest.mark.parametrize("link", re.findall(r"\]\(((?!http)[^)#]+)", GUIDE))
def test_sharing_guide_link_leads_to_a_file(link: str) -> None:
    assert (ROOT / "docs" / "guides" / link).exists()
