"""A vendor of GPUs in a header, codes, names and policies: its calls are those of `gpu`, by its own rules."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from subprocess import run
from types import ModuleType
from typing import Any

import pytest

import peerlane
from helpers.outside_dialects import build_library
from peerlane import Host, dialects, raw

FOLDER = Path(__file__).with_name("toy")
SECONDS = 60
N = 256
pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(SECONDS)]


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Return the vendor's module on two devices, of which this thread has none."""
    monkeypatch.setenv("PEERLANE_DIALECT_FOLDERS", "")
    dialects.register(FOLDER)
    import peerlane.dialects.toy as module  # type: ignore[import-not-found]

    peerlane.leave_node()
    peerlane.enter_node("devices=2,memory=64MiB")
    module.begin_anew()
    yield module
    peerlane.leave_node()
    module.begin_anew()


def allocated(toy: ModuleType, device: int, value: int) -> int:
    """Return the address of memory of a device whose bytes are all ``value``; the device is current then."""
    assert toy.toySetDevice(device) == 0
    address, code = toy.toyMalloc(N)
    assert (code, toy.toyMemset(address, value, N), toy.toyStreamSynchronize(0)) == (0, 0, 0)
    return int(address)


def bytes_at(address: int) -> set[int]:
    return set(bytes(raw.view(address, N)))


def test_thread_without_device_is_refused_with_the_vendors_code_and_names(toy: ModuleType) -> None:
    assert toy.toyMalloc(N) == (0, 6)
    assert toy.explain() == (
        "toyMalloc returned 6.\n"
        "    Called with: size=256\n"
        "    Cause: this thread has no current context.\n"
        "    Remedy: call toySetDevice in this thread first."
    )
    assert toy.toySetDevice(1) == 0
    assert toy.toyGetDevice() == (1, 0)
    codes = []
    thread = threading.Thread(target=lambda: codes.append(toy.toyMalloc(N)[1]))
    thread.start()
    thread.join(SECONDS)
    assert codes == [6]


@pytest.mark.parametrize(("policy", "copied"), [("both", 3), ("current", 1)])
def test_copy_at_once_between_devices_follows_the_work_that_the_policy_names(
    toy: ModuleType, monkeypatch: pytest.MonkeyPatch, policy: str, copied: int
) -> None:
    monkeypatch.setattr(toy.gpu.vendor.policy, "cross_device", policy)
    src, dst = allocated(toy, 1, 1), allocated(toy, 0, 2)
    other = toy.gpu.streams.null_of(1).neutral
    with Host().allocate(8) as word:
        word.fill(0)
        raw.wait_value(word.address, 1, stream=other, timeout=SECONDS)
        raw.fill(src, 3, count=N, stream=other)
        release = threading.Timer(0.05, word.fill, [1])
        if policy == "both":
            release.start()
        assert toy.toyMemcpy(dst, src, N) == 0
        if policy == "both":
            release.join(SECONDS)
        word.fill(1)
        other.sync()
    assert bytes_at(dst) == {copied}


def test_streams_and_events_order_the_work_of_two_devices(toy: ModuleType) -> None:
    src, dst = allocated(toy, 0, 1), allocated(toy, 1, 2)
    streams = []
    for device in (0, 1):
        assert toy.toySetDevice(device) == 0
        streams.append(toy.toyStreamCreate()[0])
    assert toy.toySetDevice(0) == 0
    event, code = toy.toyEventCreate()
    assert code == 0
    assert toy.toyMemsetAsync(src, 7, N, streams[0]) == 0
    assert toy.toyEventRecord(event, streams[1]) != 0  # an event of another device
    assert toy.toyEventRecord(event, streams[0]) == 0
    assert toy.toyStreamWaitEvent(streams[1], event) == 0
    assert toy.toyMemcpyAsync(dst, src, N, streams[1]) == 0
    assert toy.toyStreamSynchronize(streams[1]) == 0
    assert bytes_at(dst) == {7}
    assert [toy.toyStreamDestroy(each) for each in streams] == [0, 0]
    assert toy.toyStreamSynchronize(streams[0]) == 4


def test_each_fault_has_the_vendors_code(toy: ModuleType) -> None:
    memory = allocated(toy, 0, 1)
    stream = toy.toyStreamCreate()[0]
    wrong = {
        "no device": (toy.toySetDevice(2), 5),
        "NULL": (toy.toyMemcpy(0, memory, N), 1),
        "beyond": (toy.toyMemcpy(memory, memory, 2 * N), 1),
        "no room": (toy.toyMalloc(1 << 40)[1], 2),
        "no stream": (toy.toyStreamSynchronize(12345), 4),
        "access twice": (toy.toyEnablePeer(1) or toy.toyEnablePeer(1), 8),
        "itself": (toy.toyEnablePeer(0), 1),
        "freed twice": (toy.toyFree(memory) or toy.toyFree(memory), 1),
        "no body": (toy.toyGraphLaunch(1, stream), 3),
    }
    assert {name: code for name, (code, expected) in wrong.items() if code != expected} == {}
    assert "toyGraphLaunch is not part of that" in toy.explain()


def test_argument_beyond_its_type_in_the_header_is_refused(toy: ModuleType) -> None:
    with pytest.raises(TypeError) as refused:
        toy.toyMalloc(-1)
    assert "valid are 0 to 18,446,744,073,709,551,615" in str(refused.value.__cause__)
    with pytest.raises(TypeError):
        toy.toySetDevice(1 << 31)
    assert [str(each) for each in toy.toyMemcpyPeer.__signature__.parameters] == [
        "dst",
        "to",
        "src",
        "source",
        "size",
    ]


def test_c_library_answers_as_python_does(toy: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "toy"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__", "lib"))
    program = f"""
import ctypes
toy = ctypes.CDLL({str(build_library(folder, "toy"))!r})
memory, stream = ctypes.c_void_p(), ctypes.c_uint64()
codes = [toy.toyMalloc(ctypes.byref(memory), ctypes.c_size_t(64)), toy.toySetDevice(0)]
codes += [toy.toyMalloc(ctypes.byref(memory), ctypes.c_size_t(64)), toy.toyStreamCreate(ctypes.byref(stream))]
codes += [toy.toyMemsetAsync(memory, 7, ctypes.c_size_t(64), stream), toy.toyStreamSynchronize(stream)]
taken = ctypes.create_string_buffer(64)
codes += [toy.toyMemcpy(taken, memory, ctypes.c_size_t(64)), toy.toyGraphLaunch(ctypes.c_uint64(1), stream)]
codes += [toy.toyMalloc(None, ctypes.c_size_t(64))]
print(codes, set(taken.raw))
"""
    environment: dict[str, Any] = {
        **os.environ,
        "PEERLANE_DIALECT_FOLDERS": str(folder),
        "PEERLANE_NODE": "devices=2",
    }
    done = run(
        [sys.executable, "-m", "peerlane", "run", "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "[6, 0, 0, 0, 0, 0, 0, 3, 1] {7}\n"), done.stderr


def test_vendor_is_at_most_150_lines() -> None:
    lines = {each.name: len(each.read_text().splitlines()) for each in FOLDER.iterdir() if each.is_file()}
    assert sum(lines.values()) <= 150, lines
