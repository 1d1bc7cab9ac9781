"""``acl.rt``: memory that two processes share by an export key."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from helpers.acl_calls import MIB, content, filled, holding, ok
from helpers.acl_peer import AclPeer
from peerlane.dialects.acl._state import machine

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]


@pytest.fixture
def acl(shared_acl: ModuleType) -> ModuleType:
    return shared_acl


def key_of(acl: ModuleType, pointer: int, size: int, *, to: AclPeer | None = None, flags: int = 0) -> str:
    key = ok(acl.rt.ipc_mem_get_export_key(pointer, size, 65, flags))
    if to is not None:
        ok(acl.rt.ipc_mem_set_import_pid(key, [to.pid]))
    return str(key)


@pytest.mark.parametrize("size", [1, 1000, 4 * MIB])
def test_acl_ipc_mem_import_by_key_shares_bytes_in_both_directions(
    acl: ModuleType, peer: AclPeer, size: int
) -> None:
    data = np.random.default_rng(size).bytes(size)
    before, pointer, after = filled(acl, size, 1), holding(acl, data), filled(acl, size, 2)
    key = key_of(acl, pointer, size, to=peer)
    assert len(key) == 64 and key.isascii()
    there = peer.ok("rt.ipc_mem_import_by_key", key, 0)
    assert peer.read(there, size) == data == content(acl, pointer, size)
    peer.ok("rt.memset", there, size, 0xCD, size)
    assert content(acl, pointer, size) == b"\xcd" * size
    assert content(acl, before, size) == b"\1" * size and content(acl, after, size) == b"\2" * size
    assert peer("rt.memset", there, size + 1, 0, size + 1) == 107000
    peer.ok("rt.ipc_mem_close", key)
    assert peer("rt.memset", there, size, 0, size) == 107000
    assert "which was closed by acl.rt.ipc_mem_close at " in peer("get_recent_err_msg")
    ok(acl.rt.ipc_mem_close(key))
    ok(acl.rt.free(pointer))


def test_acl_ipc_mem_export_of_first_10_bytes_limits_import_to_10(acl: ModuleType, peer: AclPeer) -> None:
    pointer = filled(acl, 1000, 3)
    there = peer.ok("rt.ipc_mem_import_by_key", key_of(acl, pointer, 10, to=peer), 0)
    assert peer.read(there, 10) == bytes([3]) * 10
    assert peer("rt.memset", there, 11, 0, 11) == 107000
    assert "10" in peer("get_recent_err_msg")
    assert content(acl, pointer, 1000) == bytes([3]) * 1000


def test_acl_ipc_mem_get_export_key_bad_arguments_return_codes(acl: ModuleType, peer: AclPeer) -> None:
    pointer = filled(acl, 100, 0)
    export = acl.rt.ipc_mem_get_export_key
    for arguments, code in (
        ((0, 100, 65, 0), 100000),
        ((pointer, 0, 65, 0), 100000),
        ((pointer, 100, 64, 0), 107000),
        ((pointer, 100, 0, 0), 107000),
        ((pointer, 100, 65, 2), 107000),
        ((pointer, 101, 65, 0), 107000),
        ((pointer + 64, 10, 65, 0), 107000),
        ((ok(acl.rt.malloc_host(100)), 100, 65, 0), 107000),
        ((4096, 100, 65, 0), 107000),
    ):
        assert export(*arguments) == ("", code), arguments
        assert acl.get_recent_err_msg()
    for length in (1024, 1 << 40):
        with pytest.raises(ValueError, match="len is"):
            export(pointer, 100, length, 0)
    assert len(ok(export(pointer, 100, 1023, 0))) == 64


def test_acl_ipc_mem_get_export_key_memory_not_of_malloc_returns_507899(
    acl: ModuleType, peer: AclPeer
) -> None:
    imported = peer.ok("rt.ipc_mem_import_by_key", key_of(acl, filled(acl, 100, 0), 100, to=peer), 0)
    assert peer("rt.ipc_mem_get_export_key", imported, 100, 65, 0) == ("", 507899)
    assert "was imported" in peer("get_recent_err_msg")
    assert peer("rt.free", imported) == 107000
    assert "acl.rt.ipc_mem_close" in peer("get_recent_err_msg")
    start = ok(acl.rt.reserve_mem_address(2 * MIB, 0, 0, 0))
    prop = {"memAttr": 4, "location": {"type": 1, "id": 0}}
    ok(acl.rt.map_mem(start, 2 * MIB, 0, ok(acl.rt.malloc_physical(2 * MIB, prop, 0)), 0))
    assert acl.rt.ipc_mem_get_export_key(start, 2 * MIB, 65, 0) == ("", 507899)
    assert "mem_export_to_shareable_handle" in acl.get_recent_err_msg()


def test_acl_ipc_mem_import_by_key_unlisted_process_returns_507899(acl: ModuleType, peer: AclPeer) -> None:
    key = key_of(acl, filled(acl, 100, 5), 100)
    assert peer("rt.ipc_mem_import_by_key", key, 0) == (0, 507899)
    assert f"does not let process {peer.pid}" in peer("get_recent_err_msg")
    assert peer("rt.ipc_mem_set_import_pid", key, [peer.pid]) == 507899
    ok(acl.rt.ipc_mem_set_import_pid(key, [os.getppid()] * 30 + [peer.pid]))
    peer.ok("rt.ipc_mem_import_by_key", key, 0)
    assert acl.rt.ipc_mem_import_by_key(key, 0) == (0, 507899)
    assert "this very process" in acl.get_recent_err_msg()


def test_acl_ipc_mem_set_import_pid_bad_list_returns_code_or_raises(acl: ModuleType) -> None:
    key = key_of(acl, filled(acl, 100, 0), 100)
    set_pids = acl.rt.ipc_mem_set_import_pid
    for pids, code in (([], 107000), ([os.getppid()] * 32, 107000), ([0], 107000), ([-5], 107000)):
        assert set_pids(key, pids) == code
    assert set_pids("A" * 64, [1]) == set_pids("", [1]) == 507899
    for wrong in ((1,), None, [None], ["1"]):
        with pytest.raises(ValueError, match="needs a list"):
            set_pids(key, wrong)
    with pytest.raises(TypeError):
        set_pids(key.encode(), [1])


def test_acl_ipc_mem_import_by_key_export_flag_1_lets_any_process_import(
    acl: ModuleType, peer: AclPeer
) -> None:
    key = key_of(acl, filled(acl, 100, 8), 100, flags=1)
    assert acl.rt.ipc_mem_set_import_pid(key, [peer.pid]) == 207006
    assert peer.read(peer.ok("rt.ipc_mem_import_by_key", key, 0), 100) == bytes([8]) * 100


def test_acl_ipc_mem_import_by_key_twice_returns_same_pointer(acl: ModuleType, peer: AclPeer) -> None:
    key = key_of(acl, filled(acl, 100, 6), 100, to=peer)
    first = peer.ok("rt.ipc_mem_import_by_key", key, 0)
    assert peer.ok("rt.ipc_mem_import_by_key", key, 0) == first
    peer.ok("rt.ipc_mem_close", key)
    assert peer.read(first, 100) == bytes([6]) * 100
    peer.ok("rt.ipc_mem_close", key)
    assert peer("rt.memset", first, 1, 0, 1) == 107000
    assert peer("rt.ipc_mem_close", key) == 507899
    assert peer.read(peer.ok("rt.ipc_mem_import_by_key", key, 0), 100) == bytes([6]) * 100


@pytest.mark.parametrize("end", ["ipc_mem_close", "free"])
def test_acl_ipc_mem_import_by_key_ended_by_exporter_returns_507899(
    acl: ModuleType, peer: AclPeer, end: str
) -> None:
    pointer = filled(acl, 100, 7)
    taken, untaken = key_of(acl, pointer, 100, to=peer), key_of(acl, pointer, 100, to=peer)
    assert taken != untaken
    there = peer.ok("rt.ipc_mem_import_by_key", taken, 0)
    if end == "free":
        ok(acl.rt.free(pointer))
    else:
        ok(acl.rt.ipc_mem_close(untaken))
        assert acl.rt.ipc_mem_close(untaken) == 507899
        assert acl.rt.ipc_mem_set_import_pid(untaken, [peer.pid]) == 507899
    assert peer.read(there, 100) == bytes([7]) * 100
    peer.ok("rt.ipc_mem_close", taken)
    assert peer("rt.ipc_mem_import_by_key", untaken, 0) == (0, 507899)
    assert "is no longer valid" in peer("get_recent_err_msg")


def test_acl_ipc_mem_keys_of_freed_memory_end_and_are_forgotten(acl: ModuleType, peer: AclPeer) -> None:
    pointer = filled(acl, 100, 7)
    taken, untaken = key_of(acl, pointer, 100, to=peer), key_of(acl, pointer, 100)
    peer.ok("rt.ipc_mem_import_by_key", taken, 0)
    ok(acl.rt.free(pointer))
    ok(acl.rt.ipc_mem_set_import_pid(taken, [os.getppid()]))  # others may import while the peer has it open
    for key in (untaken, taken):
        peer("rt.ipc_mem_close", key)
        deadline = time.monotonic() + 10
        while acl.rt.ipc_mem_set_import_pid(key, [os.getppid()]) == 0:
            assert time.monotonic() < deadline
        assert acl.rt.ipc_mem_set_import_pid(key, [os.getppid()]) == acl.rt.ipc_mem_close(key) == 507899
        assert "was freed" in acl.get_recent_err_msg()
    for _ in range(300):
        pointer = ok(acl.rt.malloc(100, 0))
        key_of(acl, pointer, 100)
        ok(acl.rt.free(pointer))
    assert len(machine.exported_keys) < 150


def test_acl_ipc_mem_calls_invalid_key_return_507899(acl: ModuleType, peer: AclPeer) -> None:
    key = key_of(acl, filled(acl, 100, 0), 100, to=peer)
    changed = ("B" if key[20] == "A" else "A").join((key[:20], key[21:]))
    for wrong in ("", "x" * 64, key[:-1], key + "A", changed):
        assert peer("rt.ipc_mem_import_by_key", wrong, 0) == (0, 507899), wrong
        assert peer("rt.ipc_mem_close", wrong) == 507899
    assert peer("rt.ipc_mem_import_by_key", key, 2) == (0, 107000)
    peer.ok("rt.reset_device", 0)
    assert peer("rt.ipc_mem_import_by_key", key, 0) == (0, 107002)


def test_acl_ipc_mem_import_by_key_flag_1_enables_peer_access_until_close(
    acl: ModuleType, peer: AclPeer
) -> None:
    pointer = filled(acl, 64, 9)
    key = key_of(acl, pointer, 64, to=peer)
    peer.ok("rt.set_device", 1)
    there = peer.ok("rt.ipc_mem_import_by_key", key, 1)
    target = peer.ok("rt.malloc", 64, 0)
    assert peer("rt.memcpy", target, 64, there, 64, 3) == 507899
    assert "device_enable_peer_access(1, 0) while device 0" in peer("get_recent_err_msg")
    ok(acl.rt.device_enable_peer_access(1, 0))
    assert peer.ok("rt.device_peer_access_status", 0, 1) == 1
    peer.ok("rt.memcpy", target, 64, there, 64, 3)
    assert peer.read(target, 64) == bytes([9]) * 64
    peer.ok("rt.ipc_mem_close", key)
    assert acl.rt.device_peer_access_status(0, 1) == (0, 0)


def test_acl_ipc_mem_imported_for_other_device_allows_only_async_device_copy(
    acl: ModuleType, peer: AclPeer
) -> None:
    pointer, h2d, d2h, d2d, default = filled(acl, 64, 9), 1, 2, 3, 4
    key = key_of(acl, pointer, 64, to=peer)
    near = peer.ok("rt.malloc", 64, 0)
    host = peer.ok("rt.malloc_host", 64)
    peer.ok("rt.set_device", 1)
    there = peer.ok("rt.ipc_mem_import_by_key", key, 0)
    for dst, src, kind, why in (
        (there, host, h2d, "to or from the host"),
        (host, there, d2h, "to or from the host"),
        (near, there, default, "with kind 4"),
    ):
        for call, *args in (
            ("memcpy", dst, 64, src, 64, kind),
            ("memcpy_async", dst, 64, src, 64, kind, 0),
            ("memcpy2d", dst, 8, src, 8, 8, 8, kind),
            ("memcpy2d_async", dst, 8, src, 8, 8, 8, kind, 0),
        ):
            assert peer(f"rt.{call}", *args) == 507899
            assert why in (text := peer("get_recent_err_msg")) and "set_device(0)" in text
    assert peer("rt.memcpy", near, 64, there, 64, d2d) == 507899
    assert "use acl.rt.memcpy_async" in peer("get_recent_err_msg")
    peer.ok("rt.memcpy_async", near, 64, there, 64, d2d, 0)
    peer.ok("rt.synchronize_stream", 0)
    assert peer.read(near, 64) == bytes([9]) * 64
    peer.ok("rt.set_device", 0)
    assert peer.ok("rt.ipc_mem_import_by_key", key, 0) == there
    peer.ok("rt.memcpy", host, 64, there, 64, d2h)
    peer.ok("rt.memcpy", near, 64, there, 64, default)


def test_acl_ipc_mem_exporter_killed_import_returns_507057_and_mapping_lives(
    acl: ModuleType, peer: AclPeer
) -> None:
    pointer = peer.ok("rt.malloc", 100, 0)
    peer.ok("rt.memset", pointer, 100, 4, 100)
    keys = [peer.ok("rt.ipc_mem_get_export_key", pointer, 100, 65, 1) for _ in range(2)]
    near = ok(acl.rt.ipc_mem_import_by_key(keys[0], 0))
    peer.kill()
    assert content(acl, near, 100) == bytes([4]) * 100
    assert acl.rt.ipc_mem_import_by_key(keys[1], 0) == (0, 507057)
    assert "has ended" in acl.get_recent_err_msg()
    ok(acl.rt.ipc_mem_close(keys[0]))


def test_acl_ipc_mem_get_export_key_on_310p_without_p2p_policy_returns_507899(
    enter: Callable[[str], ModuleType],
) -> None:
    acl = enter("devices=2,memory=64MiB,profile=ascend-310p")
    ok(acl.rt.set_device(0))
    assert acl.rt.ipc_mem_get_export_key(ok(acl.rt.malloc(100, 0)), 100, 65, 0) == ("", 507899)
    assert "P2P policy" in acl.get_recent_err_msg()
    for policy in (3, 4, 5, 7):
        ok(acl.rt.ipc_mem_get_export_key(ok(acl.rt.malloc(100, policy)), 100, 65, 0))
