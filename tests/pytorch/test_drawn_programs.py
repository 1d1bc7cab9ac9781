"""Drawn programs of operations have the bits of the processor on one, two and four devices, under each schedule."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.torch_ranks import needs_torch
from peerlane.testing.procs import run_python

needs_torch()

_PROGRAM = Path(__file__).with_name("drawn_programs.py")
SCHEDULES = pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:7"])
DEVICES = pytest.mark.parametrize("devices", [1, 2, 4])

pytestmark = pytest.mark.any_schedule


def _run(devices: int, schedule: str, count: int, *, timeout: float) -> list[str]:
    settings = {"PEERLANE_SCHEDULE": schedule, "PEERLANE_NODE": "devices=4", "OMP_NUM_THREADS": "1"}
    words = [str(_PROGRAM), str(devices), "0", str(count)]
    done = run_python(words, timeout=timeout, env={**os.environ, **settings})
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@SCHEDULES
@DEVICES
@pytest.mark.timeout(300)
def test_drawn_programs_have_the_bits_of_the_processor(devices: int, schedule: str) -> None:
    assert _run(devices, schedule, 20, timeout=280) == ["ran 20"]


@SCHEDULES
@DEVICES
@pytest.mark.soak
def test_many_drawn_programs_have_the_bits_of_the_processor(devices: int, schedule: str) -> None:
    assert _run(devices, schedule, 2_000, timeout=3_000) == ["ran 2000"]
