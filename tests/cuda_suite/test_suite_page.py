"""The runner of vendors' tests: what it counts, and what its page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuda_suite.page import counts_of, page_of, passing_part
from cuda_suite.running import CRASHED, FAILED, KERNEL, PASSED, SKIPPED, outcomes
from cuda_suite.suites import Group, Suite

pytestmark = pytest.mark.any_schedule
TESTS = """
import ctypes, os, pytest
def test_devices():
    count = ctypes.c_int()
    cuda = ctypes.CDLL("libcuda.so.1")
    assert cuda.cuInit(0) == cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
    assert count.value == int(os.environ["EXPECTED"])
def test_compiles(): ctypes.CDLL("libnvrtc.so.0")
def test_loads():
    library = ctypes.c_void_p()
    code = ctypes.CDLL("libcuda.so.1").cuLibraryLoadData(ctypes.byref(library), b".version 8.0", *[None] * 6)
    assert code == 801
    raise RuntimeError("a text that no list has")
def test_moved(): raise AttributeError("a name that moved")
def test_unknown(): assert 1 == 2
@pytest.mark.skip(reason="no texture")
def test_texture(): pass
@pytest.mark.parametrize("path", [os.path.join(os.getcwd(), "../examples/copy.py")], ids=str)
def test_example(path): pass
"""
GROUP = Group("devices", ("test_*.py",))
SUITE = Suite(
    title="A vendor's tests",
    source="a folder",
    groups=(GROUP,),
    wheels=("numpy",),
    reasons={"a name that moved": "It names what has moved"},
    devices=2,
    environment={"EXPECTED": "2"},
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_vendor.py").write_text(TESTS)
    (tmp_path / "test_ends.py").write_text("import os\ndef test_ends(): os._exit(3)\n")
    return tmp_path


def test_suite_page_counts_each_end_and_gives_its_reason(folder: Path) -> None:
    results = outcomes(SUITE, folder, "test_vendor.py")
    assert [(each.name, each.kind) for each in results] == [
        ("test_devices", PASSED),
        ("test_compiles", KERNEL),
        ("test_loads", KERNEL),
        ("test_moved", FAILED),
        ("test_unknown", FAILED),
        ("test_texture", SKIPPED),
        ("test_example[../examples/copy.py]", PASSED),
    ]
    assert passing_part(counts_of(results)) == (2, 4)
    page = page_of("vendor", SUITE, "5", {GROUP: {"test_vendor.py": results}})
    assert "| `test_vendor.py` | 2 | 2 | 2 | 1 |" in page
    assert "* It names what has moved (1): `test_vendor.py::test_moved`." in page
    assert "* It needs a kernel: `cuLibraryLoadData` is refused (1): `test_vendor.py::test_loads`." in page
    assert "* Not explained yet (1): `test_vendor.py::test_unknown`." in page
    assert "* no texture (1)." in page
    assert "Of the 4 tests that ran and need no kernel, 2 pass (50.0 %); none crashed." in page


def test_suite_page_counts_a_file_whose_process_ends_as_crashed(folder: Path) -> None:
    [only] = outcomes(SUITE, folder, "test_ends.py")
    assert (only.kind, passing_part(counts_of([only]))) == (CRASHED, (0, 1))
