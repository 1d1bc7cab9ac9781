"""``acl.rt``: allocation, bounds, copies and fills, byte for byte."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest

import peerlane
from helpers.acl_calls import in_thread

Message = Callable[[], str]


def address(data: bytearray) -> int:
    return peerlane.as_buffer(data).address


def new(acl: ModuleType, data: bytes, policy: int = 2) -> int:
    """Return device memory that holds ``data``."""
    pointer, ret = acl.rt.malloc(len(data), policy)
    assert ret == 0
    assert acl.rt.memcpy(pointer, len(data), acl.util.bytes_to_ptr(data), len(data), 1) == 0
    return int(pointer)


def read(acl: ModuleType, pointer: int, size: int) -> bytes:
    taken = bytearray(size)
    assert acl.rt.memcpy(address(taken), size, pointer, size, 2) == 0
    return bytes(taken)


@pytest.mark.parametrize("size", [1, 63, 4096, (2 << 20) - 1, 2 << 20, 5 << 20])
def test_acl_memcpy_round_trip_through_two_devices_blocks_keeps_bytes(size: int, acl: ModuleType) -> None:
    data = random.Random(size).randbytes(size)
    first = new(acl, data)
    second, _ = acl.rt.malloc(size, 0)
    host, _ = acl.rt.malloc_host(size)
    assert first % 64 == second % 64 == host % 64 == 0
    assert acl.rt.memcpy(second, size, first, size, 3) == 0
    assert acl.rt.memcpy(host, size, second, size, 2) == 0
    assert acl.util.ptr_to_bytes(host, size) == data
    assert read(acl, second, size) == data
    assert [acl.rt.free(first), acl.rt.free(second), acl.rt.free_host(host)] == [0, 0, 0]
    assert acl.get_recent_err_msg() is None


@pytest.mark.parametrize("kind", range(6))
def test_acl_memcpy_any_kind_copies_by_addresses(kind: int, acl: ModuleType) -> None:
    pointer = new(acl, bytes(8))
    data = bytearray(b"payload!")
    back = bytearray(8)
    assert acl.rt.memcpy(pointer, 8, address(data), 8, kind) == 0
    assert acl.rt.memcpy(address(back), 8, pointer, 8, kind) == 0
    assert back == data
    assert acl.rt.memcpy(address(back), 8, address(bytearray(b"hosthost")), 8, kind) == 0
    assert back == b"hosthost"


def test_acl_memcpy_bool_and_wrapped_arguments_copy_same_bytes(acl: ModuleType) -> None:
    """The fast path does not take a bool or a wrapped number; the general path copies the same bytes."""
    pointer = new(acl, bytes(8))
    data = bytearray(b"12345678")
    assert acl.rt.memcpy(pointer - (1 << 64), 8, address(data), 8, True) == 0
    assert read(acl, pointer, 8) == data


def test_acl_memcpy_bad_arguments_return_codes_in_vendor_order(acl: ModuleType, message: Message) -> None:
    assert acl.rt.memcpy(0, 0, 0, 0, 99) == 0
    assert acl.rt.memcpy(0, 0, 0, 1, 99) == 100000
    assert "dst is NULL" in message()
    assert acl.rt.memcpy(8, 0, 0, 1, 99) == 100000
    assert "src is NULL" in message()
    assert acl.rt.memcpy(8, 0, 16, 1, 99) == 100000
    assert "kind is 99; valid here are 0 H2H, 1 H2D" in message()
    assert acl.rt.memcpy(8, 0, 8, 1, 0) == 107000
    assert "dest_max, which is 0" in message()
    assert acl.rt.memcpy(8, 1, 8, 1, 0) == 0


def test_acl_memcpy_and_memset_beyond_requested_size_return_107000(acl: ModuleType, message: Message) -> None:
    pointer = new(acl, b"0123456789")
    taken = bytearray(11)
    assert acl.rt.memcpy(address(taken), 11, pointer, 11, 2) == 107000
    assert "ends 1 bytes beyond allocation" in message()
    assert taken == bytes(11)
    assert acl.rt.memcpy(pointer + 9, 2, address(taken), 2, 1) == 107000
    assert "from where 1 bytes are left" in message()
    assert acl.rt.memset(pointer, 11, 1, 11) == 107000
    assert "beyond allocation" in message()
    assert read(acl, pointer, 10) == b"0123456789"


def test_acl_memcpy_and_memset_freed_memory_return_107000_and_name_free(
    acl: ModuleType, message: Message
) -> None:
    pointer = new(acl, bytes(8))
    assert acl.rt.free(pointer) == 0
    for call in (
        lambda: acl.rt.memset(pointer, 8, 0, 8),
        lambda: acl.rt.memcpy(pointer, 8, address(bytearray(8)), 8, 1),
        lambda: acl.rt.memcpy(address(bytearray(8)), 8, pointer, 8, 2),
    ):
        assert call() == 107000
        text = message()
        assert "freed by acl.rt.free at test_acl_memory.py:" in text
        assert "(freed memory)" in text
    host, _ = acl.rt.malloc_host(8)
    assert [acl.rt.free_host(host), acl.rt.free_host(host)] == [0, 107000]
    assert "freed by acl.rt.free_host at test_acl_memory.py:" in message()


def test_acl_free_twice_returns_0_and_leaves_no_message(acl: ModuleType) -> None:
    pointers = [new(acl, bytes(64)) for _ in range(3)]
    big = acl.rt.malloc(8 << 20, 0)[0]
    image = acl.media.dvpp_malloc(64)[0]
    before = acl.rt.get_mem_info(1)
    for pointer in (*pointers, big):
        assert acl.rt.free(pointer) == 0
    assert acl.media.dvpp_free(image) == 0
    for pointer in (*pointers, big, image, *pointers):
        assert acl.rt.free(pointer) == 0
        assert in_thread(acl.rt.free, pointer) == 0
    assert acl.get_recent_err_msg() is None
    assert acl.rt.get_last_error(0) == 0
    assert acl.rt.get_mem_info(1)[0] >= before[0] + (8 << 20)


def test_acl_free_twice_of_reused_address_frees_new_allocation(acl: ModuleType) -> None:
    first, size = acl.rt.malloc(2 << 20, 0)[0], 2 << 20
    assert acl.rt.free(first) == 0
    others = [acl.rt.malloc(size, 0)[0] for _ in range(4)]
    held = acl.rt.get_mem_info(1)[0]
    assert acl.rt.free(first) == 0
    assert acl.rt.get_mem_info(1)[0] == held + (size if first in others else 0)
    for other in others:
        assert acl.rt.free(other) == 0
        assert acl.rt.free(other) == 0


def test_acl_free_again_at_other_address_or_by_other_call_returns_107000(
    acl: ModuleType, message: Message
) -> None:
    pointer, kept = new(acl, bytes(256)), new(acl, bytes(256))
    assert acl.rt.free(pointer) == 0
    for wrong, words in ((pointer + 64, "freed by acl.rt.free"), (kept + 64, "bytes inside allocation")):
        assert acl.rt.free(wrong) == 107000
        assert words in message()
    assert acl.media.dvpp_free(pointer) == 107000
    assert "freed by acl.rt.free" in message()
    assert acl.rt.free_host(pointer) == 107000
    assert message()
    assert acl.rt.free(kept) == 0
    assert acl.rt.reset_device(0) == 0 and acl.rt.set_device(0) == 0
    lost = new(acl, bytes(64))
    assert acl.rt.reset_device(0) == 0
    assert acl.rt.free(lost) == 107000
    assert "the last reset of virtual:0" in message()


def test_acl_free_pointer_freed_in_previous_node_returns_107000(
    acl: ModuleType, enter: Callable[[str], ModuleType]
) -> None:
    pointer = new(acl, bytes(64))
    assert acl.rt.free(pointer) == 0
    again = enter("devices=1,memory=64MiB")
    assert again.rt.free(pointer) == 107000


def test_acl_free_pointer_not_of_malloc_returns_107000_and_explains_it(
    acl: ModuleType, message: Message
) -> None:
    pointer = new(acl, bytes(64))
    host, _ = acl.rt.malloc_host(8)
    neutral = peerlane.devices()[0].allocate(8)
    wild = 0x10
    nowhere = pointer + (1 << 30)
    cases = [
        (acl.rt.free, pointer + 1, "1 bytes inside allocation"),
        (acl.rt.free, host, "memory of acl.rt.malloc_host"),
        (acl.rt.free, address(bytearray(8)), "ordinary host memory"),
        (acl.rt.free, neutral.address, "not allocated by acl.rt.malloc: allocation"),
        (acl.rt.free, wild, "nothing is mapped there"),
        (acl.rt.free, nowhere, "nothing is allocated"),
        (acl.rt.free_host, pointer, "free it with acl.rt.free."),
        (acl.rt.free_host, host + 4, "4 bytes inside allocation"),
    ]
    for call, code, words in cases:
        assert call(code) == 107000
        assert words in message()
    assert acl.rt.memset(pointer, 64, 1, 64) == acl.rt.memset(host, 8, 1, 8) == 0
    neutral.fill(1)
    assert [acl.rt.free(pointer), acl.rt.free_host(host)] == [0, 0]


def test_acl_free_in_thread_without_device_returns_0(acl: ModuleType) -> None:
    pointer = new(acl, bytes(8))
    host, _ = acl.rt.malloc_host(8)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(acl.rt.free, pointer).result(timeout=20) == 0
        assert pool.submit(acl.rt.free_host, host).result(timeout=20) == 0


def test_acl_free_from_four_threads_at_once_returns_0_in_each(acl: ModuleType) -> None:
    for _ in range(20):
        pointer = new(acl, bytes(8))
        with ThreadPoolExecutor(4) as pool:
            codes = sorted(pool.map(acl.rt.free, [pointer] * 4, timeout=20))
        assert codes == [0, 0, 0, 0]


def test_acl_malloc_out_of_memory_returns_207001_and_leaks_nothing(acl: ModuleType, message: Message) -> None:
    free, total, ret = acl.rt.get_mem_info(1)
    assert (free, total, ret) == (64 << 20, 64 << 20, 0)
    assert acl.rt.malloc(total + 1, 2) == (0, 207001)
    text = message()
    assert text.startswith("EL0004: acl.rt.malloc returned 207001")
    assert "67,108,864 of its 67,108,864 bytes are free" in text
    assert acl.rt.get_mem_info(1) == (free, total, 0)
    pointer, ret = acl.rt.malloc(total, 2)
    assert ret == 0
    assert acl.rt.malloc(1, 2) == (0, 207001)
    assert acl.rt.free(pointer) == 0
    assert acl.rt.get_mem_info(1) == (free, total, 0)


@pytest.mark.parametrize(
    ("profile", "answered"),
    [
        ("ascend-a2", {1, 4, 5, *range(8, 18)}),
        ("ascend-310p", set(range(18))),
    ],
)
def test_acl_get_mem_info_unsupported_kind_returns_zeros(
    profile: str, answered: set[int], enter: Any
) -> None:
    acl = enter(f"devices=2,memory=64MiB,profile={profile}")
    acl.rt.set_device(1)
    size = 64 << 20
    for attr in range(-1, 20):
        assert acl.rt.get_mem_info(attr) == ((size, size, 0) if attr in answered else (0, 0, 0))


def test_acl_memset_value_beyond_a_byte_uses_low_byte(acl: ModuleType) -> None:
    pointer = new(acl, bytes(8))
    for value, byte in ((0x5A, 0x5A), (0x1FF, 0xFF), (-1, 0xFF), (-256, 0)):
        assert acl.rt.memset(pointer, 8, value, 8) == 0
        assert read(acl, pointer, 8) == bytes([byte]) * 8
    assert acl.rt.memset(pointer + 2, 6, 7, 3) == 0
    assert read(acl, pointer, 8) == b"\x00\x00\x07\x07\x07\x00\x00\x00"


def test_acl_memset_host_memory_not_of_malloc_host_returns_107000(acl: ModuleType, message: Message) -> None:
    host, _ = acl.rt.malloc_host(8)
    assert acl.rt.memset(host, 8, 9, 8) == 0
    assert acl.util.ptr_to_bytes(host, 8) == b"\x09" * 8
    mine = bytearray(8)
    assert acl.rt.memset(address(mine), 8, 9, 8) == 107000
    assert "acl.rt.malloc_host did not allocate" in message()
    assert mine == bytes(8)


@pytest.mark.parametrize("kind", [1, 2, 3, 4])
def test_acl_memcpy2d_copies_rows_a_pitch_apart(kind: int, acl: ModuleType) -> None:
    source = new(acl, bytes(range(32)))
    target = new(acl, b"\xee" * 40)
    assert acl.rt.memcpy2d(target, 10, source, 8, 3, 4, kind) == 0
    expected = bytearray(b"\xee" * 40)
    for row in range(4):
        expected[row * 10 : row * 10 + 3] = bytes(range(row * 8, row * 8 + 3))
    assert read(acl, target, 40) == expected


def test_acl_memcpy2d_beyond_allocation_returns_107000_and_writes_nothing(
    acl: ModuleType, message: Message
) -> None:
    source = new(acl, b"\x01" * 32)
    target = new(acl, bytes(32))
    assert acl.rt.memcpy2d(target, 8, source, 8, 8, 5, 3) == 107000
    assert "beyond allocation" in (text := message()) and "Solution: pass a smaller width or height" in text
    assert acl.rt.memcpy2d_async(target, 8, source, 8, 8, 5, 3, 0) == 107000
    assert "beyond allocation" in (text := message()) and "Solution: pass a smaller width or height" in text
    assert acl.rt.memcpy2d(target, 1 << 63, source, 8, 8, 5, 3) == 107000
    message()
    assert read(acl, target, 32) == bytes(32)
    assert acl.rt.memcpy2d(target, 7, source, 8, 8, 1, 3) == 100000
    assert "dpitch is 7, spitch 8" in message()


def test_acl_memcpy_wild_host_pointer_returns_107000(acl: ModuleType, message: Message) -> None:
    pointer = new(acl, bytes(8))
    for wild in (8, 0xDEAD0000, (1 << 64) - 4):
        assert acl.rt.memcpy(pointer, 8, wild, 8, 1) == 107000
        assert acl.rt.memcpy(wild, 8, pointer, 8, 2) == 107000
        assert f"{wild:#x}" in message()
