"""``acl.rt``: the current device of a thread, references, and peer access."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest

import peerlane

TWO = "devices=2,memory=64MiB"
FOUR = "devices=4,switch=2,memory=64MiB"


def in_thread(call: Any, *args: object) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call, *args).result(timeout=20)


def on(acl: ModuleType, device: int, call: str, *args: object) -> Any:
    """Call with another device set, and set device 0 again."""
    acl.rt.set_device(device)
    try:
        return getattr(acl.rt, call)(*args)
    finally:
        acl.rt.set_device(0)


def pair(acl: ModuleType, policy: int = 2, a: int = 0, b: int = 1, size: int = 64) -> tuple[int, int]:
    """Return memory on two devices, the second holding ones."""
    first, ret = on(acl, a, "malloc", size, policy)
    assert ret == 0
    second, ret = on(acl, b, "malloc", size, policy)
    assert ret == 0
    assert acl.rt.memset(first, size, 0, size) == acl.rt.memset(second, size, 1, size) == 0
    return first, second


def content(acl: ModuleType, pointer: int, size: int = 64) -> bytes:
    taken = bytearray(size)
    assert acl.rt.memcpy(peerlane.as_buffer(taken).address, size, pointer, size, 2) == 0
    return bytes(taken)


NEEDS_DEVICE: list[tuple[str, tuple[Any, ...], Any]] = [
    ("get_device", (), (0, 107002)),
    ("malloc", (8, 2), (0, 107002)),
    ("malloc_host", (8,), (0, 107002)),
    ("get_mem_info", (1,), (0, 0, 107002)),
    ("memcpy", (4096, 8, 8192, 8, 1), 107002),
    ("memset", (4096, 8, 0, 8), 107002),
    ("memcpy2d", (4096, 8, 8192, 8, 8, 1, 1), 107002),
    ("device_enable_peer_access", (1, 0), 107002),
    ("device_disable_peer_access", (1,), 107002),
    ("malloc_align32", (8, 2), (0, 107002)),
    ("malloc_cached", (8, 2), (0, 107002)),
    ("malloc_with_cfg", (8, 2, {}), (0, 107002)),
    ("malloc_for_task_scheduler", (8, 2, {}), (0, 107002)),
    ("malloc_host_with_cfg", (8, {}), (0, 107002)),
    ("mem_flush", (4096, 8), 107002),
    ("mem_invalidate", (4096, 8), 107002),
    ("host_register", (4097, 8, 0), (0, 107002)),
    ("host_register_v2", (4097, 8, 2), 107002),
    ("host_unregister", (4096,), 107002),
    ("host_get_device_pointer", (4096, 0), (0, 107002)),
    ("value_write", (4097, 1, 0, 0), 107002),
    ("value_wait", (4097, 1, 9, 0), 107002),
    ("reduce_async", (4097, 4097, 3, 9, 0, 0, 0), 107002),
    ("set_stream_attribute", (0, 9, {}), 107002),
    ("get_stream_attribute", (0, 1), ({"failureMode": 0}, 107002)),
]


@pytest.mark.parametrize(
    ("name", "args", "expected"), NEEDS_DEVICE, ids=lambda v: v if isinstance(v, str) else ""
)
def test_acl_rt_calls_in_thread_without_device_return_107002(
    name: str, args: tuple[int, ...], expected: Any, acl: ModuleType
) -> None:
    def call() -> tuple[Any, str]:
        return getattr(acl.rt, name)(*args), acl.get_recent_err_msg()

    result, text = in_thread(call)
    assert result == expected
    assert "acl.rt.set_device(id) in this thread" in text
    assert acl.rt.reset_device(0) == 0
    assert call()[0] == expected


def test_acl_set_device_is_per_thread(acl: ModuleType) -> None:
    def other() -> list[Any]:
        return [acl.rt.set_device(1), acl.rt.get_device()]

    assert in_thread(other) == [0, (1, 0)]
    assert acl.rt.get_device() == (0, 0)


def test_acl_reset_device_references_are_per_process(acl: ModuleType) -> None:
    assert acl.rt.set_device(0) == 0
    assert in_thread(acl.rt.reset_device, 0) == 0
    assert acl.rt.get_device() == (0, 0)
    assert acl.rt.reset_device(0) == 0
    assert acl.rt.get_device() == (0, 107002)
    assert acl.rt.reset_device(0) == 507007
    assert "set_device(0) was already reset" in acl.get_recent_err_msg()


def test_acl_set_device_invalid_id_keeps_current_device(acl: ModuleType) -> None:
    assert acl.rt.set_device(2) == 107001
    assert "numbered 0 to 1" in acl.get_recent_err_msg()
    assert acl.rt.get_device() == (0, 0)
    assert [acl.rt.reset_device(0), acl.rt.reset_device(0)] == [0, 507007]


def test_acl_get_device_after_reset_by_other_thread_returns_107002(acl: ModuleType) -> None:
    ready, go = threading.Event(), threading.Event()

    def other() -> Any:
        acl.rt.set_device(1)
        ready.set()
        assert go.wait(20)
        return acl.rt.get_device()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other)
        assert ready.wait(20)
        assert [acl.rt.reset_device(1), acl.rt.set_device(1)] == [0, 0]
        go.set()
        assert waiting.result(timeout=20) == (0, 107002)


def test_acl_reset_device_last_reference_frees_only_memory_of_that_device(acl: ModuleType) -> None:
    first, second = pair(acl)
    host, _ = acl.rt.malloc_host(8)
    free, total, _ = acl.rt.get_mem_info(1)
    assert free < total
    while acl.rt.reset_device(0) == 0:
        pass
    acl.get_recent_err_msg()
    assert acl.rt.set_device(0) == 0
    assert acl.rt.get_mem_info(1) == (total, total, 0)
    assert acl.rt.memset(first, 8, 0, 8) == 107000
    text = acl.get_recent_err_msg()
    assert "freed by the last reset of virtual:0 at test_acl_device.py:" in text
    assert acl.rt.free(first) == 107000
    assert acl.rt.memset(host, 8, 0, 8) == 0
    assert content(acl, second) == b"\x01" * 64
    assert [acl.rt.free(second), acl.rt.free_host(host)] == [0, 0]


def test_acl_reset_device_frees_memory_allocated_by_other_thread(acl: ModuleType) -> None:
    def other() -> int:
        acl.rt.set_device(1)
        pointer, _ = acl.rt.malloc(8, 2)
        return int(pointer)

    pointer = in_thread(other)
    assert acl.rt.memset(pointer, 8, 0, 8) == 0
    assert acl.rt.reset_device(1) == 0
    assert acl.rt.memset(pointer, 8, 0, 8) == 107000


def test_acl_device_calls_from_eight_threads_return_0_and_balance_references(enter: Any) -> None:
    acl = enter(TWO)

    def work(number: int) -> set[int]:
        codes = set()
        for _ in range(30):
            codes.add(acl.rt.set_device(number % 2))
            pointer, ret = acl.rt.malloc(4096, 2)
            codes |= {ret, acl.rt.memset(pointer, 4096, number, 4096), acl.rt.free(pointer)}
            codes.add(acl.rt.reset_device(number % 2))
        return codes

    with ThreadPoolExecutor(8) as pool:
        assert set().union(*pool.map(work, range(8), timeout=60)) == {0}
    assert [acl.rt.reset_device(0), acl.rt.reset_device(1)] == [507007, 507007]


def test_acl_enter_node_ends_memory_devices_and_peer_access_of_previous_node(
    acl: ModuleType, enter: Any
) -> None:
    first, second = pair(acl)
    acl.rt.device_enable_peer_access(1, 0)
    on(acl, 1, "device_enable_peer_access", 0, 0)
    enter("devices=3,memory=64MiB")
    assert acl.rt.get_device_count() == (3, 0)
    assert acl.rt.get_device() == (0, 107002)
    assert acl.rt.memcpy(first, 8, second, 8, 3) == 107002
    assert [acl.rt.reset_device(0), acl.rt.set_device(0)] == [507007, 0]
    assert acl.rt.device_peer_access_status(0, 1) == (0, 0)
    acl.get_recent_err_msg()
    assert acl.rt.memcpy(first, 8, second, 8, 3) == 107000
    assert "freed by leaving the node" in acl.get_recent_err_msg()
    assert acl.rt.free(first) == 107000
    assert "freed by leaving the node" in acl.get_recent_err_msg()


@pytest.mark.parametrize("leave", [peerlane.leave_node, lambda: peerlane.enter_node("devices=4")])
def test_acl_memcpy_after_leaving_node_returns_107002(leave: Callable[[], object], acl: ModuleType) -> None:
    a, b = bytearray(b"12345678"), bytearray(8)
    copy = (peerlane.as_buffer(b).address, 8, peerlane.as_buffer(a).address, 8, 0)
    assert acl.rt.memcpy(*copy) == 0
    b[:] = bytes(8)
    leave()
    assert acl.rt.memcpy(*copy) == 107002
    assert b == bytes(8)


def test_acl_malloc_host_during_reset_device_returns_0(acl: ModuleType) -> None:
    done, deadline = threading.Event(), time.monotonic() + 20
    many = [
        acl.rt.malloc_host(64)[0] for _ in range(3000)
    ]  # a reset searches them all, which lets the two threads meet

    def resets() -> set[int]:
        codes = set()
        try:
            for _ in range(100):
                codes |= {acl.rt.set_device(1), acl.rt.malloc(64, 2)[1], acl.rt.reset_device(1)}
        finally:
            done.set()
        return codes

    def host() -> set[int]:
        codes = {acl.rt.set_device(0)}
        while not done.is_set() and time.monotonic() < deadline:
            allocated = [acl.rt.malloc_host(64) for _ in range(50)]
            codes |= {ret for _, ret in allocated} | {acl.rt.free_host(pointer) for pointer, _ in allocated}
        return codes

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(2) as pool:
            assert [work.result(60) for work in (pool.submit(host), pool.submit(resets))] == [{0}, {0}]
    finally:
        sys.setswitchinterval(before)
        assert {acl.rt.free_host(pointer) for pointer in many} == {0}


def test_acl_device_can_access_peer_only_within_one_switch(enter: Any) -> None:
    acl = enter(FOUR)
    reach = [[acl.rt.device_can_access_peer(a, b)[0] for b in range(4)] for a in range(4)]
    assert reach == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]


def test_acl_device_enable_peer_access_across_switches_returns_207000(enter: Any) -> None:
    acl = enter(FOUR)
    acl.rt.set_device(0)
    assert acl.rt.device_enable_peer_access(2, 0) == 207000
    text = acl.get_recent_err_msg()
    assert "virtual:0 is on switch 0, virtual:2 on switch 1" in text
    assert acl.rt.device_disable_peer_access(2) == 507899
    first, second = pair(acl, a=0, b=2)
    acl.get_recent_err_msg()
    assert acl.rt.memcpy(first, 64, second, 64, 3) == 507899
    assert "cannot get it" in acl.get_recent_err_msg()


def test_acl_memcpy_one_direction_enabled_returns_507899_and_names_missing_one(acl: ModuleType) -> None:
    first, second = pair(acl)
    zero = "acl.rt.device_enable_peer_access(1, 0) while device 0 is set"
    one = "acl.rt.device_enable_peer_access(0, 0) while device 1 is set"

    def refused(*missing: str) -> None:
        for call in (
            lambda: acl.rt.memcpy(first, 64, second, 64, 3),
            lambda: acl.rt.memcpy2d(first, 8, second, 8, 8, 8, 3),
        ):
            assert call() == 507899
            text = acl.get_recent_err_msg()
            assert [each in text for each in (zero, one)] == [each in missing for each in (zero, one)]
        assert acl.rt.device_peer_access_status(0, 1) == acl.rt.device_peer_access_status(1, 0) == (0, 0)
        assert content(acl, first) == bytes(64)

    refused(zero, one)
    assert acl.rt.device_enable_peer_access(1, 0) == 0
    refused(one)
    assert acl.rt.device_disable_peer_access(1) == 0
    assert on(acl, 1, "device_enable_peer_access", 0, 0) == 0
    refused(zero)
    assert acl.rt.device_enable_peer_access(1, 0) == 0
    assert acl.rt.device_peer_access_status(0, 1) == acl.rt.device_peer_access_status(1, 0) == (1, 0)
    assert acl.rt.memcpy(first, 64, second, 64, 3) == 0
    assert content(acl, first) == b"\x01" * 64


def test_acl_device_enable_peer_access_three_times_needs_three_disables(acl: ModuleType) -> None:
    first, second = pair(acl)
    d0, d1 = peerlane.devices()
    assert on(acl, 1, "device_enable_peer_access", 0, 0) == 0
    assert [acl.rt.device_enable_peer_access(1, 0) for _ in range(3)] == [0, 0, 0]
    for left in (2, 1, 0):
        assert (d1 in d0.peers) and (d0 in d1.peers)
        assert acl.rt.memcpy(first, 64, second, 64, 3) == 0
        assert acl.rt.device_disable_peer_access(1) == 0
        assert acl.rt.device_peer_access_status(0, 1) == (int(left > 0), 0)
    assert acl.rt.memcpy(first, 64, second, 64, 3) == 507899
    assert acl.rt.device_disable_peer_access(1) == 507899
    assert not d0.peers and not d1.peers


def test_acl_peer_access_outlives_reset_device_and_finalize(acl: ModuleType) -> None:
    acl.rt.device_enable_peer_access(1, 0)
    acl.rt.set_device(1)
    acl.rt.device_enable_peer_access(0, 0)
    assert [acl.rt.reset_device(1), acl.rt.reset_device(0), acl.finalize()] == [0, 0, 0]
    assert acl.rt.device_peer_access_status(0, 1) == (1, 0)


def test_acl_device_enable_peer_access_ninth_peer_enables_neither_direction(enter: Any) -> None:
    acl = enter("devices=10,switch=10,memory=64MiB,profile=ascend-a2")
    for peer in range(1, 10):
        assert on(acl, peer, "device_enable_peer_access", 0, 0) == 0
        assert acl.rt.device_enable_peer_access(peer, 0) == (0 if peer < 9 else 207005)
    assert "acl.rt.device_disable_peer_access(peer) for one of them" in acl.get_recent_err_msg()
    assert acl.rt.device_peer_access_status(0, 9) == (0, 0)
    d0, *_, d9 = peerlane.devices()
    assert d0 not in d9.peers and d9 not in d0.peers


def test_acl_device_enable_peer_access_ninth_peer_returns_207005_and_names_peers(enter: Any) -> None:
    acl = enter("devices=16,switch=16,memory=64MiB,profile=ascend-a2")
    acl.rt.set_device(0)
    codes = [acl.rt.device_enable_peer_access(peer, 0) for peer in range(1, 16)]
    assert codes == [0] * 8 + [207005] * 7
    text = acl.get_recent_err_msg()
    assert "device 0 has peer access to devices 1, 2, 3, 4, 5, 6, 7, 8, and 8 are the most" in text
    assert acl.rt.device_enable_peer_access(8, 0) == 0
    assert [acl.rt.device_disable_peer_access(1), acl.rt.device_enable_peer_access(9, 0)] == [0, 0]


@pytest.mark.parametrize(
    ("profile", "policy", "code"),
    [(profile, policy, 0) for profile in ("ascend-310p", "ascend-a2", "default") for policy in (3, 4, 5, 7)]
    + [("ascend-310p", policy, 507899) for policy in (0, 1, 2, 6, 99, -1)]
    + [(profile, policy, 0) for profile in ("ascend-a2", "default") for policy in (0, 1, 2, 6, 99, -1)],
)
def test_acl_memcpy_between_devices_profile_decides_need_of_p2p_policy(
    profile: str, policy: int, code: int, enter: Any
) -> None:
    acl = enter(f"devices=2,memory=64MiB,profile={profile}")
    acl.rt.set_device(0)
    acl.rt.device_enable_peer_access(1, 0)
    on(acl, 1, "device_enable_peer_access", 0, 0)
    first, second = pair(acl, policy)
    assert acl.rt.memcpy(first, 64, second, 64, 3) == code
    if code:
        text = acl.get_recent_err_msg()
        assert "dst (allocation" in text and "src (allocation" in text
        assert "policy 3, 4, 5 or 7" in text and "peer=True" not in text
        acl.rt.free(first)
        first, _ = acl.rt.malloc(64, 3)
        assert acl.rt.memset(first, 64, 0, 64) == 0
        assert acl.rt.memcpy(first, 64, second, 64, 3) == code
        text = acl.get_recent_err_msg()
        assert "dst (allocation" not in text and "src (allocation" in text
    assert content(acl, first) == (b"\x00" if code else b"\x01") * 64


def test_acl_memcpy_within_one_device_needs_no_peer_access(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    first, second = pair(acl, a=1, b=1)
    assert acl.rt.memcpy(first, 64, second, 64, 3) == 0
    assert content(acl, first) == b"\x01" * 64
    assert acl.rt.device_enable_peer_access(0, 0) == 100000
    assert "both 0" in message()
