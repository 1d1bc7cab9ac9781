"""`peerlane run --explain`, and `PEERLANE_EXPLAIN=1`: why the last call of each vendor failed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from peerlane.testing.procs import Completed, run_python

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

#: By dialect, a program whose line 3 makes a call that fails, and what the explanation has.
FAILING = {
    "acl": (
        """import acl
acl.init()
acl.rt.set_device(7)
""",
        ("acl.rt.set_device returned 107001", "device_id=7", "Solution: "),
    ),
    "hip": (
        """from hip import hip

hip.hipSetDevice(7)
""",
        ("hipSetDevice returned hipErrorInvalidDevice (101)", "Remedy: "),
    ),
    "cuda": (
        """import ctypes
driver = ctypes.CDLL("libcuda.so.1")
driver.cuDeviceGet(ctypes.byref(ctypes.c_int()), 7) if driver.cuInit(0) == 0 else None
""",
        ("cuDeviceGet returned CUDA_ERROR_INVALID_DEVICE (101)", "Remedy: "),
    ),
    "mooncake": (
        """from mooncake.engine import TransferEngine
engine = TransferEngine()
engine.unregister_memory(64)
""",
        ("TransferEngine.unregister_memory returned ",),
    ),
}


def _run(folder: Path, program: str, *options: str, **variables: str) -> Completed:
    path = folder / "program.py"
    path.write_text(program)
    words = ["-m", "peerlane", "run", *options, str(path)]
    return run_python(words, timeout=60, env={**os.environ, **variables})


def _explained(errors: str) -> str:
    return errors.partition("peerlane: the last call of ")[2]


@pytest.mark.parametrize("dialect", FAILING)
def test_last_failed_call_of_each_dialect_is_explained_with_its_line(tmp_path: Path, dialect: str) -> None:
    program, texts = FAILING[dialect]
    done = _run(tmp_path, program, "--explain", "--dialect", dialect)
    explained = _explained(done.stderr)
    assert done.returncode == 0 and explained.startswith(f"{dialect} that failed:\n"), done.stderr
    assert all(each in explained for each in texts), explained
    assert explained.splitlines()[-1].strip() == "at program.py:3"


def test_failed_call_of_another_thread_is_explained_after_an_error_by_the_variable(tmp_path: Path) -> None:
    program = """import acl, threading
acl.init()
thread = threading.Thread(target=lambda: acl.rt.set_device(7))
thread.start(), thread.join()
acl.get_recent_err_msg()
raise SystemExit(3)
"""
    done = _run(tmp_path, program, PEERLANE_EXPLAIN="1")
    assert done.returncode == 3
    assert "acl.rt.set_device returned 107001" in _explained(done.stderr)
    assert _explained(done.stderr).splitlines()[-1].strip() == "at program.py:3"


@pytest.mark.parametrize(
    ("options", "program"), [(["--explain"], "acl.rt.set_device(0)"), ([], "acl.rt.set_device(7)")]
)
def test_nothing_is_explained_without_a_failed_call_or_unasked(
    tmp_path: Path, options: list[str], program: str
) -> None:
    done = _run(tmp_path, f"import acl\nacl.init()\n{program}\n", *options)
    assert (done.returncode, done.stderr) == (0, "")


def test_forked_child_does_not_explain_the_failure_of_its_parent(tmp_path: Path) -> None:
    program = """import acl, os, sys
acl.init()
acl.rt.set_device(7)
if os.fork() == 0:
    sys.exit(0)
os.wait()
"""
    done = _run(tmp_path, program, "--explain")
    assert done.stderr.count("peerlane: the last call of acl that failed") == 1


#: By the kind of its error, a program that a failed call ends; line 5 makes the call.
ENDING = {
    "own code": """import ctypes
driver = ctypes.CDLL("libcuda.so.1")
driver.cuInit(0)
def choose():
    code = driver.cuDeviceGet(ctypes.byref(ctypes.c_int()), 7)
    if code:
        raise RuntimeError(code)
choose()
""",
    "cause": """from hip import hip
def check(answer):
    assert answer[0] == 0
try:
    check(hip.hipSetDevice(7))
except AssertionError as error:
    raise LookupError("no device") from error
""",
    "thread": """import acl, threading
acl.init()
def choose():
    table = {0: "chosen"}
    return table[acl.rt.set_device(7)]
thread = threading.Thread(target=choose)
thread.start(), thread.join()
""",
}


@pytest.mark.parametrize("kind", ENDING)
@pytest.mark.parametrize("options", [[], ["--explain"]])
def test_error_behind_a_failed_call_shows_once_why_the_call_failed(
    tmp_path: Path, kind: str, options: list[str]
) -> None:
    done = _run(tmp_path, ENDING[kind], *options)
    assert done.stderr.count("peerlane: the last call of ") == 1, done.stderr
    assert _explained(done.stderr).splitlines()[-1].strip() == "at program.py:5"


@pytest.mark.parametrize(
    "program",
    [
        "def call():\n    acl.rt.set_device(7)\ncall()\nraise RuntimeError",
        "import peerlane as pl\nacl.rt.set_device(7)\npl.device(7)",
        "acl.rt.set_device(7)\nraise KeyboardInterrupt",
    ],
    ids=["another function", "error of peerlane", "interrupt"],
)
def test_error_that_a_failed_call_does_not_end_is_shown_alone(tmp_path: Path, program: str) -> None:
    done = _run(tmp_path, f"import acl\nacl.init()\n{program}\n")
    assert done.returncode != 0 and done.stderr and not _explained(done.stderr)
