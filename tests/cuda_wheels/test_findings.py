"""Mistakes in programs of cuda.core, of CuPy and in C, unmodified: `peerlane check` names both lines of each."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from peerlane.support.libraries import folder
from peerlane.testing.procs import Completed, run_python

pytestmark = pytest.mark.any_schedule
SECONDS = 180
CORE = """
from cuda.core import Device, DeviceMemoryResource
device = Device(0)
device.set_current()
one, other = device.create_stream(), device.create_stream()
pool = DeviceMemoryResource(device)
memory, copy = (pool.allocate(4096, stream=one) for _ in range(2))
one.sync()
stale = one.record()
memory.fill(7, stream=one)  # first
event = one.record()
other.wait(event)
copy.copy_from(memory, stream=other)  # second
done = other.record()
one.wait(done)
memory.close(stream=one)  # end
copy.close(stream=other)
one.sync()
other.sync()
"""
CUPY = """
import cupy
one, other = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
stale, event, done = (cupy.cuda.Event() for _ in range(3))
memory, copy = (cupy.cuda.runtime.mallocAsync(4096, one.ptr) for _ in range(2))
one.synchronize()
stale.record(one)
cupy.cuda.runtime.memsetAsync(memory, 7, 4096, one.ptr)  # first
event.record(one)
other.wait_event(event)
cupy.cuda.runtime.memcpyAsync(copy, memory, 4096, 3, other.ptr)  # second
done.record(other)
one.wait_event(done)
cupy.cuda.runtime.freeAsync(memory, one.ptr)  # end
cupy.cuda.runtime.freeAsync(copy, other.ptr)
one.synchronize()
other.synchronize()
"""
C = """
#include <stddef.h>
typedef struct CUstream_st* Stream;
typedef struct CUevent_st* Event;
int cudaMallocAsync(void**, size_t, Stream), cudaFreeAsync(void*, Stream);
int cudaMemsetAsync(void*, int, size_t, Stream), cudaMemcpyAsync(void*, const void*, size_t, int, Stream);
int cudaStreamCreateWithFlags(Stream*, unsigned), cudaStreamSynchronize(Stream);
int cudaEventCreate(Event*), cudaEventRecord(Event, Stream), cudaStreamWaitEvent(Stream, Event, unsigned);
static int failed;
int main(void) {
    Stream one, other;
    Event stale, event, done;
    void *memory, *copy;
    failed |= cudaStreamCreateWithFlags(&one, 1) | cudaStreamCreateWithFlags(&other, 1);
    failed |= cudaEventCreate(&stale) | cudaEventCreate(&event) | cudaEventCreate(&done);
    failed |= cudaMallocAsync(&memory, 4096, one) | cudaMallocAsync(&copy, 4096, one);
    failed |= cudaStreamSynchronize(one);
    failed |= cudaEventRecord(stale, one);
    failed |= cudaMemsetAsync(memory, 7, 4096, one); // first
    failed |= cudaEventRecord(event, one);
    failed |= cudaStreamWaitEvent(other, event, 0);
    failed |= cudaMemcpyAsync(copy, memory, 4096, 3, other); // second
    failed |= cudaEventRecord(done, other);
    failed |= cudaStreamWaitEvent(one, done, 0);
    failed |= cudaFreeAsync(memory, one); // end
    failed |= cudaFreeAsync(copy, other);
    failed |= cudaStreamSynchronize(one) | cudaStreamSynchronize(other);
    return failed;
}
"""
#: Of a program: the line of the wait for the first event, that wait for an event recorded too early, and the line of
#: the wait before the end of the memory.
WAITS = {
    "core": (CORE, "other.wait(event)", "other.wait(stale)", "one.wait(done)"),
    "cupy": (CUPY, "other.wait_event(event)", "other.wait_event(stale)", "one.wait_event(done)"),
    "c": (
        C,
        "    failed |= cudaStreamWaitEvent(other, event, 0);",
        "    failed |= cudaStreamWaitEvent(other, stale, 0);",
        "    failed |= cudaStreamWaitEvent(one, done, 0);",
    ),
}
MODULES = {"core": "cuda.core", "cupy": "cupy", "c": ""}
CALLS = {
    "core": ("cuMemsetD8Async", "cuMemcpyAsync", "cuMemFreeAsync"),
    "cupy": ("cudaMemsetAsync", "cudaMemcpyAsync", "cudaFreeAsync"),
    "c": ("cudaMemsetAsync", "cudaMemcpyAsync", "cudaFreeAsync"),
}


def program_of(scratch: Path, kind: str, text: str) -> Path:
    if kind != "c":
        program = scratch / "prog.py"
        program.write_text(text)
        return program
    source = scratch / "prog.c"
    source.write_text(text)
    words = ["cc", "-g", "-O1", "-Wall", "-Werror", str(source), f"-L{folder()}", "-lcudart", "-o"]
    subprocess.run([*words, str(scratch / "prog")], check=True, timeout=SECONDS)
    return scratch / "prog"


def checked(scratch: Path, kind: str, text: str) -> Completed:
    module = MODULES[kind].partition(".")[0]
    if module and find_spec(module) is None:
        pytest.skip(f"the wheel of {MODULES[kind]} is not installed")
    program = program_of(scratch, kind, text)
    return run_python(["-m", "peerlane", "check", "--dialect", "cuda", str(program)], timeout=SECONDS)


def line(kind: str, text: str, mark: str) -> str:
    number = next(at for at, each in enumerate(text.splitlines(), 1) if each.endswith(mark))
    return f"prog.{'c' if kind == 'c' else 'py'}:{number}"


@pytest.mark.parametrize("kind", WAITS)
def test_check_finds_nothing_in_a_right_program(tmp_path: Path, kind: str) -> None:
    done = checked(tmp_path, kind, WAITS[kind][0])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("mistake", ["no wait", "a wait for an earlier record"])
@pytest.mark.parametrize("kind", WAITS)
def test_check_names_a_race(tmp_path: Path, kind: str, mistake: str) -> None:
    text, wait, stale, _ = WAITS[kind]
    text = text.replace(wait, "" if mistake == "no wait" else stale)
    done = checked(tmp_path, kind, text)
    report = " ".join((done.stdout + done.stderr).split())
    first, second, _ = CALLS[kind]
    assert done.returncode == 3, report
    assert f"race (certain): {first} writes, {second} reads the same bytes" in report
    lines = [line(kind, text, mark) for mark in ("first", "second")]
    assert all(each in report for each in lines), report
    number = lines[0].partition(":")[2]
    assert "missing: a wait (cu" in report and f"records after line {number}" in report, report


@pytest.mark.parametrize("kind", WAITS)
def test_check_names_a_use_after_free(tmp_path: Path, kind: str) -> None:
    text, _, _, wait = WAITS[kind]
    text = text.replace(wait, "")
    done = checked(tmp_path, kind, text)
    report = " ".join((done.stdout + done.stderr).split())
    _, second, end = CALLS[kind]
    assert done.returncode == 3, report
    assert f"use-after-free (certain): {second} may use memory after it has ended at {end}" in report, report
    assert all(line(kind, text, mark) in report for mark in ("second", "end")), report
