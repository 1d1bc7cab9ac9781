"""The end of a process, or of its node, with work on the device: nothing runs on memory that has ended."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest

from helpers.torch_ranks import needs_torch
from peerlane.testing.procs import Completed, run_python

needs_torch()

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]
SCHEDULES = pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:7"])
COMMANDS = pytest.mark.parametrize("command", ["run", "check"])


_IMPORTS = "import threading\nimport torch\nimport peerlane.torch\n"


def _run(folder: Path, text: str, schedule: str, command: str = "run", imports: str = _IMPORTS) -> Completed:
    program = folder / "program.py"
    program.write_text(imports + textwrap.dedent(text))
    settings = {"PEERLANE_SCHEDULE": schedule, "OMP_NUM_THREADS": "1"}
    words = ["-m", "peerlane", command, "--devices", "2", str(program)]
    return run_python(words, timeout=280, env={**os.environ, **settings})


_KERNELS = """
    large = torch.ones(1200, 1200, device="peerlane:0")
    torch.accelerator.synchronize()
    for _ in range(3):
        product = large @ large
    print("ends")
"""

_EVERYTHING = """
    streams = [torch.Stream(device=f"peerlane:{each % 2}") for each in range(4)]
    model = torch.nn.Linear(256, 256, device="peerlane:0")
    kept = []

    def queue():
        for stream in streams:
            with stream:
                product = torch.ones(500, 500, device=stream.device) @ torch.ones(500, 500, device=stream.device)
                kept.append((product, stream.record_event()))
                host = torch.empty(500, 500, pin_memory=True)
                host.copy_(product, non_blocking=True)
                torch.ones(500, 500).pin_memory().to(stream.device, non_blocking=True)
                product.to("peerlane:0", non_blocking=True)

    thread = threading.Thread(target=queue)
    thread.start()
    model(torch.randn(256, 256, device="peerlane:0")).pow(2).mean().backward()
    queue()
    thread.join()
    print("ends")
"""


@SCHEDULES
@COMMANDS
@pytest.mark.parametrize("program", [_KERNELS, _EVERYTHING], ids=["kernels", "everything"])
def test_process_with_queued_work_ends_without_a_fault(
    tmp_path: Path, program: str, command: str, schedule: str
) -> None:
    done = _run(tmp_path, program, schedule, command)
    assert (done.returncode, "ends" in done.stdout) == (0, True), done.stderr


_LEFT = """
    import peerlane as pl

    large, small = torch.ones(1200, 1200, device="peerlane:0"), torch.ones(4, device="peerlane:0")
    product = large @ large
    pl.leave_node()
    for call in (lambda: large @ large, lambda: small + 1, small.tolist):
        try:
            call()
        except pl.errors.Closed:
            print("closed")
        except torch.AcceleratorError as error:
            print("closed" if isinstance(error.__cause__, pl.errors.Closed) else error)
"""


@SCHEDULES
def test_operations_after_the_node_was_left_are_refused(tmp_path: Path, schedule: str) -> None:
    done = _run(tmp_path, _LEFT, schedule)
    assert (done.returncode, done.stdout.split()) == (0, ["closed"] * 3), done.stdout + done.stderr


_FORKS = """
    class Kept:
        pass

    def allocate():
        while not is_over.is_set():
            torch.empty(64, device="peerlane:0").untyped_storage()
            torch.peerlane.memory_allocated(0)
            torch.empty(64, pin_memory=True)

    torch.ones(1, device="peerlane:0")
    is_over = threading.Event()
    threads = [threading.Thread(target=allocate) for _ in range(2)]
    for each in threads:
        each.start()
    for _ in range(60):
        kept = Kept()
        kept.itself, kept.tensor = kept, torch.ones(8, device="peerlane:0")
        del kept
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    is_over.set()
    for each in threads:
        each.join()
    print("ends")
"""


def test_process_forks_while_threads_allocate_and_hooks_of_forks_free_tensors(tmp_path: Path) -> None:
    imports = f"import gc, os\nos.register_at_fork(after_in_parent=gc.collect)\n{_IMPORTS}"
    done = _run(tmp_path, _FORKS, "eager", imports=imports)
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr
