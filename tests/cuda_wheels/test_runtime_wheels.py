"""Programs on the runtime: cuda-bindings, CuPy and numba, which have a copy of it inside, unmodified."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from peerlane.testing.procs import Completed, run_python

pytestmark = pytest.mark.any_schedule
SECONDS = 180
BINDINGS = """
import numpy as np
from cuda.bindings import runtime as rt
data, back = np.arange(4096, dtype=np.uint8), np.zeros(4096, np.uint8)
def call(name, *words):
    code, *values = getattr(rt, name)(*words)
    assert int(code) == 0, (name, code)
    return values[0] if len(values) == 1 else values
assert call("cudaGetDeviceCount") == 2 and call("cudaRuntimeGetVersion") == 13050
memory, stream = call("cudaMalloc", 4096), call("cudaStreamCreate")
kind = rt.cudaMemcpyKind
call("cudaMemcpyAsync", memory, data.ctypes.data, 4096, kind.cudaMemcpyHostToDevice, stream)
call("cudaStreamSynchronize", stream)
call("cudaMemcpy", back.ctypes.data, memory, 4096, kind.cudaMemcpyDeviceToHost)
assert (back == data).all()
assert call("cudaGetDeviceProperties", 1).multiProcessorCount == 132
assert rt.cudaSetDevice(2)[0].name == "cudaErrorInvalidDevice"
assert rt.cudaGetLastError()[0].name == "cudaErrorInvalidDevice"
print("over")
"""
CUPY = """
import cupy, numpy as np
SIZE = 1 << 20
with cupy.cuda.Device(0):
    stream = cupy.cuda.Stream(non_blocking=True)
    first, pinned = cupy.cuda.alloc(SIZE), cupy.cuda.alloc_pinned_memory(SIZE)
    np.frombuffer(pinned, np.uint8, SIZE)[:] = 7
    first.copy_from_host_async(pinned.ptr, SIZE, stream)
    stream.synchronize()
with cupy.cuda.Device(1):
    second, back = cupy.cuda.alloc(SIZE), np.zeros(SIZE, np.uint8)
    second.copy_from_device(first, SIZE)
    second.copy_to_host(back.ctypes.data, SIZE)
assert (back == 7).all()
numbers = np.random.default_rng(1).random((64, 64))
assert (cupy.asnumpy(cupy.asarray(numbers)) == numbers).all()
assert cupy.cuda.runtime.deviceCanAccessPeer(0, 1) == 1
print("over")
"""
NUMBA = """
import numpy as np
from numba import cuda
data = np.arange(1000, dtype=np.float32)
first, stream = cuda.to_device(data), cuda.stream()
second = cuda.device_array_like(data)
second.copy_to_device(first, stream=stream)
event = cuda.event()
event.record(stream)
event.synchronize()
assert (second.copy_to_host() == data).all()
with cuda.gpus[1]:
    assert (cuda.to_device(data).copy_to_host() == data).all()
print("over")
"""
#: Without a kernel: tensors of device memory, copies between devices and with the host, on streams with events.
TORCH = """
import torch
def moves():
    assert torch.cuda.is_available() and torch.cuda.device_count() == 2
    data = torch.arange(1 << 18, dtype=torch.float32)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        first = torch.empty(1 << 18, device="cuda:0")
        first.copy_(data, non_blocking=True)
        copied = stream.record_event()
    other = torch.cuda.Stream(device="cuda:1")
    with torch.cuda.stream(other):
        other.wait_event(copied)
        second = torch.empty_like(first, device="cuda:1")
        second.copy_(first, non_blocking=True)
    other.synchronize()
    assert torch.equal(second.cpu(), data)
moves()
print("over")
"""


def run(program: Path, text: str, command: str = "run") -> Completed:
    program.write_text(text)
    return run_python(
        ["-m", "peerlane", command, "--dialect", "cuda", "--devices", "2", str(program)], timeout=SECONDS
    )


@pytest.mark.parametrize(
    ("module", "text"),
    [("cuda.bindings", BINDINGS), ("cupy", CUPY), ("numba_cuda", NUMBA), ("torch", TORCH)],
    ids=["cuda-bindings", "cupy", "numba", "torch"],
)
def test_program_of_a_wheel_moves_its_bytes(tmp_path: Path, module: str, text: str) -> None:
    if find_spec(module.partition(".")[0]) is None:
        pytest.skip(f"the wheel of {module} is not installed")
    if module == "torch" and "+cpu" in version("torch"):
        pytest.skip("the wheel of torch is the one for the processor")
    done = run(tmp_path / "prog.py", text)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["over"]), done.stderr


def test_check_names_a_race_in_a_program_of_cupy(tmp_path: Path) -> None:
    if find_spec("cupy") is None:
        pytest.skip("the wheel cupy is not installed")
    text = CUPY.replace("    stream.synchronize()\n", "").replace("assert (back == 7).all()\n", "")
    done = run(tmp_path / "prog.py", text, "check")
    assert done.returncode == 0, (
        done.stderr
    )  # a copy between two devices is behind all work of both (facts/cuda 4.3)
    done = run(tmp_path / "prog.py", text.replace("Device(1)", "Device(0)"), "check")
    assert done.returncode == 3, done.stderr
    output = done.stdout + done.stderr
    assert "race (certain): cudaMemcpyAsync writes, cudaMemcpy reads the same bytes" in output, output
    assert "prog.py:8" in output and "prog.py:11" in output, output
    assert "or a synchronization (cudaStreamSynchronize) with stream" in " ".join(output.split()), output
