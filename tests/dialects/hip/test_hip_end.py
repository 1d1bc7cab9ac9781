"""Destructors and exit handlers that call HIP at interpreter exit, when a C library would still work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.prepared import run_python
from peerlane.testing.procs import Completed

pytestmark = pytest.mark.schedules_in_turn

EARLY = """\
kept = []
class Owner:
    def __init__(self, free, *args):
        self.free, self.args = free, args
    def __del__(self):
        err, *_ = self.free(*self.args)
        if int(err) != 0:
            raise RuntimeError(f"{err!r}")
"""
PROGRAMS = {
    "an object of the program": """\
from hip import hip
import early
memory = early.Owner(hip.hipFree, hip.hipMalloc(1 << 20)[1])
""",
    "an object of a module that was imported before": """\
import early
from hip import hip
err, stream = hip.hipStreamCreate()
err, event = hip.hipEventCreate()
for call, handle in (
    (hip.hipFree, hip.hipMalloc(64)[1]),
    (hip.hipHostFree, hip.hipHostMalloc(64, 0)[1]),
    (hip.hipFreeAsync, hip.hipMallocAsync(64, stream)[1]),
    (hip.hipEventDestroy, event),
    (hip.hipStreamSynchronize, stream),
    (hip.hipStreamSynchronize_spt, None),
    (hip.hipStreamDestroy, stream),
    (hip.hipSetDevice, 1),
):
    early.kept.append(early.Owner(call, handle, *(stream,) * (call is hip.hipFreeAsync)))
early.kept += [early.Owner(hip.hipDeviceSynchronize), early.Owner(hip.hipGetDevice)]
""",
    "a cycle": """\
from hip import hip
import early
memory = early.Owner(hip.hipFree, hip.hipMalloc(64)[1])
memory.itself = memory
""",
    "an exit handler that was registered before": """\
import atexit, early
@atexit.register
def last():
    for owner in owners:
        owner.__del__()
from hip import hip
owners = [early.Owner(hip.hipFree, hip.hipMalloc(64)[1]), early.Owner(hip.hipDeviceReset)]
""",
    "an exit handler that was registered behind": """\
import atexit, early
from hip import hip
memory = hip.hipMalloc(4)[1]
@atexit.register
def last():
    found = bytearray(4)
    assert hip.hipMemset(memory, 7, 4)[0].name == "hipSuccess"
    assert hip.hipMemcpy(found, memory, 4, hip.hipMemcpyKind.hipMemcpyDefault)[0].name == "hipSuccess"
    assert found == b"\\7" * 4
    assert hip.hipFree(memory)[0].name == "hipSuccess"
    assert hip.hipFree(memory)[0].name == "hipErrorInvalidValue"
""",
    "what needs a device": """\
from hip import hip
class Last:
    def __init__(self):
        self.hip, self.memory = hip, hip.hipMalloc(64)[1]
    def __del__(self):
        hip, codes = self.hip, self.hip.hipError_t
        assert hip.hipMalloc(64) == (codes.hipErrorDeinitialized, None)
        copied = hip.hipMemcpy(bytearray(4), self.memory, 4, hip.hipMemcpyKind.hipMemcpyDefault)
        assert copied == (codes.hipErrorDeinitialized,)
        assert hip.hipGetErrorName(copied[0])[1].decode() == "hipErrorDeinitialized"
        assert hip.hipRuntimeGetVersion()[0] is codes.hipSuccess
        assert hip.hipGetDeviceProperties(hip.hipDeviceProp_t(), 0) == (codes.hipErrorDeinitialized,)
        assert len(hip.hipGetDeviceProperties(0)) == 2
last = Last()
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_hip_calls_at_interpreter_exit_print_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "early.py").write_text(EARLY)
    (tmp_path / "program.py").write_text(PROGRAMS[name] + "print('ran')\n")
    clean = {name: value for name, value in os.environ.items() if "PEERLANE" not in name}
    env = {**clean, "PEERLANE_RUNTIME_DIR": str(tmp_path / "runtime")}
    done: Completed = run_python(["-m", "peerlane", "run", "program.py"], timeout=60, env=env, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
