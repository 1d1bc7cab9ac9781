"""Copies of HIP: the rows of facts/hip 3.3, and the copies that most programs use."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.hip_client import code, done, on, read
from peerlane import raw

Enter = Callable[..., ModuleType]
PAGE = 4096


@pytest.mark.parametrize("nbytes", [PAGE // 2, PAGE, 2 * PAGE])
@pytest.mark.parametrize("pair", [(0, 1), (1, 0)])
def test_hip_memcpy_peer_with_access_copies_bytes(
    hip: ModuleType, nbytes: int, pair: tuple[int, int]
) -> None:
    src, dst = on(hip, pair[0], nbytes, 7), on(hip, pair[1], nbytes)
    done(hip.hipDeviceEnablePeerAccess(pair[0], 0))
    done(hip.hipMemcpyPeer(dst, pair[1], src, pair[0], nbytes))
    done(hip.hipDeviceSynchronize())
    assert (read(hip, dst, nbytes) == 7).all()


@pytest.mark.parametrize("which", ["null", "per thread", "created", "of another device"])
def test_hip_memcpy_peer_async_on_any_stream_copies_bytes(hip: ModuleType, which: str) -> None:
    src, dst = on(hip, 0, PAGE, 9), on(hip, 1, PAGE)
    if which == "of another device":
        done(hip.hipSetDevice(0))
    stream = {"null": None, "per thread": 2}.get(which) or (
        done(hip.hipStreamCreate()) if which not in ("null", "per thread") else {"per thread": 2}.get(which)
    )
    done(hip.hipMemcpyPeerAsync(dst, 1, src, 0, PAGE, stream))
    done(hip.hipStreamSynchronize(stream))
    assert (read(hip, dst, PAGE) == 9).all()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_hip_memcpy_peer_bad_arguments_return_documented_codes(hip: ModuleType, asynchronous: bool) -> None:
    src, dst = on(hip, 0, PAGE, 1), on(hip, 1, PAGE)

    def copy(*words: Any) -> str:
        if asynchronous:
            return code(hip.hipMemcpyPeerAsync(*words, None))
        return code(hip.hipMemcpyPeer(*words))

    assert copy(None, 1, src, 0, PAGE) == "hipErrorInvalidValue"
    assert copy(dst, 1, None, 0, PAGE) == "hipErrorInvalidValue"
    assert copy(dst, 1, src, 0, PAGE + 1) == "hipErrorInvalidValue"
    assert copy(int(dst) + 1, 1, src, 0, PAGE) == "hipErrorInvalidValue"
    for bad in (-1, 2):
        assert copy(dst, bad, src, 0, PAGE) == "hipErrorInvalidDevice"
        assert copy(dst, 1, src, bad, PAGE) == "hipErrorInvalidDevice"
        assert copy(None, bad, None, 0, 0) == "hipErrorInvalidDevice"  # ids before anything else
    assert copy(dst, 1, src, 0, 0) == "hipSuccess"
    assert copy(None, 1, None, 0, 0) == "hipSuccess"
    assert not read(hip, dst, PAGE).any()
    assert copy(dst, 0, src, 1, PAGE) == "hipSuccess"  # ids need not match the pointers
    assert (read(hip, dst, PAGE) == 1).all()


def test_hip_peer_copies_strict_policy_without_access_returns_not_enabled(hip_on: Enter) -> None:
    from peerlane.dialects.hip import explain

    hip = hip_on(POLICY="peer_copies=strict")
    src, dst = on(hip, 0, PAGE, 3), on(hip, 1, PAGE)
    default = hip.hipMemcpyKind.hipMemcpyDefault
    for call, *words in (
        (hip.hipMemcpyPeer, dst, 1, src, 0, PAGE),
        (hip.hipMemcpyPeerAsync, dst, 1, src, 0, PAGE, None),
        (hip.hipMemcpy, dst, src, PAGE, default),
        (hip.hipMemcpyAsync, dst, src, PAGE, default, None),
    ):
        assert code(call(*words)) == "hipErrorPeerAccessNotEnabled"
        assert "devices 1 and 0 have no peer access enabled" in explain()
    assert not read(hip, dst, PAGE).any()
    done(hip.hipDeviceEnablePeerAccess(0, 0))
    done(hip.hipMemcpyPeer(dst, 1, src, 0, PAGE))
    done(hip.hipDeviceSynchronize())
    assert (read(hip, dst, PAGE) == 3).all()


def test_hip_memcpy_default_kind_copies_between_any_memory(hip: ModuleType) -> None:
    default = hip.hipMemcpyKind.hipMemcpyDefault
    a, b = on(hip, 0, PAGE, 5), on(hip, 1, PAGE)
    pinned = done(hip.hipHostMalloc(PAGE, 0))
    done(hip.hipMemcpy(pinned, a, PAGE, default))
    done(hip.hipMemcpy(b, pinned, PAGE, default))
    assert (read(hip, b, PAGE) == 5).all()
    target = bytearray(PAGE)
    done(hip.hipMemcpy(target, b, PAGE, default))
    assert target == b"\5" * PAGE
    done(hip.hipMemcpy(int(a), bytes(range(256)), 256, default))
    assert read(hip, a, PAGE).tobytes() == bytes(range(256)) + b"\5" * (PAGE - 256)


def test_hip_memcpy_beyond_host_buffer_returns_invalid_value(hip: ModuleType) -> None:
    a = on(hip, 0, PAGE, 5)
    small = np.zeros(16, np.uint8)
    kind = hip.hipMemcpyKind.hipMemcpyDefault
    for result in (
        hip.hipMemcpy(small, a, 17, kind),
        hip.hipMemcpy(a, small, 17, kind),
        hip.hipMemcpyAsync(small, a, 17, kind, None),
    ):
        assert code(result) == "hipErrorInvalidValue"
    done(hip.hipMemcpy(small, a, 16, kind))
    assert (small == 5).all()


def test_hip_get_last_error_failure_stays_until_read_and_before_7_does_not(hip_on: Enter) -> None:
    hip = hip_on()
    assert code(hip.hipFree(1 << 40)) == "hipErrorInvalidValue"
    done(hip.hipGetDeviceCount())
    assert code(hip.hipPeekAtLastError()) == "hipErrorInvalidValue"
    assert code(hip.hipExtGetLastError()) == "hipSuccess"
    assert code(hip.hipGetLastError()) == "hipErrorInvalidValue"
    assert code(hip.hipGetLastError()) == "hipSuccess"
    hip = hip_on(VERSION="6.4")
    assert code(hip.hipFree(1 << 40)) == "hipErrorInvalidValue"
    done(hip.hipGetDeviceCount())
    assert code(hip.hipGetLastError()) == "hipSuccess"


@pytest.mark.parametrize("stream", [(), (None,)])
def test_hip_memcpy_peer_locates_each_end_once(
    hip: ModuleType, monkeypatch: pytest.MonkeyPatch, stream: tuple[None, ...]
) -> None:
    src, dst = on(hip, 0, PAGE, 5), on(hip, 1, PAGE)
    asked: list[int] = []

    def counting(ask: Callable[[int], Any]) -> Callable[[int], Any]:
        def count(address: int) -> Any:
            asked.append(address)
            return ask(address)

        return count

    monkeypatch.setattr(raw, "locate", counting(raw.locate))
    monkeypatch.setattr(raw, "find", counting(raw.find))
    call = hip.hipMemcpyPeerAsync if stream else hip.hipMemcpyPeer
    done(call(dst, 1, src, 0, PAGE, *stream))
    assert asked == [int(dst), int(src)]
    monkeypatch.undo()
    done(hip.hipDeviceSynchronize())
    assert (read(hip, dst, PAGE) == 5).all()
