"""``peerlane launch --predict``: what it refuses, and that the ranks' own results stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.launching import Run

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]


def test_machine_without_rates_and_ranks_of_hosts_are_refused_before_a_rank_runs(run: Run) -> None:
    for words in (("-n", "2", "--predict", "hgx"), ("--hosts", "localhost:2", "--predict", "h100-8")):
        done = run(*words, "-c", "print('ran')")
        assert done.returncode == 2 and done.stdout == ""
        assert "--predict" in done.stderr


def test_exit_code_and_trace_are_those_of_a_run_without_a_prediction(run: Run, cwd: Path) -> None:
    program = "import peerlane as pl, sys; pl.devices()[0].allocate(64).fill(1); sys.exit(3)"
    done = run("-n", "1", "--predict", "h100-8", "--trace", "t.json", "-c", program)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == "peerlane launch:   main thread: 2.0 us, 64 bytes"
    events = json.loads((cwd / "t.json").read_text())["traceEvents"]
    assert [each["args"]["what"] for each in events if each["name"] == "fill"] == ["64 bytes"]
