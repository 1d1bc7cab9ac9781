"""``acl.rt``: copy descriptors in device memory, also rewritten by the device (facts/acl 5.2)."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.acl_calls import Held, content, filled, holding, in_thread, ok

pytestmark = pytest.mark.timeout(60)
INNER = 6
DATA = bytes(range(256))


@pytest.fixture
def size(acl: ModuleType) -> int:
    return int(ok(acl.rt.get_memcpy_desc_size(INNER)))


def test_acl_get_memcpy_desc_size_supports_only_inner_kind(acl: ModuleType, size: int) -> None:
    assert size == 64
    for kind, code in ((0, 207000), (3, 207000), (7, 207000), (8, 100000), (-1, 100000)):
        assert acl.rt.get_memcpy_desc_size(kind) == (0, code)


def described(acl: ModuleType, src: int, dst: int, count: int) -> int:
    """Return a descriptor in device memory."""
    desc = ok(acl.rt.malloc(ok(acl.rt.get_memcpy_desc_size(INNER)), 0))
    assert acl.rt.set_memcpy_desc(desc, INNER, src, dst, count, 0) == (desc, 0)
    return int(desc)


def test_acl_memcpy_async_with_desc_launched_twice_copies_current_bytes(acl: ModuleType) -> None:
    stream, source, target = ok(acl.rt.create_stream()), holding(acl, DATA), filled(acl, 256, 0)
    desc = described(acl, source + 16, target + 8, 200)
    for value in (5, 6):
        ok(acl.rt.memset_async(source, 256, value, 256, stream))
        ok(acl.rt.memcpy_async_with_desc(desc, INNER, stream))
        ok(acl.rt.synchronize_stream(stream))
        assert content(acl, target, 256) == bytes(8) + bytes([value] * 200) + bytes(48)


def test_acl_set_memcpy_desc_bad_arguments_return_documented_codes(
    acl: ModuleType, size: int, message: Callable[[], str]
) -> None:
    source, target = holding(acl, DATA), filled(acl, 256, 0)
    desc, pinned = ok(acl.rt.malloc(2 * size, 0)), ok(acl.rt.malloc_host(256))
    pageable = np.zeros(256, np.uint8).ctypes.data
    ok(acl.rt.set_device(1))
    far = filled(acl, 256, 0)
    ok(acl.rt.set_device(0))
    right: dict[str, int] = {
        "desc": desc,
        "kind": INNER,
        "src": source,
        "dst": target,
        "count": 256,
        "config": 0,
    }
    assert acl.rt.set_memcpy_desc(*right.values()) == (desc, 0)
    for name, value, code in [
        ("desc", 0, 100000),
        ("src", 0, 100000),
        ("dst", 0, 100000),
        ("kind", 3, 207000),
        ("kind", 8, 100000),
        ("config", 1, 100000),
        ("count", 0, 100000),
        ("count", 257, 107000),
        ("count", -1, 107000),
        ("desc", desc + 8, 107000),
        ("desc", desc + 2 * size, 107000),
        ("desc", pinned, 107000),
        ("src", pinned, 107000),
        ("dst", pageable, 107000),
        ("src", far, 107000),
        ("dst", far, 107000),
        ("src", source + 1, 107000),
        ("dst", target - 1, 107000),
    ]:
        assert acl.rt.set_memcpy_desc(*(right | {name: value}).values()) == (0, code), (name, value)
        assert f"acl.rt.set_memcpy_desc returned {code}" in message()
    beside = filled(acl, 256, 0)
    ok(acl.rt.set_device(1))  # now only the descriptor is memory of another device
    elsewhere = ok(acl.rt.malloc(size, 0))
    for desc_at, device in ((elsewhere, 0), (elsewhere, 1)):
        ok(acl.rt.set_device(device))
        refused = acl.rt.set_memcpy_desc(desc_at, INNER, source, beside, 256, 0)
        assert refused == (0, 107000)
        assert "src and dst are memory of device 0, the descriptor of device 1" in message()
    ok(acl.rt.set_device(0))
    assert in_thread(acl.rt.set_memcpy_desc, *right.values()) == (0, 107002)


def test_acl_memcpy_async_with_desc_bad_arguments_return_documented_codes(
    acl: ModuleType, size: int, message: Callable[[], str]
) -> None:
    stream = ok(acl.rt.create_stream())
    desc = described(acl, holding(acl, DATA), filled(acl, 256, 0), 256)
    pinned = ok(acl.rt.malloc_host(size))
    ok(acl.rt.set_device(1))
    elsewhere, far = ok(acl.rt.create_stream()), ok(acl.rt.malloc(size, 0))
    ok(acl.rt.set_device(0))
    cases: list[tuple[tuple[Any, ...], int]] = [
        ((0, INNER, stream), 100000),
        ((desc, 3, stream), 207000),
        ((desc, 8, stream), 100000),
        ((desc, INNER, 0), 100000),
        ((desc, INNER, 12345), 107000),
        ((desc, INNER, elsewhere), 107003),
        ((desc + 8, INNER, stream), 107000),
        ((pinned, INNER, stream), 107000),
        ((far, INNER, stream), 107000),
    ]
    for args, code in cases:
        assert acl.rt.memcpy_async_with_desc(*args) == code, args
        assert f"acl.rt.memcpy_async_with_desc returned {code}" in message()
    ok(acl.rt.memcpy_async_with_desc(desc, INNER, ok(acl.rt.ctx_get_current_default_stream())))
    ok(acl.rt.synchronize_device())


def test_acl_memcpy_async_with_desc_rewritten_by_queued_copy_uses_new_values(
    acl: ModuleType, size: int
) -> None:
    stream, source, target = ok(acl.rt.create_stream()), holding(acl, DATA), filled(acl, 256, 0)
    prepared = [described(acl, source + 32 * n, target + 32 * (7 - n), 32) for n in range(8)]
    launched = described(acl, source, target, 256)
    held = Held(acl, stream)
    for each in prepared:
        ok(acl.rt.memcpy_async(launched, size, each, size, 3, stream))
        ok(acl.rt.memcpy_async_with_desc(launched, INNER, stream))
    held.release()
    ok(acl.rt.synchronize_stream(stream))
    assert content(acl, target, 256) == b"".join(DATA[32 * n : 32 * n + 32] for n in reversed(range(8)))


def test_acl_memcpy_async_with_desc_corrupt_descriptor_fails_with_107000(acl: ModuleType, size: int) -> None:
    stream, source, target = ok(acl.rt.create_stream()), holding(acl, DATA), filled(acl, 256, 0)
    desc = described(acl, source, target, 256)
    ok(acl.rt.set_device(1))
    far = filled(acl, 256, 0)
    ok(acl.rt.set_device(0))
    pinned = ok(acl.rt.malloc_host(256))
    good = np.frombuffer(content(acl, desc, size), np.uint64)
    for word, value, words in [
        (0, 7, "magic"),
        (2, 2, "counts 2 entries"),
        (4, 0x40, "device or pinned"),
        (4, far, "another device"),
        (5, pinned, "another device"),
        (5, target + 1, "beyond"),
        (6, 257, "beyond"),
    ]:
        bad = good.copy()
        bad[word] = value
        ok(acl.rt.memcpy_async(desc, size, holding(acl, bad.tobytes()), size, 3, stream))
        ok(acl.rt.memcpy_async_with_desc(desc, INNER, stream))
        assert acl.rt.synchronize_stream(stream) == 107000, words
        assert words in acl.get_recent_err_msg()
        assert content(acl, target, 256) == bytes(256)
    ok(acl.rt.memcpy_async(desc, size, holding(acl, good.tobytes()), size, 3, stream))
    ok(acl.rt.memcpy_async_with_desc(desc, INNER, stream))
    ok(acl.rt.synchronize_stream(stream))
    assert content(acl, target, 256) == DATA


def test_acl_memcpy_async_with_desc_source_freed_before_start_fails_with_107000(acl: ModuleType) -> None:
    stream, source, target = ok(acl.rt.create_stream()), holding(acl, DATA), filled(acl, 256, 0)
    desc = described(acl, source, target, 256)
    held = Held(acl, stream)
    ok(acl.rt.memcpy_async_with_desc(desc, INNER, stream))
    ok(acl.rt.free(source))
    ok(acl.rt.free(desc))  # the launch keeps it alive
    held.release()
    assert acl.rt.synchronize_stream(stream) == 107000
    assert "freed" in acl.get_recent_err_msg()
    assert content(acl, target, 256) == bytes(256)
