"""A thread of C that calls or ends while who joins it holds the GIL, as the destructors of bindings do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from peerlane.testing.procs import run_python

pytestmark = pytest.mark.any_schedule
SECONDS = 60
JOINER = """
#include <pthread.h>
#include <stdatomic.h>
static pthread_t thread;
static atomic_int has_called, may_end, code, last_calls;
static int (*ask)(int*);
static void* work(void* none) {
    int count = 0;
    code = ask(&count) ? -1 : count;
    has_called = 1;
    while (!may_end) {}
    for (int i = 0; i < last_calls; ++i) code |= ask(&count);
    return none;
}
int begin(int (*function)(int*), int calls) {
    ask = function;
    last_calls = calls;
    may_end = has_called = 0;
    if (pthread_create(&thread, 0, work, 0)) return -2;
    while (!has_called) {}
    return code;
}
int join(void) {
    code = 0;
    may_end = 1;
    pthread_join(thread, 0);
    return code;
}
"""
PROGRAM = """
import ctypes, sys
from peerlane.c_abi import directory
library, joiner, calls = ctypes.CDLL(f"{directory()}/libamdhip64.so"), sys.argv[1], int(sys.argv[2])
for _ in range(3):
    assert ctypes.CDLL(joiner).begin(library.hipGetDeviceCount, calls) == 2
    assert ctypes.PyDLL(joiner).join() == 0  # it keeps the GIL
    assert ctypes.CDLL(joiner).begin(library.hipGetDeviceCount, calls) == 2
    assert ctypes.CDLL(joiner).join() == 0
print("over")
"""


@pytest.mark.parametrize("calls", [0, 20])
def test_thread_of_c_ends_though_the_thread_that_joins_it_holds_the_gil(tmp_path: Path, calls: int) -> None:
    source, library = tmp_path / "joiner.c", tmp_path / "joiner.so"
    source.write_text(JOINER)
    words = ["-shared", "-fPIC", "-O1", "-pthread", source, "-o", library]
    subprocess.run([shutil.which("cc") or "gcc", *words], check=True, timeout=SECONDS)
    run = ["-m", "peerlane", "run", "--devices", "2", "-c", PROGRAM, str(library), str(calls)]
    done = run_python(run, timeout=SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")
    assert done.seconds < 10
