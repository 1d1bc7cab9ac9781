"""``acl.rt``: copies and fills on streams."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.acl_calls import MIB, Held, both_directions, content, filled, holding, in_thread, ok

pytestmark = pytest.mark.timeout(60)
COPIES = ["memcpy_async", "memcpy_async_with_condition"]
DATA = bytes(range(64))


@pytest.mark.parametrize("name", COPIES)
def test_acl_memcpy_async_bad_arguments_return_codes_in_vendor_order(
    name: str, acl: ModuleType, message: Callable[[], str]
) -> None:
    copy = getattr(acl.rt, name)
    stream, device = ok(acl.rt.create_stream()), filled(acl, 64, 1)
    assert copy(0, 0, 0, 0, 99, 12345) == 0
    for args, code in [
        ((0, 0, device, 8, 99, 12345), 100000),
        ((device, 0, 0, 8, 99, 12345), 100000),
        ((device, 0, device, 8, 6, 12345), 100000),
        ((device, 0, device, 8, -1, 12345), 100000),
        ((device, 0, device, 8, 3, 12345), 107000),
        ((device, 7, device, 8, 3, 12345), 107000),
        ((device, 8, device + 8, 8, 3, 12345), 107000),
        ((device, 65, device - 1, 65, 3, stream), 107000),
    ]:
        assert copy(*args) == code
        assert f"acl.rt.{name} returned {code}" in message()
    assert copy(device, 8, device, 8, 3, 12345) == 0
    assert in_thread(copy, device, 8, device + 8, 8, 3, stream) == 107002
    ok(acl.rt.synchronize_stream(stream))
    assert content(acl, device, 64) == bytes([1] * 64)


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("offset", [0, 16])
def test_acl_memcpy_async_on_device_and_with_pinned_memory_moves_bytes(
    name: str, offset: int, acl: ModuleType
) -> None:
    copy, stream = getattr(acl.rt, name), ok(acl.rt.create_stream())
    source, target, host = holding(acl, DATA), filled(acl, 64, 0), ok(acl.rt.malloc_host(64))
    size = 64 - offset
    ok(copy(target + offset, size, source + offset, size, 3, stream))
    ok(copy(host + offset, size, target + offset, size, 2, stream))
    ok(acl.rt.synchronize_stream(stream))  # the next copy is on another stream
    ok(copy(target + offset, size, host + offset, size, 1, 0))
    ok(acl.rt.synchronize_device())
    assert acl.util.ptr_to_bytes(host + offset, size) == DATA[offset:]


RIGHT_KINDS = {"device to device": {3, 4}, "pinned to device": {1, 4, 5}, "device to pinned": {2, 4}}
RIGHT_KINDS |= {"pageable to device": {1, 4, 5}, "device to pageable": {2, 4}}
RIGHT_KINDS |= {"registered to device": {1, 4, 5}, "device to registered": {2, 4}}


@pytest.mark.parametrize("policy", [None, "kinds=checked", "kinds=corrected"])
@pytest.mark.parametrize("ends", RIGHT_KINDS)
@pytest.mark.parametrize("name", COPIES)
def test_acl_memcpy_async_kind_against_addresses_returns_107000_unless_policy_corrects(
    name: str, ends: str, policy: str | None, acl: ModuleType, monkeypatch: pytest.MonkeyPatch, message: Any
) -> None:
    monkeypatch.delenv("PEERLANE_ACL_POLICY", raising=False)
    if policy:
        monkeypatch.setenv("PEERLANE_ACL_POLICY", policy)
    stream, pages = ok(acl.rt.create_stream()), [np.zeros(64, np.uint8) for _ in range(2)]
    registered = np.zeros(8192, np.uint8)
    aligned = registered.ctypes.data + -registered.ctypes.data % 4096
    ok(acl.rt.host_register(aligned, 4096, 0))
    memory = {"pinned": lambda: ok(acl.rt.malloc_host(64)), "pageable": lambda: pages[0].ctypes.data}
    memory |= {"registered": lambda: aligned, "device": lambda: ok(acl.rt.malloc(64, 0))}
    src, dst = (memory[each]() for each in ends.split(" to "))
    for kind in range(6):
        ok(acl.rt.memcpy(src, 64, acl.util.bytes_to_ptr(DATA), 64, 4))
        ok(acl.rt.memcpy(dst, 64, acl.util.bytes_to_ptr(bytes(64)), 64, 4))
        is_right = kind in RIGHT_KINDS[ends] or policy == "kinds=corrected"
        assert getattr(acl.rt, name)(dst, 64, src, 64, kind, stream) == (0 if is_right else 107000), kind
        ok(acl.rt.synchronize_stream(stream))
        taken = np.zeros(64, np.uint8)
        ok(acl.rt.memcpy(taken.ctypes.data, 64, dst, 64, 4))
        assert taken.tobytes() == (DATA if is_right else bytes(64)), kind
        if not is_right:
            right = min(RIGHT_KINDS[ends] - {4})
            text = message()
            assert f"kind {kind} (" in text and f"pass kind {right} (" in text
            assert "kinds=corrected" in text and "EE1001" in text
    ok(acl.rt.host_unregister(aligned))


def test_acl_memcpy_async_device_memory_as_host_names_both_ends_and_the_kind(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    a, b = filled(acl, 64, 1), filled(acl, 64, 2)
    assert acl.rt.memcpy_async(a, 64, b, 64, 1, 0) == 107000
    text = message()
    assert "kind 1 (H2D) copies from host memory to device memory" in text
    assert "src is device memory (" in text and "dst is device memory (" in text
    assert "pass kind 3 (D2D), or 4 to let the addresses decide" in text
    assert acl.rt.memcpy(a, 64, b, 64, 1) == 0  # a call that waits goes by the addresses


def test_acl_memcpy_async_policy_of_other_value_is_refused_with_the_valid_ones(
    acl: ModuleType, monkeypatch: pytest.MonkeyPatch, message: Callable[[], str]
) -> None:
    monkeypatch.setenv("PEERLANE_ACL_POLICY", "kinds=any")
    a, b = filled(acl, 64, 1), filled(acl, 64, 2)
    ok(acl.rt.memcpy_async(a, 64, b, 64, 3, 0))
    assert acl.rt.memcpy_async(a, 64, b, 64, 1, 0) != 0
    assert "valid are kinds=checked, kinds=corrected" in message()


@pytest.mark.parametrize("name", COPIES)
def test_acl_memcpy_async_host_to_host_returns_207000(
    name: str, acl: ModuleType, message: Callable[[], str]
) -> None:
    stream = ok(acl.rt.create_stream())
    pinned, other = ok(acl.rt.malloc_host(64)), ok(acl.rt.malloc_host(64))
    pageable = np.zeros(64, np.uint8)
    for dst, src in ((pinned, other), (pinned, pageable.ctypes.data), (pageable.ctypes.data, pinned)):
        assert getattr(acl.rt, name)(dst, 64, src, 64, 0, stream) == 207000
        assert "both host memory" in message()
        assert getattr(acl.rt, name)(dst, 64, src, 64, 4, stream) == 207000
        assert getattr(acl.rt, name)(dst, 64, src, 64, 1, stream) == 107000
        assert "copy on the host" in message()


def test_acl_memcpy_async_pageable_memory_waits_for_stream_and_completes(acl: ModuleType) -> None:
    stream, device, host = ok(acl.rt.create_stream()), filled(acl, 64, 0), np.zeros(64, np.uint8)
    ok(acl.rt.memset_async(device, 64, 3, 64, stream))
    ok(acl.rt.memcpy_async(host.ctypes.data, 64, device, 64, 2, stream))
    assert host.tobytes() == bytes([3] * 64)  # complete on return
    host[:] = 4
    ok(acl.rt.memcpy_async(device, 64, host.ctypes.data, 64, 1, stream))
    host[:] = 5  # the program may reuse it at once
    assert content(acl, device, 64) == bytes([4] * 64)
    ok(acl.rt.memcpy2d_async(host.ctypes.data, 8, device, 16, 8, 4, 2, stream))
    assert host.tobytes() == bytes([4] * 32 + [5] * 32)


def test_acl_memcpy_async_pageable_after_failed_operation_copies_nothing(acl: ModuleType) -> None:
    ok(acl.rt.set_device(1))
    far = filled(acl, 64, 1)
    ok(acl.rt.set_device(0))
    stream, device, host = ok(acl.rt.create_stream()), filled(acl, 64, 0), np.full(64, 9, np.uint8)
    ok(acl.rt.memcpy_async(device, 64, far, 64, 3, stream))
    assert acl.rt.memcpy_async(device, 64, host.ctypes.data, 64, 1, stream) == 507899
    assert content(acl, device, 64) == bytes(64)
    ok(acl.rt.memcpy_async(device, 64, host.ctypes.data, 64, 1, stream))
    assert content(acl, device, 64) == bytes([9] * 64)


def test_acl_memcpy_async_wild_host_pointer_returns_107000(acl: ModuleType) -> None:
    stream, device = ok(acl.rt.create_stream()), filled(acl, 64, 0)
    assert acl.rt.memcpy_async(device, 64, 0x40, 64, 1, stream) == 107000
    assert acl.rt.memcpy_async(0x40, 64, device, 64, 2, stream) == 107000
    ok(acl.rt.synchronize_stream(stream))


@pytest.mark.parametrize("name", COPIES)
def test_acl_async_calls_on_stream_of_other_device_return_107003(
    name: str, acl: ModuleType, message: Callable[[], str]
) -> None:
    device, other = filled(acl, 64, 1), filled(acl, 64, 0)
    stream = ok(acl.rt.create_stream())
    ok(acl.rt.synchronize_stream(0))
    ok(acl.rt.set_device(1))
    assert getattr(acl.rt, name)(other, 64, device, 64, 3, stream) == 107003
    assert "belongs to device 0, and device 1 is current" in message()
    assert acl.rt.memset_async(other, 64, 3, 64, stream) == 107003
    assert acl.rt.memcpy2d_async(other, 8, device, 8, 8, 8, 3, stream) == 107003
    ok(acl.rt.set_device(0))
    assert content(acl, other, 64) == bytes(64)


def test_acl_memcpy_async_between_devices_needs_peer_access_in_both_directions(acl: ModuleType) -> None:
    stream, target = ok(acl.rt.create_stream()), filled(acl, 64, 0)
    ok(acl.rt.set_device(1))
    source = holding(acl, DATA)
    ok(acl.rt.set_device(0))
    ok(acl.rt.memcpy_async(target, 64, source, 64, 3, stream))
    assert acl.rt.synchronize_stream(stream) == 507899
    assert "device_enable_peer_access" in acl.get_recent_err_msg()
    ok(acl.rt.device_enable_peer_access(1, 0))
    ok(acl.rt.memcpy2d_async(target, 8, source, 8, 8, 8, 3, stream))
    assert acl.rt.synchronize_stream(stream) == 507899
    assert content(acl, target, 64) == bytes(64)
    both_directions(acl)
    ok(acl.rt.memcpy_async(target, 64, source, 64, 3, stream))
    ok(acl.rt.synchronize_stream(stream))
    assert content(acl, target, 64) == DATA


def test_acl_memcpy_async_on_310p_without_p2p_policy_fails_with_507899(
    enter: Callable[[str], ModuleType],
) -> None:
    acl = enter("devices=2,memory=64MiB,profile=ascend-310p")
    both_directions(acl)
    stream = ok(acl.rt.create_stream())
    for policy, code in ((0, 507899), (3, 0)):
        target = ok(acl.rt.malloc(64, policy))
        ok(acl.rt.memset(target, 64, 0, 64))
        ok(acl.rt.set_device(1))
        source = ok(acl.rt.malloc(64, policy))
        ok(acl.rt.memset(source, 64, 9, 64))
        ok(acl.rt.set_device(0))
        ok(acl.rt.memcpy_async(target, 64, source, 64, 3, stream))
        assert acl.rt.synchronize_stream(stream) == code
        assert content(acl, target, 64) == bytes([0 if code else 9] * 64)
    assert "policy" in acl.get_recent_err_msg()


def test_acl_memcpy_async_source_freed_while_queued_copies_and_next_call_fails(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    stream, source, target = ok(acl.rt.create_stream()), holding(acl, DATA), filled(acl, 64, 0)
    held = Held(acl, stream)
    ok(acl.rt.memcpy_async(target, 64, source, 64, 3, stream))
    ok(acl.rt.free(source))
    for _ in range(64):
        filled(acl, 64, 0xEE)
    assert acl.rt.memcpy_async(target, 64, source, 64, 3, stream) == 107000
    assert "freed memory" in message()
    held.release()
    ok(acl.rt.synchronize_stream(stream))
    assert content(acl, target, 64) == DATA


def test_acl_memset_async_fills_low_byte_and_refuses_bad_arguments(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    stream, device = ok(acl.rt.create_stream()), filled(acl, 64, 0)
    pinned, pageable = ok(acl.rt.malloc_host(64)), np.zeros(64, np.uint8)
    assert acl.rt.memset_async(0, 0, 1, 0, 12345) == 0
    for args, code in [
        ((0, 0, 1, 8, 12345), 100000),
        ((device, 7, 1, 8, 12345), 107000),
        ((device, 8, 1, 8, 12345), 107000),
        ((device, 65, 1, 65, stream), 107000),
        ((pageable.ctypes.data, 8, 1, 8, stream), 107000),
        ((0x40, 8, 1, 8, stream), 107000),
    ]:
        assert acl.rt.memset_async(*args) == code
        assert f"acl.rt.memset_async returned {code}" in message()
    assert in_thread(acl.rt.memset_async, device, 64, 1, 64, stream) == 107002
    ok(acl.rt.memset_async(device, 64, 0x1FF, 32, stream))
    ok(acl.rt.memset_async(pinned, 64, 7, 64, stream))
    ok(acl.rt.synchronize_stream(stream))
    assert content(acl, device, 64) == bytes([0xFF] * 32 + [0] * 32)
    assert acl.util.ptr_to_bytes(pinned, 64) == bytes([7] * 64)


RECTANGLES: list[tuple[tuple[Any, ...], int]] = [
    ((0, 8, 64, 8, 8, 1, 3), 100000),
    ((64, 8, 0, 8, 8, 1, 3), 100000),
    ((64, 7, 64, 8, 8, 1, 3), 100000),
    ((64, 8, 64, 7, 8, 1, 3), 100000),
    ((64, 8, 64, 8, 8, 1, 0), 100000),
    ((64, 8, 64, 8, 8, 1, 5), 100000),
    ((64, 5_000_001, 64, 5_000_001, 5_000_001, 1, 3), 107000),
    ((64, 8, 64, 8, 8, 5_242_881, 3), 107000),
    ((64, 1 << 63, 64, 8, 8, 5, 3), 107000),
    ((64, 8, 64, 8, 8, 1, 3), 107000),
]


@pytest.mark.parametrize(("args", "code"), RECTANGLES)
def test_acl_memcpy2d_async_bad_arguments_return_documented_codes(
    args: tuple[Any, ...], code: int, acl: ModuleType, message: Callable[[], str]
) -> None:
    assert acl.rt.memcpy2d_async(*args, 12345) == code
    assert f"acl.rt.memcpy2d_async returned {code}" in message()
    assert acl.rt.memcpy2d_async(0, 0, 0, 0, 0, 1, 99, 12345) == 0
    assert acl.rt.memcpy2d_async(0, 0, 0, 0, 1, 0, 99, 12345) == 0


def test_acl_memcpy2d_async_copies_rows_a_pitch_apart(acl: ModuleType) -> None:
    stream, source, target = ok(acl.rt.create_stream()), holding(acl, DATA), filled(acl, 64, 0)
    ok(acl.rt.memcpy2d_async(target, 16, source, 8, 4, 4, 3, stream))
    ok(acl.rt.synchronize_stream(stream))
    wanted = bytearray(64)
    for row in range(4):
        wanted[row * 16 : row * 16 + 4] = DATA[row * 8 : row * 8 + 4]
    assert content(acl, target, 64) == bytes(wanted)
    pinned = ok(acl.rt.malloc_host(64))
    assert acl.rt.memcpy2d_async(pinned, 8, pinned + 32, 8, 8, 4, 1, stream) == 207000


def test_acl_async_copies_on_four_streams_equal_sequential_model(acl: ModuleType) -> None:
    drawn = random.Random(20)
    size, streams = 4096, [ok(acl.rt.create_stream()) for _ in range(4)]
    areas = [filled(acl, size, number) for number in range(len(streams))]
    model = [bytearray([number]) * size for number in range(len(streams))]
    for _ in range(2000):
        at = drawn.randrange(len(streams))
        src, dst, count = drawn.randrange(size), drawn.randrange(size), drawn.randrange(1, 512)
        count = min(count, size - src, size - dst)
        if drawn.random() < 0.3:
            value = drawn.randrange(256)
            ok(acl.rt.memset_async(areas[at] + dst, count, value, count, streams[at]))
            model[at][dst : dst + count] = bytes([value]) * count
        else:
            ok(acl.rt.memcpy_async(areas[at] + dst, count, areas[at] + src, count, 3, streams[at]))
            model[at][dst : dst + count] = bytes(model[at][src : src + count])
    ok(acl.rt.synchronize_device())
    assert [content(acl, area, size) for area in areas] == [bytes(each) for each in model]


def test_acl_async_copies_large_and_small_on_one_stream_keep_order(acl: ModuleType) -> None:
    stream, source, target = ok(acl.rt.create_stream()), filled(acl, 8 * MIB, 1), filled(acl, 8 * MIB, 0)
    for value in range(4):
        ok(acl.rt.memset_async(source + value * 64, 64, value, 64, stream))
        ok(acl.rt.memcpy_async(target, 8 * MIB, source, 8 * MIB, 3, stream))
        ok(acl.rt.memset_async(target + 8 * MIB - 8, 8, value, 8, stream))
    ok(acl.rt.synchronize_stream(stream))
    wanted = bytearray([1]) * (8 * MIB)
    for value in range(4):
        wanted[value * 64 : value * 64 + 64] = bytes([value] * 64)
    wanted[-8:] = bytes([3] * 8)
    assert content(acl, target, 8 * MIB) == bytes(wanted)
