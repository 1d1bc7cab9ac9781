"""The guide's mistakes, made in its program: the checker names the lines that the guide shows."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.prepared import run_python

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "checking.md").read_text()
PROGRAM = ROOT / "examples" / "kv_transfer.py"

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]


@dataclass(frozen=True)
class Mistake:
    """A section of the guide: a change of the program, and what the checker said."""

    name: str
    change: str
    output: str

    @property
    def program(self) -> str:
        """The program with the change."""
        lines = self.change.splitlines(keepends=True)
        before, behind = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
        right = PROGRAM.read_text()
        assert right.count(before) == 1, before
        return right.replace(before, behind)

    @property
    def kind(self) -> str:
        return self.output.split(" ", 1)[0]

    @property
    def lines(self) -> set[int]:
        """The lines that are named as those of the two events, not as their callers'."""
        return {
            int(line)
            for line in re.findall(r"^  rank .* at kv_transfer\.py:(\d+)", self.output, re.MULTILINE)
        }


MISTAKES = [
    Mistake(*section)
    for section in re.findall(r"## (\d\. [^\n]+)\n\n```diff\n(.*?)```\n\n```text\n(.*?)```", GUIDE, re.DOTALL)
]


def check(folder: Path, source: str) -> tuple[list[dict[str, object]], str]:
    (folder / "kv_transfer.py").write_text(source)
    words = ["-m", "peerlane", "check", "-n", "2", "--json", "found.json", "kv_transfer.py"]
    done = run_python(words, timeout=90, cwd=folder)
    return json.loads((folder / "found.json").read_text())["findings"], done.stderr


def test_guide_has_five_mistakes() -> None:
    assert len(MISTAKES) == 5


def test_guide_program_is_clean(tmp_path: Path) -> None:
    assert check(tmp_path, PROGRAM.read_text())[0] == []


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda each: each.name)
def test_mistake_of_guide_is_named_with_lines_shown(mistake: Mistake, tmp_path: Path) -> None:
    findings, output = check(tmp_path, mistake.program)
    named = [
        {site["line"] for site in finding["sites"]}  # type: ignore[attr-defined, index]
        for finding in findings
        if finding["kind"] == mistake.kind and finding["certain"]
    ]
    assert mistake.lines in named, output


def test_text_of_changed_source_is_what_guide_shows(tmp_path: Path) -> None:
    mistake = MISTAKES[2]  # nothing of its text depends on which rank is faster
    output = check(tmp_path, mistake.program)[1]
    assert _plain(mistake.output) in _plain(output), output


def _plain(text: str) -> str:
    return " ".join(re.sub(r", [\d,]+ times|thread \d+", "", text).split())
