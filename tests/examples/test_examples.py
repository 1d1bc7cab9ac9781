"""Each example runs under each schedule, and prints a clear error for arguments that cannot work."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from helpers.prepared import run_python
from helpers.small_weights import small_weights
from peerlane.testing.procs import Completed

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCHEDULES = ("eager", "lazy", "seeded:5")
SECONDS = 60.0

PROGRAMS = {
    "acl_memory": (["--rows", "300"], "300 rows of 3001 bytes to device 0 and back, every byte verified"),
    "acl_contexts": (
        [],
        "8 workers on device 0, in contexts of their own and in a shared one, every byte verified",
    ),
    "acl_callbacks": ([], "20 blocks handed over by callbacks in order, every byte verified"),
    "acl_notify_ping_pong": (
        ["--devices", "1", "0", "--rounds", "200"],
        "200 rounds between devices 1 and 0, every byte verified",
    ),
    "acl_growing_buffer": (
        ["--device", "1", "--mib", "8"],
        r"grown to 8\d+ bytes in 10 steps at one address, every byte verified",
    ),
    "acl_ipc_key": (
        ["--device", "1"],
        "3000000 bytes of device 1 shared by a key, every byte verified in both processes",
    ),
    "acl_kv_cache": (
        ["--blocks", "1000"],
        r"1,000 blocks of 4,096 bytes from device 0 to device 1, every byte verified: \d+\.\d\d GB/s",
    ),
}


def run(*args: str, schedule: str = "eager") -> Completed:
    env = {name: value for name, value in os.environ.items() if "PEERLANE" not in name}
    env["PEERLANE_SCHEDULE"] = schedule
    return run_python(list(args), timeout=SECONDS, env=env)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_acl_example_under_each_schedule_verifies_every_byte(name: str, schedule: str) -> None:
    args, printed = PROGRAMS[name]
    for profile in ["ascend-a2"] if schedule != "eager" else ["ascend-a2", "default"]:
        done = run(
            "-m",
            "peerlane",
            "run",
            "--devices",
            "2",
            "--profile",
            profile,
            str(EXAMPLES / f"{name}.py"),
            *args,
            schedule=schedule,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert re.fullmatch(f"{printed}\n", done.stdout), done.stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_acl_example_with_bad_device_names_code_and_valid_devices(name: str) -> None:
    options = (
        ["--devices", "0", "7"] if name in ("acl_notify_ping_pong", "acl_kv_cache") else ["--device", "7"]
    )
    done = run("-m", "peerlane", "run", "--devices", "2", str(EXAMPLES / f"{name}.py"), *options)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "returned 107001" in done.stderr and "numbered 0 to 1" in done.stderr
    assert "Traceback" not in done.stderr


HIP_PROGRAMS = {
    "hip_vmm_growth": (
        ["--device", "1", "--mib", "8"],
        r"grown to 8\d+ bytes in 10 steps at one address, every byte verified",
    ),
    "hip_ipc_ring": (
        ["--processes", "3", "--bytes", "300007"],
        "3 blocks of 300007 bytes went round 3 processes, every byte verified",
    ),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", HIP_PROGRAMS)
def test_hip_example_under_each_schedule_verifies_every_byte(name: str, schedule: str) -> None:
    args, printed = HIP_PROGRAMS[name]
    command = ["-m", "peerlane", "run", "--devices", "2", str(EXAMPLES / f"{name}.py"), *args]
    done = run(*command, schedule=schedule)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert re.fullmatch(f"{printed}\n", done.stdout), done.stdout


def test_hip_example_with_bad_device_or_memory_prints_error() -> None:
    done = run("-m", "peerlane", "run", str(EXAMPLES / "hip_vmm_growth.py"), "--device", "7")
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert done.stderr == "hipErrorInvalidDevice (101): invalid device ordinal\n"
    done = run(
        *("-m", "peerlane", "run", "--node", "memory=2MiB,devices=2", str(EXAMPLES / "hip_ipc_ring.py")),
        *("--bytes", "3000000"),
    )
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert done.stderr == "hipErrorOutOfMemory (2): out of memory\n"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_kv_cache_example_under_each_schedule_verifies_every_byte(schedule: str) -> None:
    done = run(str(EXAMPLES / "kv_cache.py"), "--blocks", "2000", schedule=schedule)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    printed = r"3 x 2,000 blocks of 4,096 bytes moved by one launch each, every byte verified: \d+\.\d GB/s\n"
    assert re.fullmatch(printed, done.stdout), done.stdout


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("library", ["nixl", "mooncake"])
def test_kv_cache_example_under_each_schedule_verifies_every_block(library: str, schedule: str) -> None:
    done = run("-m", "peerlane", "run", str(EXAMPLES / f"{library}_prefill_decode.py"), schedule=schedule)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout == "4 requests, 32 of 32 blocks right in the other process\n"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_model_weights_example_under_each_schedule_compares_every_tensor(
    schedule: str, tmp_path: Path
) -> None:
    done = run(str(EXAMPLES / "model_weights.py"), small_weights(tmp_path), schedule=schedule)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert "a deadlock: ranks 0, 1, 2 and 3 wait in vain" in done.stdout
    assert re.search(r"rank 3 \(process \d+\) has died", done.stdout)
    assert done.stdout.endswith("verified: 2 tensors, 307,277 bytes, on each device and in each worker\n")


def test_model_weights_example_without_its_file_reports_it(tmp_path: Path) -> None:
    done = run(str(EXAMPLES / "model_weights.py"), str(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("NOT verified: [Errno 2] No such file")
