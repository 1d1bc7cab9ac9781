"""hipMemcpy between every pair of ends that a program can pass, and the checks that it must not skip."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.hip_client import code, done, on
from peerlane import raw

N = 64
Enter = Callable[..., ModuleType]
Ends = dict[str, Any]
NAMES = (
    *("here", "there", "pinned", "managed"),
    *("registered", "bytearray", "numpy", "ctypes", "address"),
    *("c_void_p", "Pointer", "NDBuffer", "interface"),
)


class Interface:
    def __init__(self, array: Any) -> None:
        self.__cuda_array_interface__ = {
            "data": (int(array), False),
            "shape": (N,),
            "typestr": "|u1",
            "version": 3,
        }


def ends(hip: ModuleType) -> tuple[Ends, list[Any]]:
    """Return one end of each kind, and the objects that must live as long."""
    from peerlane.dialects.hip.binding.types import NDBuffer, Pointer

    blocks = [ctypes.create_string_buffer(N) for _ in range(3)]
    addresses = [ctypes.addressof(each) for each in blocks]
    registered = np.zeros(N, np.uint8)
    done(hip.hipHostRegister(registered, N, 0))
    return {
        "here": on(hip, 0, N),
        "there": on(hip, 1, N),
        "pinned": done(hip.hipHostMalloc(N, 0)),
        "managed": done(hip.hipMallocManaged(N, 1)),
        "registered": registered,
        "bytearray": bytearray(N),
        "numpy": np.zeros((8, 8), np.uint8),
        "ctypes": (ctypes.c_int * (N // 4))(),
        "address": addresses[0],
        "c_void_p": ctypes.c_void_p(addresses[1]),
        "Pointer": Pointer(addresses[2]),
        "NDBuffer": NDBuffer(on(hip, 0, N)),
        "interface": Interface(on(hip, 0, N)),
    }, blocks


def put(hip: ModuleType, end: Any, data: bytes) -> None:
    from peerlane.dialects.hip.binding.pointers import address_of

    source = np.frombuffer(data, np.uint8)
    raw.copy(address_of(end), source.ctypes.data, N)


def take(end: Any) -> bytes:
    from peerlane.dialects.hip.binding.pointers import address_of, read

    return read(address_of(end), N)


@pytest.mark.parametrize("is_registered", [False, True])
def test_hip_memcpy_every_pair_of_ends_copies_bytes(hip: ModuleType, is_registered: bool) -> None:
    end_pair, _kept = ends(hip)
    done(hip.hipSetDevice(0))
    if not is_registered:
        done(hip.hipHostUnregister(end_pair["registered"]))
    rng = np.random.default_rng(5)
    for dst in NAMES:
        for src in NAMES:
            if dst == src:
                continue
            data = rng.bytes(N)
            put(hip, end_pair[src], data)
            put(hip, end_pair[dst], bytes(N))
            done(hip.hipMemcpy(end_pair[dst], end_pair[src], N - 1, hip.hipMemcpyKind.hipMemcpyDefault))
            done(hip.hipDeviceSynchronize())
            assert take(end_pair[dst]) == data[:-1] + b"\0", (dst, src)
    if is_registered:
        done(hip.hipHostUnregister(end_pair["registered"]))


def test_hip_memcpy_beyond_size_of_either_end_returns_invalid_value(hip: ModuleType) -> None:
    end_pair, _kept = ends(hip)
    done(hip.hipSetDevice(0))
    bounded = set(NAMES) - {"address", "c_void_p", "Pointer"}
    for name in bounded:
        other = end_pair["here" if name != "here" else "NDBuffer"]
        large = done(hip.hipMalloc(2 * N))
        for dst, src in ((end_pair[name], large), (large, end_pair[name])):
            assert code(hip.hipMemcpy(dst, src, N + 1, hip.hipMemcpyKind.hipMemcpyDefault)) == (
                "hipErrorInvalidValue"
            ), name
        done(hip.hipMemcpy(end_pair[name], other, N, hip.hipMemcpyKind.hipMemcpyDefault))
    done(hip.hipHostUnregister(end_pair["registered"]))


@pytest.mark.parametrize("other", ["there", "pinned", "bytearray"])
def test_hip_memcpy_after_failed_work_returns_its_error_once(hip: ModuleType, other: str) -> None:
    from peerlane.dialects.hip.streams.stream import stream_of

    end_pair, _kept = ends(hip)
    done(hip.hipSetDevice(0))
    kind = hip.hipMemcpyKind.hipMemcpyDefault
    raw.copy(int(end_pair["here"]), 16, 8, stream=stream_of(0).neutral)  # nothing is mapped at 16
    assert code(hip.hipMemcpy(end_pair["here"], end_pair[other], N, kind)) == "hipErrorIllegalAddress"
    done(hip.hipMemcpy(end_pair["here"], end_pair[other], N, kind))
    done(hip.hipHostUnregister(end_pair["registered"]))


@pytest.mark.timeout(60)
def test_hip_memcpy_between_devices_follows_work_of_current_device_only(hip: ModuleType) -> None:
    from helpers.hip_client import held

    near, there, new = on(hip, 0, N), on(hip, 1, N, 1), on(hip, 1, N, 2)
    kind = hip.hipMemcpyKind.hipMemcpyDefault
    done(hip.hipDeviceSynchronize())
    stream = done(hip.hipStreamCreate())
    with held(stream):
        done(hip.hipMemcpyAsync(there, new, N, kind, stream))
        done(hip.hipSetDevice(0))
        done(hip.hipMemcpy(near, there, N, kind))
        assert take(near) == b"\1" * N
    content = bytearray(N)
    done(hip.hipMemcpy(content, there, N, kind))  # follows the work of device 1
    assert content == b"\2" * N
