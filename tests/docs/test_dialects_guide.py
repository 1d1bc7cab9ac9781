"""The guide's examples of calls of HIP are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_schedule

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
#: A link to a file in the paragraph before a block, and the block.
QUOTED = re.compile(r"\]\((\.\./\.\./[\w./]+)\)[^\n]*:\n\n```(?:c|python|text)\n(.*?\n)```", re.DOTALL)


def test_guide_examples_of_calls_are_lines_of_the_files_that_it_names() -> None:
    _, section = (GUIDES / "dialects.md").read_text().split("\n## Add a call to HIP\n")
    quoted = QUOTED.findall(section)
    assert len(quoted) == len(re.findall(r"^```(?!sh)\w", section, re.MULTILINE))
    for path, lines in quoted:
        assert lines in (GUIDES / path).read_text(), lines


def test_guide_commands_for_a_call_name_files_that_are_there() -> None:
    _, section = (GUIDES / "dialects.md").read_text().split("\n## Add a call to HIP\n")
    root = GUIDES.parents[1]
    assert all((root / name).exists() for name in re.findall(r"(?:tests|src)/[\w/]+(?:\.\w+)*", section))
