"""``acl.rt``: words of memory that streams write and wait for."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from helpers.acl_calls import content, filled, holding, in_thread, ok

pytestmark = pytest.mark.timeout(60)
ALL = (1 << 64) - 1
GEQ, EQ, AND, NOR = range(4)


def word(acl: ModuleType, pointer: int) -> int:
    return int.from_bytes(content(acl, pointer, 8), "little")


def test_acl_value_write_happens_in_stream_order(acl: ModuleType) -> None:
    pointer, stream = filled(acl, 64, 0), ok(acl.rt.create_stream())
    for value in (5, ALL, 1 << 63):
        ok(acl.rt.memset_async(pointer, 64, 9, 64, stream))
        ok(acl.rt.value_write(pointer + 8, value, 0, stream))
        ok(acl.rt.synchronize_stream(stream))
        assert (word(acl, pointer), word(acl, pointer + 8)) == (
            int.from_bytes(bytes([9]) * 8, "little"),
            value,
        )
    ok(acl.rt.value_write(pointer, (1 << 64) + 3, 0, 0))
    ok(acl.rt.synchronize_stream(0))
    assert word(acl, pointer) == 3


@pytest.mark.parametrize(
    ("before", "value", "flag", "after"),
    [
        (0, 5, GEQ, 5),
        (0, 5, GEQ, 6),
        (ALL, 0, GEQ, 0),  # -1 is not at least 0
        (ALL - 2, ALL, GEQ, 1),  # a counter that wrapped
        (4, 5, EQ, 5),
        (0b101, 0b010, AND, 0b110),
        (ALL - 1, 1, NOR, 0),
    ],
)
def test_acl_value_wait_holds_stream_until_condition_is_met(
    acl: ModuleType, before: int, value: int, flag: int, after: int
) -> None:
    at = holding(acl, before.to_bytes(8, "little"))
    target = filled(acl, 8, 0)
    waiting, writing = ok(acl.rt.create_stream()), ok(acl.rt.create_stream())
    ok(acl.rt.value_wait(at, value, flag, waiting))
    ok(acl.rt.memset_async(target, 8, 1, 8, waiting))
    assert acl.rt.synchronize_stream_with_timeout(waiting, 50) == 507046
    assert content(acl, target, 8) == bytes(8)
    ok(acl.rt.value_write(at, after, 0, writing))
    ok(acl.rt.synchronize_stream(waiting))
    assert content(acl, target, 8) == bytes([1]) * 8


def test_acl_value_calls_pinned_word_succeed_and_pageable_word_return_107000(acl: ModuleType) -> None:
    pinned, stream = ok(acl.rt.malloc_host(8)), ok(acl.rt.create_stream())
    ok(acl.rt.value_write(pinned, 8, 0, stream))
    ok(acl.rt.value_wait(pinned, 8, EQ, stream))
    ok(acl.rt.synchronize_stream(stream))
    ordinary = acl.util.bytes_to_ptr(b"0123456789abcdef") // 8 * 8 + 8
    for call in (acl.rt.value_write, acl.rt.value_wait):
        assert call(ordinary, 1, 0, stream) == 107000
        assert "which no stream watches" in acl.get_recent_err_msg()


@pytest.mark.parametrize("call", ["value_write", "value_wait"])
def test_acl_value_calls_bad_arguments_return_documented_codes(acl: ModuleType, call: str) -> None:
    pointer = filled(acl, 16, 0)
    value = getattr(acl.rt, call)
    assert value(pointer + 4, 1, 0, 0) == 107000
    assert value(pointer + 16, 1, 0, 0) == 107000
    assert value(pointer, 1, 4, 0) == 107000
    assert in_thread(value, pointer, 1, 0, 0) == 107002
    stream = ok(acl.rt.create_stream())
    ok(acl.rt.set_device(1))
    assert value(pointer, 1, 0, stream) == 107003
    ok(acl.rt.free(pointer))
    assert value(pointer, 1, 0, 0) == 107000


def test_acl_value_calls_on_310p_return_207000(enter: Callable[[str], ModuleType]) -> None:
    for profile, code in (("ascend-310p", 207000), ("ascend-a2", 0)):
        acl = enter(f"devices=1,memory=64MiB,profile={profile}")
        ok(acl.rt.set_device(0))
        pointer = filled(acl, 8, 0)
        assert acl.rt.value_write(pointer, 1, 0, 0) == code
        assert acl.rt.value_wait(pointer, 1, 0, 0) == code
        ok(acl.rt.synchronize_stream(0))
