"""The pytest plugin and CUDA, which has libraries of C and no module of Python."""

from __future__ import annotations

import pytest

from helpers.inner_pytest import run

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]

CALLS = """
import ctypes
import pytest

word = ctypes.c_uint64


def begin():
    global driver, runtime
    driver, runtime = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libcudart.so.13")
    context = word()
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0


def allocated(nbytes):
    memory = word()
    assert driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(nbytes)) == 0
    return memory
"""


def test_cuda_fixture_gives_each_test_a_driver_that_nobody_called(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        CALLS
        + """
def count():
    number = ctypes.c_int()
    library = ctypes.CDLL("libcuda.so.1")
    return library.cuDeviceGetCount(ctypes.byref(number)), number.value

@pytest.mark.peerlane(devices=3)
def test_begins(cuda):
    assert (cuda / "libcuda.so.1").exists()
    assert count() == (3, 0)  # before cuInit
    begin()
    assert count() == (0, 3)
    assert runtime.cudaMemcpy(None, None, ctypes.c_size_t(8), 0) == 1
    driver.cuMemFree_v2(allocated(64))
    driver.cuDevicePrimaryCtxRelease_v2(0)

@pytest.mark.peerlane(devices=2)
def test_anew(cuda):
    assert count()[0] == 3
    runtime = ctypes.CDLL("libcudart.so.13")
    assert runtime.cudaGetLastError() == 0
    begin()
    assert count() == (0, 2)
    driver.cuDevicePrimaryCtxRelease_v2(0)
""",
    )
    done.assert_outcomes(passed=2)


def test_cuda_fixture_leaks_fail_their_test_with_lines_and_the_calls_that_end_them(
    pytester: pytest.Pytester,
) -> None:
    done = run(
        pytester,
        CALLS
        + """
def test_leaks(cuda):
    begin()
    allocated(4096)

def test_frees(cuda):
    begin()
    assert driver.cuMemFree_v2(allocated(4096)) == 0

def test_releases(cuda):
    begin()
    allocated(4096)
    assert driver.cuDevicePrimaryCtxRelease_v2(0) == 0
""",
    )
    done.assert_outcomes(passed=3, errors=1)
    done.stdout.fnmatch_lines(["*memory: 4,096 bytes on virtual:0*", "*cuMemFree*"])


def test_reset_of_a_test_drops_the_context_that_failed_work_broke(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        CALLS
        + """
import mmap

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
SIZE = 1 << 20
function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
    lambda host: libc.mprotect(ctypes.c_void_p(host), ctypes.c_size_t(SIZE), 0) and None
)

@pytest.mark.peerlane(leaks="ignore")
def test_fails(cuda):
    begin()
    memory = allocated(SIZE)
    host = libc.mmap(None, SIZE, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    size = ctypes.c_size_t(SIZE)
    assert driver.cuMemHostRegister_v2(ctypes.c_void_p(host), size, 0) == 0
    assert driver.cuLaunchHostFunc(None, function, ctypes.c_void_p(host)) == 0
    driver.cuMemcpyHtoDAsync_v2(memory, ctypes.c_void_p(host), size, None)  # 700 if it has failed by then
    assert driver.cuCtxSynchronize() == 700
    assert driver.cuMemFree_v2(memory) == 700

def test_works(cuda):
    begin()
    assert driver.cuMemFree_v2(allocated(64)) == 0
    assert driver.cuCtxSynchronize() == 0
""",
    )
    done.assert_outcomes(passed=2)


def test_cuda_fixture_lets_children_find_the_libraries_and_leaves_the_environment(
    pytester: pytest.Pytester,
) -> None:
    done = run(
        pytester,
        """
import os
import subprocess
import sys

before = os.environ.get("LD_LIBRARY_PATH")
PROGRAM = "import ctypes, sys; sys.exit(ctypes.CDLL('libcuda.so.1').cuInit(0))"

def test_child(cuda):
    assert subprocess.run([sys.executable, "-c", PROGRAM]).returncode == 0

def test_behind():
    assert os.environ.get("LD_LIBRARY_PATH") == before
""",
    )
    done.assert_outcomes(passed=2)


def test_setting_lets_cuda_be_called_without_the_fixture(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\npeerlane_dialects = cuda\n")
    done = run(
        pytester,
        """
import ctypes

LIBRARY = ctypes.CDLL("libcuda.so.1")

def test_calls(peerlane_node):
    assert LIBRARY.cuInit(0) == 0
""",
    )
    done.assert_outcomes(passed=1)
