"""Programs of NVIDIA's wheel ``nccl4py``, unmodified; ``make test-cuda`` installs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from peerlane.testing.procs import Completed, run_python

pytest.importorskip("nccl.core", reason="the wheel nccl4py is not installed")

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "cuda.md"
(PROGRAM,) = re.findall(r"```python\n(# ranks.py\n.*?)```", GUIDE.read_text(), re.DOTALL)
(RACE,) = re.findall(r"```text\n(race \(certain\): ncclAllReduce.*?)\n```", GUIDE.read_text(), re.DOTALL)
SECONDS = 120

MORE = """
with nccl.group():
    other = nccl.mem_alloc(4 * COUNT)
    comm.send(Floats(memory), 1 - rank, stream=stream)
    comm.recv(Floats(other), 1 - rank, stream=stream)
half = comm.create_pre_mul_sum(0.5, nccl.FLOAT32)
comm.allreduce(Floats(other), Floats(other), half, stream=stream)
comm.allreduce(Floats(other), Floats(other), nccl.AVG, stream=stream)
part = comm.split(color=0, key=-rank)
print("part", part.rank, part.nranks)
part.broadcast(Floats(other), Floats(other), root=0, stream=stream)
windows = [comm.register_window(each) for each in (memory, other)]
comm.put_signal(Floats(memory), 1 - rank, windows[1], stream=stream)
comm.wait_signal(nccl.WaitSignalDesc(peer=1 - rank), stream=stream)
other.copy_to(host, stream=stream)
stream.sync()
print("put", values[0], comm.get_async_error())
try:
    part.broadcast(Floats(other), Floats(other), root=5, stream=stream)
except Exception as error:
    print(error, "root is 5" in part.get_last_error())
for each in windows:
    each.close()
part.destroy()
other.close()
"""


def launched(command: str, folder: Path, text: str) -> Completed:
    program = folder / "ranks.py"
    program.write_text(text)
    words = ["-m", "peerlane", command, "-n", "2", "--dialect", "cuda", str(program)]
    return run_python(words, timeout=SECONDS, cwd=folder)


def test_program_of_the_guide_reduces_between_two_processes(tmp_path: Path) -> None:
    done = launched("launch", tmp_path, PROGRAM)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["[0] 0 3.0 3.0", "[1] 1 3.0 3.0"]), (
        done.stderr
    )


def test_check_finds_nothing_in_the_program_of_the_guide(tmp_path: Path) -> None:
    done = launched("check", tmp_path, PROGRAM)
    assert done.returncode == 0, done.stdout + done.stderr


def test_check_names_a_copy_on_a_stream_that_does_not_wait(tmp_path: Path) -> None:
    raced = PROGRAM.replace(
        "memory.copy_to(host, stream=stream)", "memory.copy_to(host, stream=device.create_stream())"
    )
    done = launched("check", tmp_path, raced)
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 3, text
    assert " ".join(RACE.split()) in text.replace("rank 0's ", "").replace("rank 1's ", "").replace(
        ", 2 times", ""
    )


def test_messages_operations_windows_and_splits(tmp_path: Path) -> None:
    done = launched("launch", tmp_path, PROGRAM.replace("comm.destroy()", f"{MORE}comm.destroy()"))
    assert done.returncode == 0, done.stderr
    assert sorted(line for line in done.stdout.splitlines() if not line.endswith("3.0 3.0")) == [
        f"[{rank}] {text}"
        for rank in range(2)
        for text in ("InvalidArgument (4): invalid argument True", f"part {1 - rank} 2", "put 3.0 0")
    ]
