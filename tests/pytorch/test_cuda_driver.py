"""Programs under ``--torch-cuda`` and ``--dialect cuda``: the vendor's libraries work on torch's streams."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path
from typing import Any

import pytest

from helpers.torch_ranks import needs_torch, under_the_name_cuda
from peerlane.testing.procs import Completed, run_python

needs_torch()

pytestmark = [under_the_name_cuda, pytest.mark.any_schedule, pytest.mark.timeout(300)]
RAW_NCCL = str(Path(__file__).with_name("cuda_programs") / "raw_nccl.py")
SCHEDULES = pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:7"])
_OPTIONS = ["--torch-cuda", "--dialect", "cuda", "--devices", "2"]


def _run(command: str, words: list[str], schedule: str = "eager") -> Completed:
    settings = {"PEERLANE_SCHEDULE": schedule, "OMP_NUM_THREADS": "1"}
    # The first one compiles the device.
    return run_python(
        ["-m", "peerlane", command, *_OPTIONS, *words], timeout=280, env={**os.environ, **settings}
    )


_BEGIN = """
    import ctypes
    import torch
    driver = ctypes.CDLL("libcuda.so.1")

    def call(name, *arguments):
        code = getattr(driver, name)(*arguments)
        if code:
            raise RuntimeError(f"{name} returned {code}")

    def fill(tensor, value, stream):
        at, size = ctypes.c_void_p(tensor.data_ptr()), ctypes.c_size_t(tensor.nbytes)
        call("cuMemsetD8Async", at, ctypes.c_ubyte(value), size, ctypes.c_void_p(stream))

    def current():
        number = ctypes.c_int()
        call("cuCtxGetDevice", ctypes.byref(number))
        return number.value

    call("cuInit", 0)
    torch.cuda.set_device(0)
    x = torch.zeros(1 << 16, dtype=torch.uint8, device="cuda")
"""


def _prints(folder: Path, text: str, schedule: str) -> Any:
    program = folder / "program.py"
    program.write_text(textwrap.dedent(_BEGIN) + textwrap.dedent(text))
    done = _run("run", [str(program)], schedule)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@SCHEDULES
def test_calls_of_the_driver_keep_the_order_of_streams_of_torch(tmp_path: Path, schedule: str) -> None:
    text = """
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            fill(x, 3, torch.cuda.current_stream().cuda_stream)
            y = x + 1
            fill(x, 7, side.cuda_stream)
        torch.cuda.current_stream().wait_stream(side)
        print([y.min().item(), x.max().item()])
        default = torch.cuda.default_stream().cuda_stream
        print(default)
        for value in (5, 9):
            fill(x, value, default)
            z = x * 2
        print([z.min().item(), z.max().item()])
    """
    assert _prints(tmp_path, text, schedule) == [[4, 7], 0, [18, 18]]


@SCHEDULES
def test_streams_of_the_driver_are_synchronized_with_the_device(tmp_path: Path, schedule: str) -> None:
    text = """
        blocking, apart = ctypes.c_void_p(), ctypes.c_void_p()
        call("cuStreamCreate", ctypes.byref(blocking), 0)
        call("cuStreamCreate", ctypes.byref(apart), 1)
        fill(x, 5, blocking.value)
        y = x + 1  # the default stream waits for one that blocks
        print([y.min().item(), y.max().item()])
        torch.cuda.synchronize()
        fill(x, 8, apart.value)
        torch.accelerator.synchronize()
        print([x.min().item(), x.max().item()])
    """
    assert _prints(tmp_path, text, schedule) == [[6, 6], [8, 8]]


def test_device_of_a_thread_is_that_of_the_driver(tmp_path: Path) -> None:
    text = """
        import threading
        torch.cuda.set_device(1)
        print(current())
        with torch.cuda.device(0):
            print(current())
        print(current())
        with torch.accelerator.device_index(0):
            print(current())
        torch.accelerator.set_device_index(0)
        print(current())

        def of_thread():
            torch.cuda.set_device(1)
            print(current())

        thread = threading.Thread(target=of_thread)
        thread.start()
        thread.join()
        print(current())
    """
    assert _prints(tmp_path, text, "eager") == [1, 0, 1, 0, 0, 1, 0]


@SCHEDULES
def test_weights_arrive_by_calls_of_nccl_on_streams_of_torch(schedule: str) -> None:
    done = _run("run", [RAW_NCCL], schedule)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True"] * 4 + ["0"]


def test_check_has_no_finding_where_the_trainer_waits_before_it_sends() -> None:
    done = _run("check", [RAW_NCCL])
    assert (done.returncode, done.stdout.split()[:4]) == (0, ["True"] * 4), done.stdout + done.stderr


def test_check_names_the_lines_of_a_trainer_that_sends_too_early(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = _run("check", ["--json", str(report), RAW_NCCL, "missing"])
    assert done.returncode == 3, done.stdout + done.stderr
    lines = Path(RAW_NCCL).read_text().splitlines()
    certain = [each for each in json.loads(report.read_text())["findings"] if each["certain"]]
    assert certain
    named = {lines[site["line"] - 1].strip() for each in certain for site in each["sites"]}
    assert any(each.startswith("packed = torch.cat(") for each in named) and "optimizer.step()" in named
