"""The program of the guide, and the benchmark on a real torch."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from helpers.documented import programs as documented
from helpers.torch_ranks import needs_torch
from peerlane.testing.procs import run_python

needs_torch()

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(150)]

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "torch.md"


def test_program_of_the_guide_trains(tmp_path: Path) -> None:
    (program,) = documented(GUIDE.read_text())
    (tmp_path / program.name).write_text(program.code)
    done = program.run(tmp_path, {**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    assert [line.partition(": ")[0] for line in lines] == ["[0] rank 0", "[1] rank 1"]
    assert lines[0].rpartition(" ")[2] == lines[1].rpartition(" ")[2]


def test_programs_of_the_device_run(tmp_path: Path) -> None:
    program, ranks, ring = documented(GUIDE.with_name("torch-device.md").read_text())
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "PEERLANE_NODE": "devices=2"}
    for each in (program, ranks, ring):
        (tmp_path / each.name).write_text(each.code)
    done = program.run(tmp_path, settings)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == program.prints
    del settings["PEERLANE_NODE"]  # the launcher has --devices
    for each, printed in ((ranks, ["[0] 2.0", "[1] 2.0"]), (ring, ["[0] 1000.0", "[1] 0.0"])):
        done = each.run(tmp_path, settings)
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == printed


def test_bench_torch_measures_both_back_ends(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    words = ["torch", "--sizes", "4K", "--rounds", "1", "--json", str(target)]
    done = run_python(["-m", "benchmarks", *words], timeout=200, cwd=GUIDE.parents[2])
    assert done.returncode == 0, done.stderr
    result = json.loads(target.read_text())
    assert [each["why"] for each in result["skipped"]] == []
    assert len(result["figures"]) == 14
    assert all(each["seconds"] > 0 and each["reference_seconds"] > 0 for each in result["figures"])
