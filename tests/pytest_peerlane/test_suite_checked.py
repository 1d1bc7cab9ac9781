"""All tests under ``--peerlane-check``: nothing is found in a test that is right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.any_schedule


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_whole_suite_under_check_passes() -> None:
    words = ["--peerlane-check", "-n", "4", "--dist", "worksteal", "-q", "-p", "no:cacheprovider"]
    # They compile, or compare times.
    left_out = [f"--ignore=tests/{each}" for each in ("native", "cli/bench", "benchmarks")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *left_out],
        cwd=ROOT,
        env={**os.environ, "PEERLANE_SCHEDULE": "eager"},
        capture_output=True,
        text=True,
        timeout=3500,
        check=False,
    )
    last = done.stdout.splitlines()[-1:]
    print(*last)
    assert done.returncode == 0, done.stdout[-20000:]
