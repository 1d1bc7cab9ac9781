"""Destructors of modules and exit handlers that call the C libraries when Python has ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

EARLY = """
kept = []

class Owner:
    def __init__(self, function, *words, code=0):
        self.function, self.words, self.code = function, words, code

    def __call__(self, print=print):
        code = self.function(*self.words)
        if code != self.code:
            print("it returned", code, "instead of", self.code)

    __del__ = __call__
"""

PROGRAM = """
import atexit, ctypes, sys
import early

@atexit.register
def last():
    if "handler" in sys.argv:
        owners.clear()
        early.kept.clear()

from peerlane.c_abi import directory

NAMES = {names!r}
library = ctypes.CDLL(str(directory() / NAMES["library"]))

def made(name, *words):
    place = ctypes.c_void_p()
    assert getattr(library, NAMES[name])(ctypes.byref(place), *words) == 0
    return place

if NAMES["prefix"] == "cu":
    assert library.cuInit(0) == 0
    context = made("context", 0)
    assert library.cuCtxSetCurrent(context) == 0
stream = made("stream", *NAMES["flags"])
event = made("event", *NAMES["flags"])
size = ctypes.c_size_t(64)

def current(get=getattr(library, NAMES["get"]), number=ctypes.c_uint64(7), byref=ctypes.byref):
    return get(byref(number)) or number.value == 7  # nothing was written

ends = [
    ("free", made("make", size)),
    ("free_host", made("make_host", size)),
    ("unpooled", made("pooled", size, stream), stream),
    ("sync", event),
    ("end_event", event),
    ("wait", stream),
    ("end", stream),
    ("set", context if NAMES["prefix"] == "cu" else 0),
]
owners = [early.Owner(getattr(library, NAMES[name]), *words) for name, *words in ends[::2]]
early.kept += [early.Owner(getattr(library, NAMES[name]), *words) for name, *words in ends[1::2]]
early.kept.append(early.Owner(current))
early.kept.append(early.Owner(getattr(library, NAMES["make"]), ctypes.byref(ctypes.c_void_p()), size, code=4))
print("ran", flush=True)
"""

DRIVER = {
    "library": "libcuda.so.1", "prefix": "cu", "context": "cuDevicePrimaryCtxRetain", "stream": "cuStreamCreate",
    "event": "cuEventCreate", "make": "cuMemAlloc_v2", "make_host": "cuMemAllocHost_v2", "pooled": "cuMemAllocAsync",
    "free": "cuMemFree_v2", "free_host": "cuMemFreeHost", "unpooled": "cuMemFreeAsync", "sync": "cuEventSynchronize",
    "end_event": "cuEventDestroy_v2", "wait": "cuStreamSynchronize", "end": "cuStreamDestroy_v2",
    "set": "cuCtxSetCurrent", "get": "cuCtxPopCurrent_v2", "flags": (0,),
}  # fmt: skip
HIP = {
    "library": "libamdhip64.so", "prefix": "hip", "stream": "hipStreamCreate", "event": "hipEventCreate",
    "make": "hipMalloc", "make_host": "hipMallocHost", "pooled": "hipMallocAsync", "free": "hipFree",
    "free_host": "hipHostFree", "unpooled": "hipFreeAsync", "sync": "hipEventSynchronize",
    "end_event": "hipEventDestroy", "wait": "hipStreamSynchronize", "end": "hipStreamDestroy", "set": "hipSetDevice",
    "get": "hipGetDevice", "flags": (),
}  # fmt: skip
RUNTIME = {
    **{name: value.replace("hip", "cuda") if isinstance(value, str) else value for name, value in HIP.items()},
    "library": "libcudart.so.13", "free_host": "cudaFreeHost",
}  # fmt: skip


@pytest.mark.parametrize("when", ["module", "handler"])
@pytest.mark.parametrize("names", [DRIVER, HIP, RUNTIME], ids=["cuda", "hip", "cudart"])
def test_release_calls_succeed_when_python_has_ended(
    tmp_path: Path, names: dict[str, object], when: str
) -> None:
    (tmp_path / "early.py").write_text(EARLY)
    (tmp_path / "program.py").write_text(PROGRAM.format(names=names))
    clean = {name: value for name, value in os.environ.items() if "PEERLANE" not in name}
    done = subprocess.run(  # not `run_python`, which imports peerlane first
        [sys.executable, "program.py", when],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**clean, "PEERLANE_RUNTIME_DIR": str(tmp_path / "runtime")},
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


DAEMONS = """
import ctypes, sys, threading
from peerlane.c_abi import directory

library, name = ctypes.CDLL(f"{directory()}/{sys.argv[1]}"), sys.argv[2]
begun = threading.Barrier(5)

def call():
    text = ctypes.create_string_buffer(64)
    getattr(library, name)(text, 64, 0)
    begun.wait()
    while True:
        getattr(library, name)(text, 64, 0)

if name.startswith("cu"):
    assert library.cuInit(0) == 0
for _ in range(4):
    threading.Thread(target=call, daemon=True).start()
begun.wait()
"""


@pytest.mark.parametrize("function", ["libcuda.so.1:cuDeviceGetName", "libamdhip64.so:hipDeviceGetName"])
def test_program_ends_while_daemon_threads_call(function: str) -> None:
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", DAEMONS, *function.split(":")],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
