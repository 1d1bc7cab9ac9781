"""The guide to predictions: its program prints what it shows, and its table has the errors that there are."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from helpers.prepared import run_python
from peerlane.prediction.collectives import predicted
from peerlane.prediction.machines import MACHINES

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "predict.md").read_text()
FACTS = (ROOT / "docs" / "facts" / "links.md").read_text()

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]


def test_program_of_the_guide_prints_what_the_guide_shows(tmp_path: Path) -> None:
    program, shown = re.findall(r"```(?:python|text)\n(.*?)```", GUIDE, re.DOTALL)[:2]
    (tmp_path / "program.py").write_text(program)
    done = run_python(["program.py"], cwd=tmp_path, env={**os.environ, "PEERLANE_NODE": ""}, timeout=90)
    assert (done.stdout, done.stderr) == (shown, "")


def test_ranks_of_the_guide_are_predicted_as_the_guide_shows(tmp_path: Path) -> None:
    _, program = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    command, shown = re.findall(r"```console\n\$ peerlane (launch .*?)\n(.*?)```", GUIDE, re.DOTALL)[0]
    (tmp_path / "ranks.py").write_text(program)
    done = run_python(["-m", "peerlane", *command.split()], cwd=tmp_path, timeout=90)
    assert (done.stdout, done.stderr) == ("", shown)


def test_table_of_the_guide_has_the_errors_against_the_published_curves() -> None:
    """The curves are those of the facts, section 4: columns of bus bandwidths, rows of sizes."""
    rows = re.findall(
        r"^\| (\d+) ([MG]iB) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", FACTS, re.MULTILINE
    )
    assert len(rows) == 13
    for column, profile in enumerate(("h100-8", "h200-8", "gb200-4", "mi300x"), 2):
        machine, errors = MACHINES[profile], []
        for row in rows:
            nbytes = int(row[0]) << {"MiB": 20, "GiB": 30}[row[1]]
            measured = nbytes * 2 * (machine.devices - 1) / machine.devices / float(row[column]) / 1e9
            errors.append(predicted(machine, "all_reduce", machine.devices, nbytes).seconds / measured - 1)
        line = f"| `{profile}` | {min(errors) * 100:+.0f} % | {max(errors) * 100:+.0f} % |"
        assert line in GUIDE
