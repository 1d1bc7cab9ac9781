"""``acl.rt``: physical memory, reserved addresses and mappings within a process."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.acl_calls import MIB, both_directions, content, holding, in_thread, ok

pytestmark = pytest.mark.timeout(60)

GRANULE = 2 * MIB
HBM_HUGE = 4
PROP = {"memAttr": HBM_HUGE, "location": {"type": 1, "id": 0}}


def physical(acl: ModuleType, granules: int = 1, device: int = 0) -> int:
    prop = {**PROP, "location": {"type": 1, "id": device}}
    return int(ok(acl.rt.malloc_physical(granules * GRANULE, prop, 0)))


def reserved(acl: ModuleType, granules: int) -> int:
    return int(ok(acl.rt.reserve_mem_address(granules * GRANULE, 0, 0, 1)))


def free_bytes(acl: ModuleType) -> int:
    return int(ok(acl.rt.get_mem_info(1))[0])


def test_acl_map_mem_adjacent_blocks_form_one_range(acl: ModuleType) -> None:
    start, handles = reserved(acl, 3), [physical(acl) for _ in range(3)]
    for index, handle in enumerate(handles):
        ok(acl.rt.map_mem(start + index * GRANULE, GRANULE, 0, handle, 0))
    data = np.random.default_rng(1).bytes(GRANULE + 12345)
    source = holding(acl, data)
    at = start + GRANULE - 777
    ok(acl.rt.memcpy(at, len(data), source, len(data), 3))
    assert content(acl, at, len(data)) == data
    stream = ok(acl.rt.create_stream())
    ok(acl.rt.memset_async(at, 100, 9, 100, stream))
    ok(acl.rt.memcpy_async(source, 100, at, 100, 3, stream))
    ok(acl.rt.synchronize_stream(stream))
    assert content(acl, source, 100) == bytes([9]) * 100
    for index in range(3):
        ok(acl.rt.unmap_mem(start + index * GRANULE))
    for handle in handles:
        ok(acl.rt.free_physical(handle))
    ok(acl.rt.release_mem_address(start))


def test_acl_map_mem_one_handle_at_three_addresses_shares_bytes(acl: ModuleType) -> None:
    start, handle = reserved(acl, 2), physical(acl)
    other = reserved(acl, 1)
    for at in (start, start + GRANULE, other):
        ok(acl.rt.map_mem(at, GRANULE, 0, handle, 0))
    ok(acl.rt.memset(start + 5, 3, 0x5A, 3))
    assert content(acl, start + GRANULE + 5, 3) == content(acl, other + 5, 3) == b"ZZZ"


def test_acl_free_physical_while_mapped_keeps_memory_until_last_unmap(acl: ModuleType) -> None:
    before = free_bytes(acl)
    start, handle = reserved(acl, 2), physical(acl)
    ok(acl.rt.map_mem(start, GRANULE, 0, handle, 0))
    ok(acl.rt.map_mem(start + GRANULE, GRANULE, 0, handle, 0))
    ok(acl.rt.memset(start, GRANULE, 3, GRANULE))
    ok(acl.rt.free_physical(handle))
    assert acl.rt.free_physical(handle) == 107000
    assert "and ended by acl.rt.free_physical at test_acl_virtual_memory.py:" in acl.get_recent_err_msg()
    ok(acl.rt.unmap_mem(start))
    assert content(acl, start + GRANULE, GRANULE) == bytes([3]) * GRANULE
    assert free_bytes(acl) == before - GRANULE
    ok(acl.rt.unmap_mem(start + GRANULE))
    assert free_bytes(acl) == before


def test_acl_free_physical_twice_message_names_device_of_memory(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    handle = physical(acl, device=1)
    ok(acl.rt.free_physical(handle))
    assert acl.rt.free_physical(handle) == 107000
    assert f"{handle:#x} was a handle of physical memory of device 1, made at " in message()


def test_acl_unmap_mem_after_queued_copy_lets_copy_read_memory(acl: ModuleType) -> None:
    start, handle, stream = reserved(acl, 1), physical(acl), ok(acl.rt.create_stream())
    target = holding(acl, bytes(64))
    ok(acl.rt.map_mem(start, GRANULE, 0, handle, 0))
    ok(acl.rt.memset(start, 64, 8, 64))
    ok(acl.rt.memcpy_async(target, 64, start, 64, 3, stream))
    ok(acl.rt.unmap_mem(start))
    ok(acl.rt.free_physical(handle))
    ok(acl.rt.synchronize_stream(stream))
    assert content(acl, target, 64) == bytes([8]) * 64


def test_acl_mem_get_allocation_granularity_depends_on_attribute(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    for attribute in (4, 5, 8, 9, 12, 13, 15, 16):
        for option in (0, 1):
            prop = {**PROP, "memAttr": attribute}
            assert acl.rt.mem_get_allocation_granularity(prop, option) == (GRANULE, 0)
    for attribute in (10, 11, 14, 17):
        prop = {**PROP, "memAttr": attribute}
        assert acl.rt.mem_get_allocation_granularity(prop, 0) == (1 << 30, 0)
        assert acl.rt.malloc_physical(GRANULE, prop, 0) == (0, 107000)
    assert acl.rt.malloc_physical(GRANULE + 1, PROP, 0) == (0, 107000)
    assert "granularity of 2,097,152" in message()
    assert acl.rt.mem_get_allocation_granularity(PROP, 2) == (0, 107000)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"memAttr": 0}, 100000),
        ({"memAttr": 1}, 100000),
        ({"memAttr": 2}, 100000),
        ({"memAttr": 7}, 100000),
        ({"memAttr": 18}, 100000),
        ({"memAttr": "4"}, 100000),
        ({"handleType": 1}, 100000),
        ({"allocationType": 1}, 100000),
        ({"location": {"type": 2, "id": 0}}, 100000),
        ({"location": {"type": 3, "id": 0}}, 100000),
        ({"location": {"type": 0}}, 207000),
        ({"location": {"type": 4}}, 207000),
        ({"location": None}, 207000),
        ({"location": {"type": 1, "id": 2}}, 107001),
        ({"location": {"type": 1, "id": -1}}, 107001),
    ],
)
def test_acl_malloc_physical_wrong_prop_returns_documented_code(
    acl: ModuleType, change: dict[str, Any], code: int
) -> None:
    assert acl.rt.malloc_physical(GRANULE, {**PROP, **change}, 0) == (0, code)
    assert acl.rt.mem_get_allocation_granularity({**PROP, **change}, 0) == (0, code)
    assert "Possible Cause" in acl.get_recent_err_msg()


def test_acl_malloc_physical_missing_prop_keys_count_as_0(acl: ModuleType) -> None:
    ok(acl.rt.malloc_physical(GRANULE, {"memAttr": 4, "location": {"type": 1}, "reserve": 7}, 0))
    assert acl.rt.malloc_physical(GRANULE, {"location": {"type": 1}}, 0) == (0, 100000)
    assert acl.rt.malloc_physical(GRANULE, {}, 0) == (0, 100000)
    for wrong in (None, [], 5):
        with pytest.raises(TypeError, match=r"acl\.rt\.malloc_physical args parse failed"):
            acl.rt.malloc_physical(GRANULE, wrong, 0)


def test_acl_malloc_and_free_physical_bad_arguments_return_codes(acl: ModuleType) -> None:
    assert acl.rt.malloc_physical(0, PROP, 0) == (0, 100000)
    assert acl.rt.malloc_physical(GRANULE, PROP, 1) == (0, 100000)
    assert acl.rt.malloc_physical(1 << 40, PROP, 0) == (0, 207001)
    assert acl.rt.malloc_physical(-GRANULE, PROP, 0) == (0, 207001)
    handles = [physical(acl, 16), physical(acl, 16)]
    assert acl.rt.malloc_physical(GRANULE, PROP, 0) == (0, 207001)
    for handle in handles:
        ok(acl.rt.free_physical(handle))
    physical(acl, 32)
    assert acl.rt.free_physical(0) == 100000
    assert acl.rt.free_physical(12345) == 107000
    assert acl.rt.free_physical(ok(acl.rt.create_stream())) == 107000
    assert "another kind: stream" in acl.get_recent_err_msg()


def test_acl_reserve_mem_address_bad_arguments_return_codes(acl: ModuleType) -> None:
    assert acl.rt.reserve_mem_address(0, 0, 0, 0) == (0, 100000)
    assert acl.rt.reserve_mem_address(GRANULE, 0, 0, 2) == (0, 100000)
    assert acl.rt.reserve_mem_address(GRANULE, GRANULE, 0, 0) == (0, 107000)
    assert acl.rt.reserve_mem_address(1 << 60, 0, 0, 0) == (0, 207005)
    start = ok(acl.rt.reserve_mem_address(5, 0, 0, 0))
    assert acl.rt.reserve_mem_address(GRANULE, 0, start, 0) == (0, 107000)
    ok(acl.rt.release_mem_address(start))
    assert ok(acl.rt.reserve_mem_address(GRANULE, 0, start, 0)) == start
    assert ok(acl.rt.reserve_mem_address(1 << 30, 0, 0, 0)) % (1 << 30) == 0


def test_acl_map_mem_bad_arguments_return_codes(acl: ModuleType) -> None:
    start, handle = reserved(acl, 4), physical(acl)
    big = physical(acl, 2)
    for arguments, code in (
        ((0, GRANULE, 0, handle, 0), 100000),
        ((start, GRANULE, 0, 0, 0), 100000),
        ((start, 0, 0, handle, 0), 100000),
        ((start, GRANULE, GRANULE, handle, 0), 100000),
        ((start, GRANULE, 0, handle, 1), 100000),
        ((start, GRANULE, 0, 77, 0), 107000),
        ((start, GRANULE, 0, big, 0), 107000),
        ((start, 2 * GRANULE, 0, handle, 0), 107000),
        ((start + MIB, GRANULE, 0, handle, 0), 507899),
        ((start + 3 * GRANULE, 2 * GRANULE, 0, big, 0), 507899),
        ((start + 4 * GRANULE, GRANULE, 0, handle, 0), 507899),
        ((start - GRANULE, GRANULE, 0, handle, 0), 507899),
        ((holding(acl, b"x"), GRANULE, 0, handle, 0), 507899),
    ):
        assert acl.rt.map_mem(*arguments) == code, arguments
    ok(acl.rt.map_mem(start, GRANULE, 0, handle, 0))
    assert acl.rt.map_mem(start, GRANULE, 0, handle, 0) == 507899
    assert "already holds a mapping" in acl.get_recent_err_msg()
    ok(acl.rt.map_mem(start + GRANULE, 2 * GRANULE, 0, big, 0))


def test_acl_unmap_mem_and_release_mem_address_inexact_start_return_507899(acl: ModuleType) -> None:
    start, handle = reserved(acl, 2), physical(acl)
    ok(acl.rt.map_mem(start + GRANULE, GRANULE, 0, handle, 0))
    assert acl.rt.unmap_mem(0) == acl.rt.release_mem_address(0) == 100000
    for wrong in (start, start + GRANULE + 1, start + 2 * GRANULE, 4096):
        assert acl.rt.unmap_mem(wrong) == 507899
    assert acl.rt.release_mem_address(start + GRANULE) == 507899
    assert acl.rt.release_mem_address(start) == 507899
    assert "1 mappings are left" in acl.get_recent_err_msg()
    ok(acl.rt.unmap_mem(start + GRANULE))
    assert acl.rt.unmap_mem(start + GRANULE) == 507899
    ok(acl.rt.release_mem_address(start))
    assert acl.rt.release_mem_address(start) == 507899
    assert acl.rt.map_mem(start, GRANULE, 0, handle, 0) == 507899


def test_acl_memcpy_reserved_address_without_mapping_returns_107000(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    start, source = reserved(acl, 1), holding(acl, b"abcd")
    assert acl.rt.memcpy(start, 4, source, 4, 3) == 107000
    assert "is reserved" in message()
    assert acl.rt.memset(start, 4, 0, 4) == 107000
    ok(acl.rt.map_mem(start, GRANULE, 0, physical(acl), 0))
    ok(acl.rt.memcpy(start, 4, source, 4, 3))
    message_before = acl.get_recent_err_msg()
    assert message_before
    assert acl.rt.free(start) == 107000
    assert "acl.rt.unmap_mem" in message()
    assert acl.rt.memcpy(start + GRANULE - 2, 4, source, 4, 3) == 107000


def test_acl_copies_into_hole_of_reservation_name_hole_and_map_mem(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    start, source = reserved(acl, 3), holding(acl, bytes(64))
    ok(acl.rt.map_mem(start, GRANULE, 0, physical(acl), 0))
    hole, seam = start + GRANULE, start + GRANULE - 2
    for call, *args in (
        ("memset", seam, 4, 1, 4),
        ("memcpy", seam, 4, source, 4, 3),
        ("memcpy_async", seam, 4, source, 4, 3, 0),
        ("memcpy2d", seam, 4, source, 4, 4, 1, 3),
        ("memset", hole, 4, 1, 4),
        ("memcpy", source, 4, hole, 4, 3),
    ):
        assert getattr(acl.rt, call)(*args) == 107000
        text = message()
        assert f"{hole:#x} is reserved, and nothing is mapped there" in text
        assert "Solution: map memory there with acl.rt.map_mem" in text
    assert acl.rt.free(hole) == 107000
    assert "AddressRange" not in message()
    ok(acl.rt.map_mem(hole, GRANULE, 0, physical(acl), 0))
    ok(acl.rt.map_mem(hole + GRANULE, GRANULE, 0, physical(acl), 0))
    assert acl.rt.memset(start + 3 * GRANULE - 2, 4, 1, 4) == 107000
    assert "Solution: pass a smaller count" in message()


def test_acl_map_mem_memory_of_second_device_returns_507899(acl: ModuleType) -> None:
    start, other = reserved(acl, 2), reserved(acl, 1)
    near, far = physical(acl), physical(acl, device=1)
    ok(acl.rt.map_mem(start, GRANULE, 0, near, 0))
    assert acl.rt.map_mem(start + GRANULE, GRANULE, 0, far, 0) == 507899
    assert "holds memory of device 0, and this is of device 1" in acl.get_recent_err_msg()
    ok(acl.rt.map_mem(other, GRANULE, 0, far, 0))
    ok(acl.rt.unmap_mem(start))
    ok(acl.rt.map_mem(start + GRANULE, GRANULE, 0, far, 0))


def test_acl_memcpy_mapped_memory_of_other_device_needs_peer_access(acl: ModuleType) -> None:
    start, source = reserved(acl, 1), holding(acl, b"over")
    ok(acl.rt.map_mem(start, GRANULE, 0, physical(acl, device=1), 0))
    assert acl.rt.memcpy(start, 4, source, 4, 3) == 507899
    assert "device_enable_peer_access" in acl.get_recent_err_msg()
    both_directions(acl)
    ok(acl.rt.memcpy(start, 4, source, 4, 3))
    stream = ok(acl.rt.create_stream())
    ok(acl.rt.memcpy_async(start + 4, 4, source, 4, 3, stream))
    ok(acl.rt.synchronize_stream(stream))
    assert content(acl, start, 8) == b"overover"


def test_acl_mapped_memory_outlives_reset_device(acl: ModuleType) -> None:
    start, handle = reserved(acl, 1), physical(acl)
    ok(acl.rt.map_mem(start, GRANULE, 0, handle, 0))
    ok(acl.rt.memset(start, 4, 1, 4))
    ok(acl.rt.reset_device(0))
    ok(acl.rt.set_device(0))
    assert content(acl, start, 4) == bytes([1]) * 4
    ok(acl.rt.unmap_mem(start))
    ok(acl.rt.free_physical(handle))


def test_acl_virtual_memory_calls_in_thread_without_device_return_their_codes(acl: ModuleType) -> None:
    start, handle = reserved(acl, 1), physical(acl)
    assert in_thread(acl.rt.malloc_physical, GRANULE, PROP, 0) == (0, 107002)
    assert in_thread(acl.rt.reserve_mem_address, GRANULE, 0, 0, 0) == (0, 107002)
    assert in_thread(acl.rt.mem_import_from_shareable_handle, 5, 0) == (0, 107002)
    assert in_thread(acl.rt.mem_import_from_shareable_handle, 5, 2) == (0, 107001)
    assert in_thread(acl.rt.mem_get_allocation_granularity, PROP, 0) == (GRANULE, 0)
    ok(in_thread(acl.rt.map_mem, start, GRANULE, 0, handle, 0))
    ok(in_thread(acl.rt.mem_export_to_shareable_handle, handle, 0, 0))
    ok(in_thread(acl.rt.unmap_mem, start))
    ok(in_thread(acl.rt.release_mem_address, start))
    ok(in_thread(acl.rt.free_physical, handle))


def test_acl_virtual_memory_calls_handles_of_previous_node_return_codes(
    acl: ModuleType, enter: Callable[[str], ModuleType]
) -> None:
    start, handle = reserved(acl, 1), physical(acl)
    ok(acl.rt.map_mem(start, GRANULE, 0, handle, 0))
    acl = enter("devices=2,memory=32MiB")
    assert acl.rt.free_physical(handle) == 107000
    assert acl.rt.unmap_mem(start) == 507899
    assert acl.rt.release_mem_address(start) == 507899


def test_acl_memcpy_on_310p_mapped_memory_needs_p2p_attribute(enter: Callable[[str], ModuleType]) -> None:
    acl = enter("devices=2,memory=64MiB,profile=ascend-310p")
    both_directions(acl)
    ok(acl.rt.set_device(0))
    source, target = reserved(acl, 2), ok(acl.rt.malloc(GRANULE, 3))
    ok(acl.rt.set_device(1))
    there = ok(acl.rt.malloc(100, 3))
    for at, attribute in enumerate((HBM_HUGE, 8)):
        handle = ok(acl.rt.malloc_physical(GRANULE, {**PROP, "memAttr": attribute}, 0))
        ok(acl.rt.map_mem(source + at * GRANULE, GRANULE, 0, handle, 0))
    ok(acl.rt.memset(source, 2 * GRANULE, 7, 2 * GRANULE))
    assert acl.rt.memcpy(there, 100, source, 100, 3) == 507899
    assert acl.rt.memcpy(there, 100, source + GRANULE - 50, 100, 3) == 507899
    ok(acl.rt.memcpy(target, 100, source, 100, 3))
    ok(acl.rt.memcpy(there, 100, source + GRANULE, 100, 3))
    assert content(acl, there, 100) == bytes([7]) * 100
