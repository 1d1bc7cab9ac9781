"""Whole programs of NCCL: one in C whose ranks are processes that it starts, and one that races."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from helpers.c_programs import PEERLANE
from helpers.prepared import run_python
from peerlane.support.libraries import folder
from peerlane.testing.procs import Completed

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]

TESTS = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("programs") / "nccl_ranks.c"
FLAGS = ("-g", "-O1", "-Wall", "-Wextra", "-Werror")
SECONDS = 100

RACE = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from dialects.cuda.nccl import *
ranks = Ranks(2)
memory = [each.buffer(np.ones(1000, "i4")) for each in ranks]
first = ranks.all[0]
first.enter()
other = ranks.driver.cuStreamCreate(WORD, 1)
def reduce(each):
    ranks.nccl.ncclAllReduce(memory[each.number], memory[each.number], 1000, 2, 0, each.comm, each.stream)
ranks.together(reduce)
WAIT
first.enter()
back = ranks.driver.cuMemAlloc_v2(WORD, 4000)
ranks.driver.cuMemcpyAsync(back, memory[0], 4000, other)
for each in ranks:
    each.enter()
    ranks.driver.cuStreamSynchronize(each.stream)
ranks.driver.cuStreamSynchronize(other)
for each in ranks:
    ranks.nccl.ncclCommDestroy(each.comm)
"""
WAIT = """
event = ranks.driver.cuEventCreate(WORD, 2)
ranks.driver.cuEventRecord(event, first.stream)
ranks.driver.cuStreamWaitEvent(other, event, 0)
"""
ITSELF = """
source, target, back = memory[0], first.buffer(np.ones(1000, "i4")), first.buffer(np.ones(1000, "i4"))
ranks.nccl.ncclGroupStart()
ranks.nccl.ncclSend(source, 1000, 2, 0, first.comm, first.stream)
ranks.nccl.ncclRecv(target, 1000, 2, 0, first.comm, first.stream)
ranks.nccl.ncclGroupEnd()
ranks.driver.cuMemcpyAsyncCOPIED
ranks.driver.cuStreamSynchronize(first.stream)
ranks.driver.cuStreamSynchronize(other)
for each in ranks:
    ranks.nccl.ncclCommDestroy(each.comm)
"""
PUT = """
import ctypes
memory, windows = [], (WORD * 2)()
for each in ranks:
    each.enter()
    memory.append(ranks.nccl.ncclMemAlloc(WORD, 8192))
    ranks.driver.cuMemsetD8_v2(memory[-1], 1, 8192)
ranks.together(lambda each: ranks.nccl.ncclCommWindowRegister(
    each.comm, memory[each.number], 8192, ctypes.byref(windows, 8 * each.number), 0))
ranks.nccl.ncclPutSignal(memory[0], 64, 1, 1, windows[0], 4096, 0, 0, 0, first.comm, first.stream)
second = ranks.all[1]
second.read(memory[1], np.zeros(8192, "u1"))
for each in ranks:
    ranks.nccl.ncclCommDestroy(each.comm)
"""


def peerlane(*words: str | Path) -> Completed:
    return run_python(["-m", "peerlane", *map(str, words)], timeout=SECONDS)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program in C."""
    program = tmp_path_factory.mktemp("programs") / "nccl_ranks"
    libraries = (f"-L{folder()}", "-lnccl", "-lcuda", f"-Wl,-rpath-link,{folder()}")
    subprocess.run(["cc", *FLAGS, str(PROGRAM), *libraries, "-o", str(program)], check=True, timeout=SECONDS)
    return program


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [*PEERLANE, "run", "--dialect", "cuda", "--devices", "3", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def test_ranks_of_a_program_in_c_are_processes_that_it_starts(ranks: Path) -> None:
    done = run(ranks)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (
        0,
        [f"rank {n}: done" for n in range(3)],
    ), done


def test_program_in_c_sees_a_remote_error_when_a_rank_ends(ranks: Path) -> None:
    done = run(ranks, "dies")
    expected = ["rank 0: remote error", "rank 2: remote error"]
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, expected), done


def test_check_names_a_copy_that_races_with_a_collective(tmp_path: Path) -> None:
    program = tmp_path / "race.py"
    program.write_text(RACE.replace("WAIT", ""))
    done = peerlane("check", "--dialect", "cuda", "--devices", "2", program)
    text = done.stdout + done.stderr
    assert done.returncode == 3, text
    assert "race (certain): ncclAllReduce writes, cuMemcpyAsync reads the same bytes" in " ".join(
        text.split()
    )
    assert "11 | ranks.nccl.ncclAllReduce" in text and "16 | ranks.driver.cuMemcpyAsync" in text


def test_check_finds_nothing_in_a_copy_behind_a_collective(tmp_path: Path) -> None:
    program = tmp_path / "ordered.py"
    program.write_text(RACE.replace("WAIT", WAIT))
    done = peerlane("check", "--dialect", "cuda", "--devices", "2", program)
    assert done.returncode == 0, done.stdout + done.stderr


def test_check_takes_pinned_memory_that_a_program_fills_by_its_address_as_written(tmp_path: Path) -> None:
    program = tmp_path / "pinned.py"
    filled = (
        "pinned = ranks.driver.cuMemAllocHost_v2(WORD, 4000)\n"
        "ctypes.memset(pinned, 1, 4000)\n"
        "ranks.driver.cuMemcpyAsync(memory[0], pinned, 4000, first.stream)\n"
        "ranks.together(reduce)\n"
    )
    program.write_text(RACE.replace("WAIT", filled + WAIT).replace("sys.path", "import ctypes; sys.path"))
    done = peerlane("check", "--dialect", "cuda", "--devices", "2", program)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("copied", "words", "line"),
    [
        ("(source, back, 4000, other)", "ncclSend reads, cuMemcpyAsync writes the same bytes", "ncclSend"),
        ("(back, target, 4000, other)", "ncclRecv writes, cuMemcpyAsync reads the same bytes", "ncclRecv"),
    ],
)
def test_check_names_both_calls_of_a_message_to_itself(
    tmp_path: Path, copied: str, words: str, line: str
) -> None:
    program = tmp_path / "itself.py"
    program.write_text(RACE[: RACE.index("def reduce")] + ITSELF.replace("COPIED", copied))
    done = peerlane("check", "--dialect", "cuda", "--devices", "2", program)
    text = done.stdout + done.stderr
    assert done.returncode == 3, text
    assert f"race (certain): {words}" in " ".join(text.split()), text
    assert f"| ranks.nccl.{line}" in text, text


def test_check_finds_nothing_in_a_message_to_itself_that_is_waited_for(tmp_path: Path) -> None:
    program = tmp_path / "itself.py"
    copied = "(back, target, 4000, first.stream)"
    program.write_text(RACE[: RACE.index("def reduce")] + ITSELF.replace("COPIED", copied))
    done = peerlane("check", "--dialect", "cuda", "--devices", "2", program)
    assert done.returncode == 0, done.stdout + done.stderr


def test_check_names_the_wait_for_a_signal_that_a_put_lacks(tmp_path: Path) -> None:
    program = tmp_path / "put.py"
    program.write_text(RACE[: RACE.index("def reduce")] + PUT)
    done = peerlane("check", "--dialect", "cuda", "--devices", "2", program)
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 3, text
    assert "race (certain): rank 0's ncclPutSignal writes" in text, text
    assert "missing: a wait (ncclWaitSignal) of" in text, text
