"""Programs of torch whose ranks are processes, each with a deadline; what each rank has found."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from peerlane.testing.procs import Completed, run_python

Run = Callable[..., "list[Any]"]

_HEAD = """
import datetime, json, os, sys, threading, time
import torch
import torch.distributed as dist
import peerlane.torch

torch.set_num_threads(1)
found = {}


def caught(call, *args, **options):
    \"\"\"Return the kind and the text of what a call raises, and the kind of the cause.\"\"\"
    try:
        call(*args, **options)
    except Exception as error:
        return [type(error).__name__, str(error), type(error.__cause__).__name__]
    return None


def seconds(number):
    return datetime.timedelta(seconds=number)


def work():
    rank, size = dist.get_rank(), dist.get_world_size()
"""
_TAIL = """
def begin(rank, size, backend, timeout):
    where = f"file://{sys.argv[1]}/store"
    dist.init_process_group(backend, where, seconds(timeout), size, rank)
    tell(rank)


def tell(rank):
    try:
        work()
    finally:
        with open(f"{sys.argv[1]}/{rank}.json", "w") as file:
            json.dump(found, file)
    dist.destroy_process_group()

"""
_STARTED = """
if __name__ == "__main__":
    start = torch.multiprocessing.get_context("{method}").Process
    ranks = [start(target=begin, args=(rank, *{arguments})) for rank in range({size})]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    sys.exit(any(each.exitcode for each in ranks))
"""
_LAUNCHED = """
if __name__ == "__main__":
    dist.init_process_group("peerlane")
    tell(dist.get_rank())
"""
_SKIPPED = "PyTorch is not installed"


def needs_torch() -> Any:
    """Return torch; skip the module where it is not installed."""
    return pytest.importorskip("torch", reason=_SKIPPED)


def has_cuda() -> bool:
    """Return whether torch is there in a build that has CUDA itself."""
    try:
        from torch import version
    except ImportError:
        return False
    return version.cuda is not None


#: Of a test under ``--torch-cuda``, which takes a build of torch without CUDA.
under_the_name_cuda = pytest.mark.skipif(has_cuda(), reason="this build of PyTorch has CUDA itself")
BOTH_NAMES = pytest.mark.parametrize(
    "options",
    [pytest.param([], id="peerlane"), pytest.param(["--torch-cuda"], id="cuda", marks=under_the_name_cuda)],
)


class Programs:
    """Runs programs in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(
        self,
        body: str,
        *,
        size: int = 2,
        timeout: float = 100.0,
        backend: str = "peerlane",
        wait: float = 30.0,
        method: str = "fork",
        may_fail: bool = False,
    ) -> list[Any]:
        """Run the body in ranks that one process starts; return what each has put into ``found``.

        A rank that has died has None.  ``wait`` is the time-out of the process group.
        """
        tail = _STARTED.format(arguments=f"({size}, {backend!r}, {wait})", size=size, method=method)
        return self._ran([], body, tail, size, timeout, may_fail)

    def launched(
        self, words: Sequence[str], body: str, *, size: int = 2, timeout: float = 100.0
    ) -> list[Any]:
        """Run the body in ranks that a launcher starts, whose words come before the program's."""
        return self._ran(words, body, _LAUNCHED, size, timeout, False)

    def _ran(
        self, words: Sequence[str], body: str, tail: str, size: int, timeout: float, may_fail: bool
    ) -> list[Any]:
        for old in self._folder.glob("*"):
            old.unlink()
        file = self._folder / "program.py"
        file.write_text(_HEAD + textwrap.indent(textwrap.dedent(body), "    ") + _TAIL + tail)
        env = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
        done: Completed = run_python([*words, str(file), str(self._folder)], timeout=timeout, env=env)
        assert may_fail or done.returncode == 0, done.stdout + done.stderr
        reports = [self._folder / f"{rank}.json" for rank in range(size)]
        return [json.loads(each.read_text()) if each.exists() else None for each in reports]
