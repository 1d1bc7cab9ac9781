"""Programs of ranks as users start them: the example, and programs under the environment of each launcher."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.launcher_variables import without_launcher
from helpers.prepared import run_python

EXAMPLE = Path(__file__).parents[2] / "examples" / "channel_ring.py"
SECONDS = 60.0

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(120)]

_PROGRAM = """
import sys
import peerlane as pl
with pl.Group() as group:
    channel = group.channel(1 - group.rank)
    channel.write(bytes([group.rank + 7]), notify=0)
    channel.wait(0, timeout=30)
    said = group.rank, group.size, group.device.ordinal, group.window.view()[0]
    sys.stdout.write(" ".join(map(str, said)) + "\\n")  # one write: two ranks share one pipe
    channel.notify(1)
    channel.wait(1, timeout=30)
"""

_LAUNCHED = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", {"TORCHELASTIC_RUN_ID": "17", "LOCAL_WORLD_SIZE": "2"}),
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", {}),
    "MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", {"MPI_LOCALNRANKS": "2"}),
    "Slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", {"SLURM_JOB_ID": "5", "SLURM_STEP_ID": "0"}),
}

#: Starts two ranks as MPICH's proxy of a machine does: its variables are the same in each job of a user.
_PROXY = f"""
import os, subprocess, sys
def start(rank):
    told = dict(PMI_RANK=str(rank), PMI_SIZE="2", MPI_LOCALNRANKS="2", MPI_LOCALRANKID=str(rank), HYDI_CONTROL_FD="7")
    words = ["sh", "-c", "$0 -c \\"$1\\"; exit $?", sys.executable, {_PROGRAM!r}]
    return subprocess.Popen(words, env={{**os.environ, **told}})
sys.exit(max(each.wait() for each in [start(0), start(1)]))
"""


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_channel_ring_example_under_launch_prints_each_rank(ranks: int) -> None:
    done = run_python(["-m", "peerlane", "launch", "-n", str(ranks), str(EXAMPLE)], timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    wanted = [f"[{rank}] rank {rank} of {ranks}: {ranks} blocks" for rank in range(ranks)]
    assert sorted(done.stdout.splitlines()) == wanted


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:5"])
def test_kv_transfer_example_under_each_schedule_has_no_wrong_block(schedule: str) -> None:
    words = ["-m", "peerlane", "launch", "-n", "2", str(EXAMPLE.with_name("kv_transfer.py"))]
    done = run_python(words, timeout=SECONDS, env={**os.environ, "PEERLANE_SCHEDULE": schedule})
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[1] 6 requests of 8 blocks came, 0 blocks are wrong\n"


@pytest.mark.parametrize("launcher", _LAUNCHED)
def test_group_under_each_launcher_takes_its_rank_size_and_device(launcher: str) -> None:
    rank, size, local, more = _LAUNCHED[launcher]
    clean = without_launcher()
    children = [
        subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdout=subprocess.PIPE,
            text=True,
            env={**clean, **more, rank: str(number), size: "2", local: str(1 - number)},
        )
        for number in range(2)
    ]
    try:
        printed = [child.communicate(timeout=SECONDS)[0].strip() for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert printed == ["0 2 1 8", "1 2 0 7"]
    assert [child.returncode for child in children] == [0, 0]


def test_group_of_two_mpich_jobs_at_once_meets_within_its_job() -> None:
    clean = without_launcher()
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", _PROXY],
            stdout=subprocess.PIPE,
            text=True,
            env={**clean, "PEERLANE_NODE": f"name=job{number}-{os.getpid()},devices=2"},
            start_new_session=True,
        )
        for number in range(2)
    ]
    try:
        printed = [sorted(job.communicate(timeout=SECONDS)[0].splitlines()) for job in jobs]
    finally:
        for job in jobs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    assert printed == [["0 2 0 8", "1 2 1 7"]] * 2
    assert [job.returncode for job in jobs] == [0, 0]


def test_group_rank_0_interrupted_during_creation_ends_process_in_time(tmp_path: Path) -> None:
    program = tmp_path / "interrupted.py"
    program.write_text(
        """
import os, signal, time
import peerlane as pl
from peerlane.collectives import group
from peerlane.rendezvous import by_machines

by_machines.LINGER_SECONDS = 50.0  # so that a slow machine does not look as if the process lingered

def interrupted(*_):
    raise KeyboardInterrupt

group.join = interrupted
print(time.monotonic(), flush=True)
pl.Group(0, 2, rendezvous=lambda mine: [mine, mine])
"""
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=100, check=False)
    assert "KeyboardInterrupt" in done.stderr
    assert time.monotonic() - float(done.stdout) < 40, done.stderr
