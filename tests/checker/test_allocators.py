"""Allocators that map memory under their locks: the log's hooks do not allocate there, and wait for no allocation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from checker.checking import TESTS

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

PROGRAM = """
import ctypes, mmap, threading
import peerlane

peerlane.devices()[0].allocate(64).close()  # begins the log
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]

def allocate():
    for _ in range(1000):
        libc.free(libc.malloc(1 << 20))

thread = threading.Thread(target=allocate)
thread.start()
while thread.is_alive():
    mmap.mmap(-1, mmap.PAGESIZE).close()  # shared
thread.join()
print("done")
"""


def test_hooks_under_the_lock_of_an_allocator_neither_allocate_nor_wait(tmp_path: Path) -> None:
    library, program = tmp_path / "allocator.so", tmp_path / "program.py"
    source = TESTS / "checker" / "edge_programs" / "allocator.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True, timeout=60)
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "peerlane", "check", "--devices", "1", program],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "peerlane check: no findings" in done.stderr
