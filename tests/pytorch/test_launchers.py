"""Who may start the ranks, and that nothing is imported unasked."""

from __future__ import annotations

import sys

import pytest

from helpers.torch_ranks import Programs, needs_torch
from peerlane.testing.procs import run_python

needs_torch()

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(150)]

_SUM = """
number = torch.tensor([rank + 1])
dist.all_reduce(number)
half = dist.new_group([0])
found["sum"] = number.item()
"""


def test_ranks_of_torchrun_meet(programs: Programs) -> None:
    results = programs.launched(["-m", "torch.distributed.run", "--nproc-per-node", "3"], _SUM, size=3)
    assert [each["sum"] for each in results] == [6, 6, 6]


def test_ranks_of_peerlane_launch_meet(programs: Programs) -> None:
    results = programs.launched(["-m", "peerlane", "launch", "-n", "3", "--devices", "3"], _SUM, size=3)
    assert [each["sum"] for each in results] == [6, 6, 6]


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_ranks_of_torch_multiprocessing_meet(programs: Programs, method: str) -> None:
    assert [each["sum"] for each in programs.run(_SUM, size=2, method=method)] == [3, 3]


def test_group_can_be_created_again_in_the_same_store(programs: Programs) -> None:
    results = programs.run(
        """
store = dist.FileStore(f"{sys.argv[1]}/again", size)
sums = []
for turn in range(3):
    dist.destroy_process_group()
    dist.init_process_group("peerlane", store=store, rank=rank, world_size=size)
    number = torch.tensor([turn + rank])
    dist.all_reduce(number)
    sums.append(number.item())
found["sums"] = sums
"""
    )
    assert [each["sums"] for each in results] == [[1, 3, 5]] * 2


def test_neither_imports_the_other_unasked() -> None:
    program = """
import sys
import peerlane
assert "torch" not in sys.modules
import torch.distributed
assert "peerlane.torch" not in sys.modules
assert not hasattr(torch.distributed.Backend, "PEERLANE")
import peerlane.torch
assert torch.distributed.Backend("PEERLANE") == "peerlane"
"""
    done = run_python(["-c", program], timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), (sys.executable, done)
