"""The guide's back-end passes the conformance suite, is found by its entry point, and its program runs."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from helpers.documented import has_promised_words, programs
from helpers.prepared import run_python
from peerlane.backend.facts import Caps
from peerlane.testing import conformance

pytestmark = pytest.mark.any_schedule

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "backends.md").read_text()
PROGRAMS = {program.name: program for program in programs(GUIDE)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the guide's programs, which is also an installed package with its entry point."""
    shelf = tmp_path_factory.mktemp("shelf")
    for program in PROGRAMS.values():
        (shelf / program.name).write_text(program.code)
    (entry_point,) = re.findall(r"```toml\n\[project\.entry-points\.\"(.*)\"\]\n(.*)\n```", GUIDE)
    installed = shelf / "shelf-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        f"[{entry_point[0]}]\n{entry_point[1].replace(chr(34), '')}\n"
    )
    return shelf


def test_guide_backend_passes_conformance_suite(folder: Path) -> None:
    words = [*PROGRAMS["test_shelf.py"].words, "-q", "-rs", "-p", "no:cacheprovider", "-p", "no:randomly"]
    done = run_python(words, timeout=120, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    skipped = set(re.findall(r"shelf lacks (\w+)", done.stdout))
    assert skipped == {"HOST_VIEW", "PEER", "PINNED_HOST", "PHYSICAL", "QUEUE", "SHARE"}


def test_guide_backend_program_prints_what_its_comments_promise(folder: Path) -> None:
    program = PROGRAMS["shelves.py"]
    done = program.run(folder, {**os.environ})
    assert done.returncode == 1
    for line, promised in zip(done.stdout.splitlines(), program.prints, strict=True):
        assert has_promised_words(line, promised), (promised, done.stdout)
    assert has_promised_words(done.stderr, program.raises), done.stderr


def test_guide_backend_entry_point_is_looked_up_by_node_settings(folder: Path) -> None:
    code = "import peerlane as pl; print([each.name for each in pl.devices()])"
    done = run_python(
        ["-c", code], timeout=60, cwd=folder, env={**os.environ, "PEERLANE_NODE": "backend=shelf,devices=3"}
    )
    assert done.stdout.strip() == "['shelf:0', 'shelf:1', 'shelf:2']", done.stderr


def test_guide_table_names_each_capability_and_suite() -> None:
    suites = {
        each.__name__
        for each in conformance.BackendConformance.__mro__
        if each.__name__.endswith("Conformance")
    }
    assert all(f"`{each}`" in GUIDE for each in suites)
    assert all(f"| `{each.name}` |" in GUIDE for each in Caps)
