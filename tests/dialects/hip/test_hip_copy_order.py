"""Which earlier work a copy of HIP follows, and which work the host waits for (facts/hip 3.3, 3.8)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.hip_client import code, done, held, neutral, on, read
from peerlane import Host, raw
from peerlane.dialects.hip.streams.stream import create

Enter = Callable[..., ModuleType]
pytestmark = pytest.mark.timeout(60)
N = 256


def is_done(hip: ModuleType, device: int) -> bool:
    """Tell whether all work of the blocking streams of a device is done."""
    before = done(hip.hipGetDevice())
    done(hip.hipSetDevice(device))
    status = code(hip.hipStreamQuery(None))
    done(hip.hipSetDevice(before))
    assert status in ("hipSuccess", "hipErrorNotReady")
    return status == "hipSuccess"


def kind(hip: ModuleType, name: str = "Default") -> Any:
    return hip.hipMemcpyKind[f"hipMemcpy{name}"]


@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("busy", [(0, 1), (0,), (1,)])
def test_hip_memcpy_peer_follows_work_of_both_devices_and_does_not_wait(
    hip: ModuleType, busy: tuple[int, ...], current: int
) -> None:
    src, new, dst = on(hip, 0, N, 1), on(hip, 0, N, 2), on(hip, 1, N)
    streams = {}
    for device in (0, 1):
        done(hip.hipSetDevice(device))
        streams[device] = done(hip.hipStreamCreate())
    done(hip.hipSetDevice(current))
    with held(*(streams[each] for each in busy)):
        if 0 in busy:
            done(hip.hipMemcpyAsync(src, new, N, kind(hip), streams[0]))
        if 1 in busy:
            done(hip.hipMemcpyAsync(dst, new, N, kind(hip), streams[1]))
        done(hip.hipMemcpyPeer(dst, 1, src, 0, N))
        assert not is_done(hip, 1)
        assert not is_done(hip, 0)
        if 1 in busy:  # later work of both devices follows the copy
            done(hip.hipMemcpyAsync(src, on_stream_of_0(hip, 9), N, kind(hip), streams[0]))
    for device in (0, 1):
        done(hip.hipSetDevice(device))
        done(hip.hipDeviceSynchronize())
    assert (read(hip, dst, N) == (2 if 0 in busy else 1)).all()


def on_stream_of_0(hip: ModuleType, fill: int) -> Any:
    """Return pinned memory with a value."""
    memory = done(hip.hipHostMalloc(N, 0))
    host = np.asarray(type(done(hip.hipMalloc(8)))(memory).configure(shape=(N,), _force=True))
    host[:] = fill
    return memory


def test_hip_memcpy_peer_policy_current_ignores_work_of_other_device(hip_on: Enter) -> None:
    hip = hip_on(POLICY="memcpy_peer=current")
    src, dst = on(hip, 0, N, 1), on(hip, 1, N)
    stream = done(hip.hipStreamCreate())
    done(hip.hipSetDevice(0))
    with held(stream):  # a stream of device 1, which the copy ignores
        done(hip.hipMemcpyPeer(dst, 1, src, 0, N))
        done(hip.hipDeviceSynchronize())
        assert raw.view(int(dst), N) == b"\1" * N


def test_hip_memcpy_peer_async_follows_only_its_stream(hip: ModuleType) -> None:
    src, dst = on(hip, 0, N, 1), on(hip, 1, N)
    busy, free = create(1), create(1)
    with held(busy):
        done(hip.hipMemcpyPeerAsync(dst, 1, src, 0, N, free))
        done(hip.hipStreamSynchronize(free))
        assert raw.view(int(dst), N) == b"\1" * N


def test_hip_memcpy_within_device_returns_before_the_copy_runs(hip: ModuleType) -> None:
    a, b, c = on(hip, 0, N, 1), on(hip, 0, N, 2), on(hip, 0, N, 3)
    stream = done(hip.hipStreamCreate())
    with held(stream):
        done(hip.hipMemcpyAsync(b, a, N, kind(hip), stream))
        done(hip.hipMemcpy(c, b, N, kind(hip, "DeviceToDevice")))
        assert not is_done(hip, 0)
    assert (read(hip, c, N) == 1).all()


def test_hip_memcpy_within_other_device_returns_before_the_copy_runs(hip: ModuleType) -> None:
    a, b, c = on(hip, 1, N, 1), on(hip, 1, N, 2), on(hip, 1, N, 3)
    stream = done(hip.hipStreamCreate())
    done(hip.hipSetDevice(0))
    with held(stream):
        done(hip.hipMemcpyAsync(b, a, N, kind(hip), stream))
        done(hip.hipMemcpy(c, b, N, kind(hip)))
        assert not is_done(hip, 0)
        assert not is_done(hip, 1)
    done(hip.hipDeviceSynchronize())
    assert raw.view(int(c), N) == b"\1" * N


def waits(call: Callable[[], Any], stream: Any) -> None:
    """Check that a call does not return while a stream is held, and returns after it."""
    results: list[Any] = []
    with held(stream):
        thread = threading.Thread(target=lambda: results.append(call()))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
    thread.join(20)
    assert [code(each) for each in results] == ["hipSuccess"]


def test_hip_memcpy_within_device_sync_memops_on_both_ends_waits(hip: ModuleType) -> None:
    a, b = on(hip, 0, N, 1), on(hip, 0, N)
    sync = hip.hipPointer_attribute.HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS
    for each in (a, b):
        done(hip.hipPointerSetAttribute(np.array([1], np.uint32), sync, each))
    waits(lambda: hip.hipMemcpy(b, a, N, kind(hip)), done(hip.hipStreamCreate()))


@pytest.mark.parametrize("which", ["to the host", "from the host", "pinned", "between devices"])
def test_hip_memcpy_with_host_or_other_device_waits_for_blocking_streams(hip: ModuleType, which: str) -> None:
    far, near = on(hip, 1, N, 4), on(hip, 0, N, 1)
    target = np.zeros(N, np.uint8)
    ends = {
        "to the host": (target, near),
        "from the host": (near, target),
        "pinned": (done(hip.hipHostMalloc(N, 0)), near),
        "between devices": (near, far),
    }[which]
    waits(lambda: hip.hipMemcpy(*ends, N, kind(hip)), done(hip.hipStreamCreate()))


def test_hip_memcpy_does_not_wait_for_non_blocking_streams(hip: ModuleType) -> None:
    near, target = on(hip, 0, N, 1), np.zeros(N, np.uint8)
    with held(create(1)):
        done(hip.hipMemcpy(target, near, N, kind(hip)))
    assert (target == 1).all()


def test_hip_memcpy_from_other_device_follows_its_null_stream(hip: ModuleType) -> None:
    far, target = on(hip, 1, N, 1), np.zeros(N, np.uint8)
    stream = done(hip.hipStreamCreate())
    done(hip.hipSetDevice(0))
    done(hip.hipMemcpy(target, far, N, kind(hip)))
    waits(lambda: hip.hipMemcpy(target, far, N, kind(hip)), stream)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_hip_memcpy_to_pageable_memory_on_blocking_stream_follows_null_stream(
    hip: ModuleType, asynchronous: bool
) -> None:
    a, b = on(hip, 0, N, 1), on(hip, 0, N, 2)
    target, stream = np.zeros(N, np.uint8), done(hip.hipStreamCreate())
    call = hip.hipMemcpyAsync if asynchronous else hip.hipMemcpyWithStream
    results: list[Any] = []
    with held(0):
        done(hip.hipMemcpyAsync(b, a, N, kind(hip), None))
        thread = threading.Thread(target=lambda: results.append(call(target, b, N, kind(hip), stream)))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
    thread.join(20)
    assert [code(each) for each in results] == ["hipSuccess"]
    assert (target == 1).all()


def test_hip_memcpy_with_stream_is_complete_on_return(hip: ModuleType) -> None:
    a, b = on(hip, 0, N, 1), on(hip, 0, N)
    stream = done(hip.hipStreamCreate())
    waits(lambda: hip.hipMemcpyWithStream(b, a, N, kind(hip), stream), stream)
    assert raw.view(int(b), N) == b"\1" * N


def test_hip_memcpy_fast_path_sees_work_submitted_by_other_thread(hip: ModuleType) -> None:
    """Each round another thread queues a copy; the fast copy of this thread, called after it, follows it."""
    a, b, c = on(hip, 0, N), on(hip, 0, N), on(hip, 0, N)
    pinned = done(hip.hipHostMalloc(N, 0))
    stream = done(hip.hipStreamCreate())
    go, answered = threading.Barrier(2), threading.Barrier(2)
    wrong: list[int] = []

    def submit() -> None:
        done(hip.hipSetDevice(0))
        for number in range(1, 200):
            go.wait(20)
            done(hip.hipMemsetAsync(a, number, N, stream))
            done(hip.hipMemcpyAsync(b, a, N, kind(hip), stream))
            answered.wait(20)

    thread = threading.Thread(target=submit)
    thread.start()
    for number in range(1, 200):
        go.wait(20)
        done(hip.hipMemcpy(c, c, N, kind(hip)))  # at the same time
        hip.hipDeviceSynchronize()
        answered.wait(20)
        done(hip.hipMemcpy(pinned, b, N, kind(hip)))
        if bytes(raw.view(int(pinned), N)) != bytes([number % 256]) * N:
            wrong.append(number)
    thread.join(20)
    assert not wrong


def test_hip_memcpy_with_nothing_queued_takes_fast_path(
    hip: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    from peerlane.dialects.gpu.copies import Copies

    a, b = on(hip, 0, 8, 1), on(hip, 0, 8)
    read(hip, a, 8)
    monkeypatch.setattr(Copies, "move_now", None)
    done(hip.hipMemcpy(b, a, 8, kind(hip)))
    assert raw.view(int(b), 8) == b"\1" * 8
    with pytest.raises(TypeError):
        hip.hipMemcpy(on_stream_of_0(hip, 1), np.zeros(8), 8, kind(hip))


def test_hip_memcpy_after_failed_null_stream_work_returns_its_error_once(hip: ModuleType) -> None:
    """On every schedule, fast copies do not hide an asynchronous failure."""
    a, b = on(hip, 0, 8, 1), on(hip, 0, 8)
    with Host().allocate(8) as word:
        word.fill(0)
        raw.wait_value(word.address, 1, stream=neutral(0), timeout=0.01)
        assert code(hip.hipMemcpy(np.zeros(8), b, 8, kind(hip))) == "hipErrorLaunchTimeOut"
        done(hip.hipMemcpy(b, a, 8, kind(hip)))


@pytest.mark.parametrize("name", ["HostToDevice", "DeviceToHost", "DeviceToDevice", "DeviceToDeviceNoCU"])
def test_hip_memcpy_device_kind_with_two_host_ends_returns_invalid_value(hip: ModuleType, name: str) -> None:
    a, b = np.ones(8, np.uint8), np.zeros(8, np.uint8)
    for call, *rest in ((hip.hipMemcpy,), (hip.hipMemcpyAsync, None), (hip.hipMemcpyWithStream, None)):
        assert code(call(b, a, 8, kind(hip, name), *rest)) == "hipErrorInvalidValue"
        assert code(call(b.ctypes.data, a.ctypes.data, 8, kind(hip, name), *rest)) == "hipErrorInvalidValue"
    assert not b.any()
    for name in ("HostToHost", "Default"):
        b[:] = 0
        done(hip.hipMemcpy(b, a, 8, kind(hip, name)))
        assert b.all()


@pytest.mark.parametrize("name", ["HostToHost", "HostToDevice", "DeviceToHost", "DeviceToDevice", "Default"])
def test_hip_memcpy_wrong_kind_copies_by_addresses(hip: ModuleType, name: str) -> None:
    near, target = on(hip, 0, 8, 7), np.zeros(8, np.uint8)
    done(hip.hipMemcpy(target, near, 8, kind(hip, name)))
    assert (target == 7).all()


@pytest.mark.parametrize("call", ["hipMemcpyHtoD", "hipMemcpyDtoH", "hipMemcpyDtoD"])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_hip_memcpy_htod_dtoh_dtod_copy_and_refuse_bad_arguments(
    hip: ModuleType, call: str, asynchronous: bool
) -> None:
    a, b = on(hip, 0, N, 7), on(hip, 1, N)
    x, y = np.full(N, 9, np.uint8), np.zeros(N, np.uint8)
    dst, src, value = {
        "hipMemcpyHtoD": (b, x, 9),
        "hipMemcpyDtoH": (y, a, 7),
        "hipMemcpyDtoD": (b, a, 7),
    }[call]
    if asynchronous:
        done(getattr(hip, f"{call}Async")(dst, src, N, None))
        done(hip.hipStreamSynchronize(None))
    else:
        done(getattr(hip, call)(dst, src, N))
    assert (read(hip, dst, N) == value).all()
    function, rest = getattr(hip, f"{call}Async" if asynchronous else call), [None] * asynchronous
    assert code(function(None, src, N, *rest)) == "hipErrorInvalidValue"
    assert code(function(dst, None, N, *rest)) == "hipErrorInvalidValue"
    assert code(function(dst, src, N + 1, *rest)) == "hipErrorInvalidValue"
    assert code(function(None, None, 0, *rest)) == "hipSuccess"
    if asynchronous:
        assert code(function(dst, src, N, 12345)) == "hipErrorContextIsDestroyed"
