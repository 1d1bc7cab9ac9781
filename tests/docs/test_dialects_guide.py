"""The guide's examples are those of the code, or run."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from peerlane.testing.procs import run_python

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


def test_guide_vendor_of_gpus_is_served_with_the_files_that_the_guide_shows(tmp_path: Path) -> None:
    _, section = (GUIDES / "dialects.md").read_text().split("\n### A vendor of GPUs\n")
    modules = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    folder = shutil.copytree(GUIDES.parents[1] / "tests/dialects/toy/toy", tmp_path / "toy")
    for name, source in zip(("__init__.py", "c_library.py"), modules, strict=False):
        (folder / name).write_text(source)
    program = """
import toy
from peerlane.dialects.toy import c_library
memory = [(toy.toySetDevice(device), *toy.toyMalloc(64)) for device in range(2)]
assert [codes[::2] for codes in memory] == [(0, 0), (0, 0)], memory
assert toy.toyMemcpyPeer(memory[0][1], 0, memory[1][1], 1, 64) == 0
assert toy.toyMemset(memory[0][1], 1, 64) == 1, "no body"
assert "the documentation of Toy's dialect lists what works" in toy.explain()
assert c_library.library("toy")
"""
    environ = {**os.environ, "PEERLANE_DIALECT_FOLDERS": str(folder), "PEERLANE_NODE": "devices=2"}
    done = run_python(["-m", "peerlane", "run", "--dialect", "toy", "-c", program], env=environ, timeout=60)
    assert done.returncode == 0, done.stderr
