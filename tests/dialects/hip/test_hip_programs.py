"""The examples written for hip-python, each run as a program under each schedule."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.prepared import run_python
from peerlane.testing.procs import Completed

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule]

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SCHEDULES = ("eager", "lazy", "seeded:7")


def run(*args: str, schedule: str = "eager", **variables: str) -> Completed:
    env = {name: value for name, value in os.environ.items() if "PEERLANE" not in name}
    env |= {"PEERLANE_SCHEDULE": schedule, **variables}
    return run_python(["-m", "peerlane", "run", *args], timeout=60.0, env=env)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("options", [[], ["--profile", "mi300x"]])
def test_hip_example_peer_access_verifies_bytes(options: list[str], schedule: str) -> None:
    program = str(EXAMPLES / "hip_peer_access.py")
    done = run(*options, program, "--devices", "1", "0", "--mib", "2", schedule=schedule)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "2 MiB from device 1 to 0 and back, every byte verified\n"


def test_hip_example_peer_access_runs_with_strict_policy() -> None:
    done = run(str(EXAMPLES / "hip_peer_access.py"), "--mib", "1", PEERLANE_HIP_POLICY="peer_copies=strict")
    assert (done.returncode, done.stderr) == (0, "")


def test_hip_example_peer_access_unsupported_request_exits_1() -> None:
    done = run(str(EXAMPLES / "hip_peer_access.py"), "--devices", "0", "7")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "hipErrorInvalidDevice (101): invalid device ordinal\n"
    islands = ["--devices", "4", "--switch", "2", str(EXAMPLES / "hip_peer_access.py"), "--devices", "0", "2"]
    done = run(*islands)
    assert (done.returncode, done.stderr) == (1, "device 0 cannot access device 2\n")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("options", "count"),
    [(["--devices", "3"], 3), (["--profile", "mi300x"], 8), (["--profile", "two-islands"], 8)],
)
def test_hip_example_ring_verifies_bytes(options: list[str], count: int, schedule: str) -> None:
    done = run(*options, str(EXAMPLES / "hip_ring.py"), "--rounds", "2", "--shift", "2", schedule=schedule)
    assert (done.returncode, done.stderr) == (0, "")
    steps = 2 * count + 2
    assert (
        done.stdout
        == f"1 MiB blocks of {count} devices passed on {steps} times in a ring, every byte verified\n"
    )


def test_hip_example_ring_one_device_exits_1() -> None:
    done = run("--devices", "1", str(EXAMPLES / "hip_ring.py"))
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "a ring needs 2 devices; there are 1\n")
