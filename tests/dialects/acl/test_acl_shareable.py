"""``acl.rt``: shareable handles between two processes; a test makes each call of both."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from helpers.acl_calls import MIB, content, holding, ok
from helpers.acl_peer import AclPeer
from helpers.launched import until
from peerlane import _core

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]

GRANULE = 2 * MIB
PROP = {"memAttr": 4, "location": {"type": 1, "id": 0}}


@pytest.fixture
def acl(shared_acl: ModuleType) -> ModuleType:
    return shared_acl


def exported(acl: ModuleType, *, to: AclPeer | None = None, flags: int = 0) -> tuple[int, int]:
    """Return new physical memory and its shareable handle, which ``to`` may import."""
    handle = ok(acl.rt.malloc_physical(GRANULE, PROP, 0))
    shareable = ok(acl.rt.mem_export_to_shareable_handle(handle, 0, flags))
    if to is not None:
        ok(acl.rt.mem_set_pid_to_shareable_handle(shareable, [to.ok("rt.device_get_bare_tgid")]))
    return handle, shareable


def mapped(acl: ModuleType, handle: int) -> int:
    start = ok(acl.rt.reserve_mem_address(GRANULE, 0, 0, 1))
    ok(acl.rt.map_mem(start, GRANULE, 0, handle, 0))
    return int(start)


def mapped_there(peer: AclPeer, handle: int) -> int:
    start = peer.ok("rt.reserve_mem_address", GRANULE, 0, 0, 1)
    peer.ok("rt.map_mem", start, GRANULE, 0, handle, 0)
    return int(start)


def test_acl_shareable_handle_import_shares_bytes_in_both_directions(acl: ModuleType, peer: AclPeer) -> None:
    assert peer.ok("rt.device_get_bare_tgid") == peer.pid and acl.rt.device_get_bare_tgid() == (
        os.getpid(),
        0,
    )
    handle, shareable = exported(acl, to=peer)
    near = mapped(acl, handle)
    data = np.random.default_rng(3).bytes(GRANULE)
    ok(acl.rt.memcpy(near, GRANULE, holding(acl, data), GRANULE, 3))
    there = mapped_there(peer, peer.ok("rt.mem_import_from_shareable_handle", shareable, 0))
    assert peer.read(there, GRANULE) == data
    stream = peer.ok("rt.create_stream")
    peer.ok("rt.memset_async", there + 100, 50, 0xAB, 50, stream)
    peer.ok("rt.synchronize_stream", stream)
    assert content(acl, near, 200) == data[:100] + b"\xab" * 50 + data[150:200]


def test_acl_shareable_memory_is_charged_once_until_both_processes_free_it(
    acl: ModuleType, peer: AclPeer
) -> None:
    def free() -> int:
        return int(ok(acl.rt.get_mem_info(1))[0])

    before = free()
    handle, shareable = exported(acl, to=peer)
    ok(acl.rt.memset(mapped(acl, handle), GRANULE, 5, GRANULE))
    imported = peer.ok("rt.mem_import_from_shareable_handle", shareable, 0)
    there = mapped_there(peer, imported)
    assert free() == before - GRANULE
    start = ok(acl.rt.reserve_mem_address(GRANULE, 0, 0, 1))
    ok(acl.rt.map_mem(start, GRANULE, 0, handle, 0))
    ok(acl.rt.free_physical(handle))
    assert free() == before - GRANULE
    peer.ok("rt.free_physical", imported)
    assert peer.read(there, GRANULE) == bytes([5]) * GRANULE
    peer.ok("rt.unmap_mem", there)
    assert content(acl, start, GRANULE) == bytes([5]) * GRANULE


def test_acl_shareable_memory_freed_by_exporter_lives_in_importer(acl: ModuleType, peer: AclPeer) -> None:
    handle, shareable = exported(acl, to=peer)
    near = mapped(acl, handle)
    ok(acl.rt.memset(near, GRANULE, 6, GRANULE))
    imported = peer.ok("rt.mem_import_from_shareable_handle", shareable, 0)
    ok(acl.rt.unmap_mem(near))
    ok(acl.rt.free_physical(handle))
    there = mapped_there(peer, imported)
    assert peer.read(there, GRANULE) == bytes([6]) * GRANULE
    peer.ok("rt.unmap_mem", there)
    peer.ok("rt.free_physical", imported)
    assert peer("rt.mem_import_from_shareable_handle", shareable, 0) == (0, 107017)
    assert acl.rt.mem_set_pid_to_shareable_handle(shareable, [peer.pid]) == 107017


def test_acl_shareable_handle_last_reference_freed_import_returns_107017(
    acl: ModuleType, peer: AclPeer
) -> None:
    handle, shareable = exported(acl, to=peer)
    near = mapped(acl, handle)
    ok(acl.rt.free_physical(handle))  # the mapping keeps the handle valid
    first = peer.ok("rt.mem_import_from_shareable_handle", shareable, 0)
    peer.ok("rt.free_physical", first)
    ok(acl.rt.unmap_mem(near))
    assert peer("rt.mem_import_from_shareable_handle", shareable, 0) == (0, 107017)
    assert "is no longer valid" in peer("get_recent_err_msg")
    assert acl.rt.mem_set_pid_to_shareable_handle(shareable, [peer.pid]) == 107017
    text = acl.get_recent_err_msg()
    assert f"{shareable} is over: its memory was freed" in text and "<Handle" not in text


def test_acl_mem_export_to_shareable_handle_twice_returns_507899(acl: ModuleType, peer: AclPeer) -> None:
    handle, shareable = exported(acl, to=peer)
    assert acl.rt.mem_export_to_shareable_handle(handle, 0, 0) == (0, 507899)
    assert str(shareable) in acl.get_recent_err_msg()
    imported = peer.ok("rt.mem_import_from_shareable_handle", shareable, 0)
    assert peer("rt.mem_export_to_shareable_handle", imported, 0, 0) == (0, 507899)
    assert "was imported" in peer("get_recent_err_msg")


def test_acl_mem_export_to_shareable_handle_bad_arguments_return_codes(acl: ModuleType) -> None:
    handle = ok(acl.rt.malloc_physical(GRANULE, PROP, 0))
    assert acl.rt.mem_export_to_shareable_handle(0, 0, 0) == (0, 100000)
    assert acl.rt.mem_export_to_shareable_handle(handle, 1, 0) == (0, 100000)
    assert acl.rt.mem_export_to_shareable_handle(handle, 0, 2) == (0, 107000)
    assert acl.rt.mem_export_to_shareable_handle(99, 0, 0) == (0, 107000)
    ok(acl.rt.mem_export_to_shareable_handle(handle, 0, 0))


def test_acl_mem_import_from_shareable_handle_unlisted_process_returns_507899(
    acl: ModuleType, peer: AclPeer
) -> None:
    handle, shareable = exported(acl)
    assert peer("rt.mem_import_from_shareable_handle", shareable, 0) == (0, 507899)
    assert f"does not let process {peer.pid}" in peer("get_recent_err_msg")
    ok(acl.rt.mem_set_pid_to_shareable_handle(shareable, [0, os.getppid(), 0]))
    assert peer("rt.mem_import_from_shareable_handle", shareable, 0) == (0, 507899)
    ok(acl.rt.mem_set_pid_to_shareable_handle(shareable, [0]))
    ok(acl.rt.mem_set_pid_to_shareable_handle(shareable, [peer.pid]))
    peer.ok("rt.mem_import_from_shareable_handle", shareable, 0)
    assert acl.rt.mem_import_from_shareable_handle(shareable, 0) == (0, 507899)
    assert "this very process" in acl.get_recent_err_msg()
    ok(acl.rt.free_physical(handle))


@pytest.mark.parametrize(
    ("start", "words"), [(0, "before there was such a process"), (12345, "when another")]
)
def test_acl_mem_import_from_shareable_handle_reused_process_id_returns_507899(
    acl: ModuleType, peer: AclPeer, monkeypatch: pytest.MonkeyPatch, start: int, words: str
) -> None:
    _, shareable = exported(acl)
    # Simulate that no process, or another one, had the process id when it was listed.
    with monkeypatch.context() as then:
        then.setattr(_core, "allow", functools.partial(_core.allow, start=start))
        ok(acl.rt.mem_set_pid_to_shareable_handle(shareable, [peer.pid]))
    assert peer("rt.mem_import_from_shareable_handle", shareable, 0) == (0, 507899)
    assert words in peer("get_recent_err_msg")
    ok(acl.rt.mem_set_pid_to_shareable_handle(shareable, [peer.pid]))
    peer.ok("rt.mem_import_from_shareable_handle", shareable, 0)


def test_acl_mem_set_pid_to_shareable_handle_by_importer_returns_507899(
    acl: ModuleType, peer: AclPeer
) -> None:
    _, shareable = exported(acl, to=peer)
    for _ in range(2):
        assert peer("rt.mem_set_pid_to_shareable_handle", shareable, [os.getpid()]) == 507899
        assert f"process {os.getpid()} made" in peer("get_recent_err_msg")
        peer.ok("rt.mem_import_from_shareable_handle", shareable, 0)


def test_acl_mem_set_pid_to_shareable_handle_bad_list_returns_code_or_raises(acl: ModuleType) -> None:
    _, shareable = exported(acl)
    set_pids = acl.rt.mem_set_pid_to_shareable_handle
    assert set_pids(shareable, []) == 107000
    assert set_pids(shareable, [-1]) == 107000
    assert set_pids(shareable, [1 << 31]) == 107000
    for wrong in ((1,), None, 5, [None], ["1"], [1.0]):
        with pytest.raises(ValueError, match="needs a list"):
            set_pids(shareable, wrong)
    for unknown in (0, 1, shareable + 1, shareable ^ 1 << 40, 1 << 63):
        assert set_pids(unknown, [os.getppid()]) == 107017, unknown
        assert acl.get_recent_err_msg()


def test_acl_mem_import_export_flag_1_lets_any_process_import(acl: ModuleType, peer: AclPeer) -> None:
    handle, shareable = exported(acl, flags=1)
    assert acl.rt.mem_set_pid_to_shareable_handle(shareable, [peer.pid]) == 207006
    imported = peer.ok("rt.mem_import_from_shareable_handle", shareable, 0)
    ok(acl.rt.free_physical(handle))
    assert (
        acl.rt.mem_set_pid_to_shareable_handle(shareable, [peer.pid]) == 207006
    )  # the peer's import keeps it valid
    peer.ok("rt.free_physical", imported)
    # The peer's release arrives as a message; no call waits for it.
    until(lambda: acl.rt.mem_set_pid_to_shareable_handle(shareable, [peer.pid]) != 207006)
    assert acl.rt.mem_set_pid_to_shareable_handle(shareable, [peer.pid]) == 107017
    handle, shareable = exported(acl, flags=1)
    ok(acl.rt.free_physical(handle))
    assert acl.rt.mem_set_pid_to_shareable_handle(shareable, [peer.pid]) == 107017


def test_acl_mem_import_unknown_handle_returns_107017(acl: ModuleType, peer: AclPeer) -> None:
    _, shareable = exported(acl, to=peer)
    for unknown in (0, 5, shareable ^ 1, shareable ^ 1 << 30, shareable ^ 1 << 55, (1 << 64) - 1):
        assert peer("rt.mem_import_from_shareable_handle", unknown, 0) == (0, 107017), unknown
    for device in (-1, 2):
        assert peer("rt.mem_import_from_shareable_handle", shareable, device) == (0, 107001)


@pytest.mark.parametrize("number", [1, 12345, (1 << 28) - 1])
def test_acl_mem_import_number_that_is_not_a_handle_is_explained(
    enter: Callable[[str], ModuleType], number: int
) -> None:
    acl = enter("name=acl-tagged,devices=1,memory=64MiB")
    ok(acl.rt.set_device(0))
    for result in (
        acl.rt.mem_import_from_shareable_handle(number, 0),
        (0, acl.rt.mem_set_pid_to_shareable_handle(number, [1])),
    ):
        assert result == (0, 107017)
    for text in acl.get_recent_err_msg().split("EE1001")[1:] or [""]:
        assert f"{number:#x} is not a handle of this process's node 'acl-tagged'" in text
        assert "belongs to another node" not in text


def test_acl_mem_import_twice_returns_same_handle(acl: ModuleType, peer: AclPeer) -> None:
    handle, shareable = exported(acl, to=peer)
    ok(acl.rt.memset(mapped(acl, handle), GRANULE, 4, GRANULE))
    first = peer.ok("rt.mem_import_from_shareable_handle", shareable, 0)
    assert peer.ok("rt.mem_import_from_shareable_handle", shareable, 0) == first
    assert peer.ok("rt.mem_import_from_shareable_handle", shareable, 1) != first
    peer.ok("rt.free_physical", first)
    there = mapped_there(peer, first)
    assert peer.read(there, 8) == bytes([4]) * 8
    peer.ok("rt.free_physical", first)
    assert peer("rt.free_physical", first) == 107000
    assert peer.read(there, 8) == bytes([4]) * 8


def test_acl_map_mem_own_and_imported_memory_in_one_reservation_returns_507899(
    acl: ModuleType, peer: AclPeer
) -> None:
    _, shareable = exported(acl, to=peer)
    imported = peer.ok("rt.mem_import_from_shareable_handle", shareable, 0)
    own = peer.ok("rt.malloc_physical", GRANULE, PROP, 0)
    start = peer.ok("rt.reserve_mem_address", 2 * GRANULE, 0, 0, 0)
    peer.ok("rt.map_mem", start, GRANULE, 0, own, 0)
    assert peer("rt.map_mem", start + GRANULE, GRANULE, 0, imported, 0) == 507899
    assert "holds own memory, and this is imported" in peer("get_recent_err_msg")


def test_acl_mem_import_for_other_device_copy_needs_peer_access(acl: ModuleType, peer: AclPeer) -> None:
    handle, shareable = exported(acl, to=peer)
    ok(acl.rt.memset(mapped(acl, handle), GRANULE, 7, GRANULE))
    peer.ok("rt.set_device", 1)
    there = mapped_there(peer, peer.ok("rt.mem_import_from_shareable_handle", shareable, 1))
    target = peer.ok("rt.malloc", 64, 0)
    assert peer("rt.memcpy", target, 64, there, 64, 3) == 507899
    assert "device_enable_peer_access(1, 0) while device 0" in peer("get_recent_err_msg")
    peer.ok("rt.device_enable_peer_access", 0, 0)
    assert peer("rt.memcpy", target, 64, there, 64, 3) == 507899
    ok(acl.rt.device_enable_peer_access(1, 0))  # this process enables the other direction
    peer.ok("rt.memcpy", target, 64, there, 64, 3)
    assert peer.read(target, 64) == bytes([7]) * 64


def test_acl_shareable_handles_of_1000_freed_exports_are_forgotten(acl: ModuleType) -> None:
    from peerlane.dialects.acl._state import machine

    for _ in range(1000):
        handle, shareable = exported(acl)
        ok(acl.rt.free_physical(handle))
    assert len(machine.exported_memory) < 200
    assert acl.rt.mem_set_pid_to_shareable_handle(shareable, [os.getppid()]) == 107017


def test_acl_shareable_exporter_killed_import_returns_507057_and_mapping_lives(
    acl: ModuleType, peer: AclPeer
) -> None:
    handle = peer.ok("rt.malloc_physical", GRANULE, PROP, 0)
    theirs = peer.ok("rt.mem_export_to_shareable_handle", handle, 0, 1)
    start = mapped_there(peer, handle)
    peer.ok("rt.memset", start, GRANULE, 9, GRANULE)
    late = peer.ok("rt.malloc_physical", GRANULE, PROP, 0)
    unseen = peer.ok("rt.mem_export_to_shareable_handle", late, 0, 1)
    near = mapped(acl, ok(acl.rt.mem_import_from_shareable_handle(theirs, 0)))
    peer.kill()
    assert content(acl, near, GRANULE) == bytes([9]) * GRANULE
    assert acl.rt.mem_import_from_shareable_handle(unseen, 0) == (0, 507057)
    assert "has ended" in acl.get_recent_err_msg()
    assert acl.rt.mem_set_pid_to_shareable_handle(unseen, [os.getpid()]) == 107017


def test_acl_mem_export_on_310p_without_p2p_attribute_returns_507899(
    enter: Callable[[str], ModuleType],
) -> None:
    acl = enter("devices=2,memory=64MiB,profile=ascend-310p")
    ok(acl.rt.set_device(0))
    handle = ok(acl.rt.malloc_physical(GRANULE, PROP, 0))
    assert acl.rt.mem_export_to_shareable_handle(handle, 0, 0) == (0, 507899)
    assert "P2P attribute" in acl.get_recent_err_msg()
    for attribute in (8, 9, 15, 16):
        handle = ok(acl.rt.malloc_physical(GRANULE, {**PROP, "memAttr": attribute}, 0))
        ok(acl.rt.mem_export_to_shareable_handle(handle, 0, 0))
