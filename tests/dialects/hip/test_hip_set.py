"""Fills of HIP (facts/hip 1.4)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.hip_client import code, done, held, neutral, on, read
from peerlane.dialects.hip.streams.stream import create

Enter = Callable[..., ModuleType]
pytestmark = pytest.mark.timeout(60)
N = 256
WIDTHS = {"hipMemset": 1, "hipMemsetD8": 1, "hipMemsetD16": 2, "hipMemsetD32": 4}
VALUES = {1: 0xA5, 2: 0x1234, 4: 0x12345678}
BOXES = {"hipMemset2D": 1, "hipMemsetD2D8": 1, "hipMemsetD2D16": 2, "hipMemsetD2D32": 4}


def run(hip: ModuleType, name: str, asynchronous: bool, *words: Any, stream: Any = None) -> str:
    if asynchronous:
        return code(getattr(hip, f"{name}Async")(*words, stream))
    return code(getattr(hip, name)(*words))


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("name", WIDTHS)
@pytest.mark.parametrize("kind", ["device", "host", "managed", "registered"])
def test_hip_memset_calls_fill_every_memory_kind(
    hip: ModuleType, name: str, asynchronous: bool, kind: str
) -> None:
    width, host = WIDTHS[name], np.zeros(N, np.uint8)
    if kind == "registered":
        done(hip.hipHostRegister(host, N, 0))
        memory: Any = host.ctypes.data
    else:
        allocate = {"host": (hip.hipHostMalloc, N, 0), "managed": (hip.hipMallocManaged, N, 1)}
        call, *words = allocate.get(kind, (hip.hipMalloc, N))
        memory = done(call(*words))
        done(hip.hipMemcpy(memory, host, N, hip.hipMemcpyKind.hipMemcpyDefault))
    assert run(hip, name, asynchronous, int(memory) + 4, VALUES[width], 8) == "hipSuccess"
    content = read(hip, memory, N)
    assert content[4 : 4 + 8 * width].tobytes() == VALUES[width].to_bytes(width, "little") * 8
    content[4 : 4 + 8 * width] = 0
    assert not content.any()


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("name", WIDTHS)
def test_hip_memset_calls_bad_arguments_return_documented_codes(
    hip: ModuleType, name: str, asynchronous: bool
) -> None:
    memory, width = on(hip, 0, N), WIDTHS[name]
    assert run(hip, name, asynchronous, None, 1, 1) == "hipErrorInvalidValue"
    assert run(hip, name, asynchronous, np.zeros(N), 1, 1) == "hipErrorInvalidValue"
    assert run(hip, name, asynchronous, memory, 1, N // width + 1) == "hipErrorInvalidValue"
    assert run(hip, name, asynchronous, int(memory) + 1, 1, N // width) == "hipErrorInvalidValue"
    assert run(hip, name, asynchronous, None, 1, 0) == "hipSuccess"
    registered = np.zeros(N, np.uint8)
    done(hip.hipHostRegister(registered, N - 8, 0))
    assert run(hip, name, asynchronous, registered.ctypes.data, 1, N // width) == "hipErrorInvalidValue"
    if asynchronous:
        assert run(hip, name, True, memory, 1, 1, stream=77) == "hipErrorContextIsDestroyed"
    assert not read(hip, memory, N).any()


def test_hip_memset_value_beyond_a_byte_uses_low_byte(hip: ModuleType) -> None:
    memory = on(hip, 0, N)
    done(hip.hipMemset(memory, 0x1FF, 8))
    done(hip.hipMemset(int(memory) + 8, -2, 8))
    done(hip.hipMemsetD32(int(memory) + 16, -2, 2))
    assert read(hip, memory, 24).tobytes() == b"\xff" * 8 + b"\xfe" * 8 + b"\xfe\xff\xff\xff" * 2


def fill_behind_work(hip: ModuleType, address: int, seconds: float) -> bool:
    """Fill while a blocking stream is held; return whether the call returned within a time, before it went on."""
    stream = done(hip.hipStreamCreate())
    results: list[Any] = []

    with held(stream):
        thread = threading.Thread(target=lambda: results.append(hip.hipMemset(address, 3, 8)))
        thread.start()
        thread.join(seconds)
        returned = not thread.is_alive()
        assert not returned or not neutral(0).record().is_done
    thread.join(20)
    assert [code(each) for each in results] == ["hipSuccess"]
    return returned


def test_hip_memset_device_memory_returns_before_the_fill_runs(hip: ModuleType) -> None:
    assert fill_behind_work(hip, int(on(hip, 0, N)), 20)


@pytest.mark.parametrize("which", ["inside", "host", "managed", "synchronous"])
def test_hip_memset_other_memory_returns_after_the_fill(hip: ModuleType, which: str) -> None:
    memory = on(hip, 0, N)
    if which == "synchronous":
        sync = hip.hipPointer_attribute.HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS
        done(hip.hipPointerSetAttribute(np.array([1], np.uint32), sync, memory))
    address = {
        "inside": int(memory) + 8,
        "host": int(done(hip.hipHostMalloc(N, 0))),
        "managed": int(done(hip.hipMallocManaged(N, 1))),
        "synchronous": int(memory),
    }[which]
    assert not fill_behind_work(hip, address, 0.3)


def test_hip_memset_async_waits_for_its_stream(hip: ModuleType) -> None:
    memory, stream = on(hip, 0, N), create(1)
    with held(stream):
        done(hip.hipMemsetAsync(memory, 3, N, stream))
        assert not read(hip, memory, N).any()
    assert (read(hip, memory, N) == 3).all()


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("name", BOXES)
def test_hip_memset_2d_calls_fill_rows_a_pitch_apart(hip: ModuleType, name: str, asynchronous: bool) -> None:
    element = BOXES[name]
    memory, pitch = done(hip.hipMallocPitch(100, 5))
    done(hip.hipMemset(memory, 0, pitch * 5))
    value = VALUES[element]
    assert run(hip, name, asynchronous, memory, pitch, value, 40, 3) == "hipSuccess"
    content = read(hip, memory, pitch * 5).reshape(5, pitch)
    assert content[:3, :40].tobytes() == value.to_bytes(element, "little") * (120 // element)
    content[:3, :40] = 0
    assert not content.any()
    assert run(hip, name, asynchronous, memory, pitch, value, pitch, 5) == "hipSuccess"
    assert read(hip, memory, pitch * 5).tobytes() == value.to_bytes(element, "little") * (
        pitch * 5 // element
    )


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("name", BOXES)
def test_hip_memset_2d_calls_bad_arguments_return_documented_codes(
    hip: ModuleType, name: str, asynchronous: bool
) -> None:
    memory, pitch = done(hip.hipMallocPitch(100, 5))
    for words in (
        (None, pitch, 1, 100, 5),
        (np.zeros(4096), pitch, 1, 100, 5),
        (memory, 1, 1, 100, 5),
        (memory, 0, 1, 100, 5),
        (memory, pitch, 1, 100, 6),
        (memory, pitch, 1, (1 << 64) - 12, 5),
        (memory, pitch, 1, 100, (1 << 64) - 12),
        (int(memory) + pitch - 96, pitch, 1, 100, 5),
    ):
        assert run(hip, name, asynchronous, *words) == "hipErrorInvalidValue", words
    for words in ((None, 0, 1, 0, 5), (None, 0, 1, 100, 0)):
        assert run(hip, name, asynchronous, *words) == "hipSuccess"
    if BOXES[name] > 1:
        assert run(hip, name, asynchronous, memory, pitch, 1, 99, 5) == "hipErrorInvalidValue"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_hip_memset_3d_fills_box_and_refuses_bad_extent(hip: ModuleType, asynchronous: bool) -> None:
    pitched = done(hip.hipMalloc3D(hip.hipExtent(100, 4, 3)))
    done(hip.hipMemset(pitched.ptr, 0, pitched.pitch * 12))
    assert run(hip, "hipMemset3D", asynchronous, pitched, 7, hip.hipExtent(60, 2, 2)) == "hipSuccess"
    content = read(hip, pitched.ptr, pitched.pitch * 12).reshape(3, 4, pitched.pitch)
    assert (content[:2, :2, :60] == 7).all()
    content[:2, :2, :60] = 0
    assert not content.any()
    for extent in ((100, 5, 1), (100, 4, 4), (300, 1, 1)):
        assert (
            run(hip, "hipMemset3D", asynchronous, pitched, 7, hip.hipExtent(*extent))
            == "hipErrorInvalidValue"
        )
    assert run(hip, "hipMemset3D", asynchronous, pitched, 7, hip.hipExtent(0, 5, 1)) == "hipSuccess"
    assert run(hip, "hipMemset3D", asynchronous, None, 7, hip.hipExtent(1, 1, 1)) == "hipErrorInvalidValue"
    assert run(hip, "hipMemset3D", asynchronous, pitched, 7, None) == "hipErrorInvalidValue"
