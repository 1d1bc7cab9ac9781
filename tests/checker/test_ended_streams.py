"""The end of a stream orders nothing for `peerlane check`, whether its work is over by then or not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.prepared import run_python

pytestmark = pytest.mark.schedules_in_turn

PROGRAM = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")

def made(function, *arguments):
    value = ctypes.c_uint64()
    assert not function(ctypes.byref(value), *arguments)
    return value

assert not cuda.cuInit(0)
assert not cuda.cuCtxSetCurrent(made(cuda.cuDevicePrimaryCtxRetain, 0))
memory, copy = (made(cuda.cuMemAlloc_v2, ctypes.c_size_t(4096)) for _ in range(2))
one, other, last = (made(cuda.cuStreamCreate, 1) for _ in range(3))
assert not cuda.cuMemsetD8Async(memory, 1, ctypes.c_size_t(4096), one)  # first
BEFORE
assert not cuda.cuStreamDestroy_v2(one)
assert not cuda.cuStreamDestroy_v2(last)
assert not cuda.cuMemcpyAsync(copy, memory, ctypes.c_size_t(4096), other)  # second
assert not cuda.cuCtxSynchronize()
"""
ORDER = "assert not cuda.cuStreamSynchronize(one)"


@pytest.mark.parametrize("before", ["", ORDER], ids=["destroyed", "synchronized"])
def test_end_of_a_stream_orders_nothing(tmp_path: Path, before: str) -> None:
    program, report = tmp_path / "program.py", tmp_path / "report.json"
    program.write_text(PROGRAM.replace("BEFORE", before))
    words = ["-m", "peerlane", "check", "--dialect", "cuda", "--json", str(report), str(program)]
    done = run_python(words, timeout=120)
    assert done.returncode == (0 if before else 3), done.stdout + done.stderr
    findings = json.loads(report.read_text())["findings"]
    lines = [at for at, line in enumerate(program.read_text().splitlines(), 1) if "# " in line]
    assert [[site["line"] for site in each["sites"]] for each in findings] == ([] if before else [lines])
