"""``acl.rt``: notifies that two processes share by an export key."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from helpers.acl_calls import content, filled, ok
from helpers.acl_peer import AclPeer, acl_peer

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(180)]
SIZE = 1 << 16


@pytest.fixture
def acl(shared_acl: ModuleType) -> ModuleType:
    return shared_acl


@pytest.fixture
def far(shared_acl: ModuleType, shared_node: str) -> Iterator[AclPeer]:
    """Return another process of the node, device 1 set."""
    with acl_peer(shared_node, 1) as other:
        yield other


def shared(acl: ModuleType, peer: AclPeer) -> tuple[int, int]:
    """Return the handles of one notify in this process and in the peer."""
    notify = ok(acl.rt.create_notify(0))
    key = ok(acl.rt.notify_get_export_key(notify, 65, 0))
    ok(acl.rt.notify_set_import_pid(notify, [peer.pid]))
    return notify, peer.ok("rt.notify_import_by_key", key, 0)


def shared_memory(acl: ModuleType, peer: AclPeer) -> tuple[int, int]:
    """Return the addresses of one allocation in this process and in the peer."""
    pointer = filled(acl, SIZE, 0)
    key = ok(acl.rt.ipc_mem_get_export_key(pointer, SIZE, 65, 1))
    return pointer, peer.ok("rt.ipc_mem_import_by_key", key, 0)


def test_acl_shared_notifies_order_work_of_two_processes(acl: ModuleType, peer: AclPeer) -> None:
    (written, written_there), (read, read_there) = shared(acl, peer), shared(acl, peer)
    pointer, there = shared_memory(acl, peer)
    stream, stream_there = ok(acl.rt.create_stream()), peer.ok("rt.create_stream")
    copy = filled(acl, SIZE, 0)
    for value in range(
        1, 11
    ):  # each wait comes before its record; a process drives its stream only where it synchronizes
        ok(acl.rt.wait_and_reset_notify(written, stream, 0))
        ok(acl.rt.memcpy_async(copy, SIZE, pointer, SIZE, 3, stream))
        ok(acl.rt.memset_async(pointer, SIZE, 100 + value, SIZE, stream))
        ok(acl.rt.record_notify(read, stream))
        peer.ok("rt.memset_async", there, SIZE, value, SIZE, stream_there)
        peer.ok("rt.record_notify", written_there, stream_there)
        peer.ok("rt.synchronize_stream", stream_there)
        peer.ok("rt.wait_and_reset_notify", read_there, stream_there, 60)
        ok(acl.rt.synchronize_stream(stream))
        peer.ok("rt.synchronize_stream", stream_there)
        assert peer.read(there, SIZE) == bytes([100 + value]) * SIZE
        assert content(acl, copy, SIZE) == bytes([value]) * SIZE


def test_acl_notify_recorded_before_export_releases_importer(acl: ModuleType, peer: AclPeer) -> None:
    notify, stream = ok(acl.rt.create_notify(1)), ok(acl.rt.create_stream())
    ok(acl.rt.record_notify(notify, stream))
    ok(acl.rt.synchronize_stream(stream))
    key = ok(acl.rt.notify_get_export_key(notify, 1023, 2))
    there, stream_there = peer.ok("rt.notify_import_by_key", key, 0), peer.ok("rt.create_stream")
    peer.ok("rt.wait_and_reset_notify", there, stream_there, 60)
    peer.ok("rt.synchronize_stream", stream_there)
    ok(acl.rt.wait_and_reset_notify(notify, stream, 0))
    assert acl.rt.synchronize_stream_with_timeout(stream, 50) == 507046  # the peer's wait consumed the record
    peer.ok("rt.record_notify", there, stream_there)
    peer.ok("rt.synchronize_stream", stream_there)
    ok(acl.rt.synchronize_stream(stream))
    peer.ok("rt.record_notify", there, stream_there)
    peer.ok("rt.synchronize_stream", stream_there)
    ok(acl.rt.notify_batch_reset([notify]))
    peer.ok("rt.wait_and_reset_notify", there, stream_there, 1)
    assert peer("rt.synchronize_stream", stream_there) == 107019


def test_acl_notify_get_export_key_bad_arguments_return_codes(acl: ModuleType) -> None:
    notify, export = ok(acl.rt.create_notify(0)), acl.rt.notify_get_export_key
    for arguments, code in (
        ((0, 65, 0), 100000),
        ((4096, 65, 0), 107000),
        ((ok(acl.rt.create_stream()), 65, 0), 107000),
        ((notify, 64, 0), 107000),
        ((notify, 0, 0), 107000),
        ((notify, 65, 1), 107000),
        ((notify, 65, 3), 107000),
    ):
        assert export(*arguments) == ("", code), arguments
        assert acl.get_recent_err_msg()
    for length in (1024, 1 << 40):
        with pytest.raises(ValueError, match="len is"):
            export(notify, length, 0)
    key = ok(export(notify, 65, 0))
    assert len(key) == 64 and key.isascii()
    assert export(notify, 65, 0) == ("", 507899)
    assert "exported already" in acl.get_recent_err_msg()


def test_acl_notify_set_import_pid_bad_list_returns_code_or_raises(acl: ModuleType) -> None:
    notify, set_pids = ok(acl.rt.create_notify(0)), acl.rt.notify_set_import_pid
    assert set_pids(notify, [os.getppid()]) == 507899
    assert "was not exported" in acl.get_recent_err_msg()
    ok(acl.rt.notify_get_export_key(notify, 65, 0))
    for pids in ([], [0], [-5], [1 << 31]):
        assert set_pids(notify, pids) == 107000
    assert set_pids(0, [1]) == 100000 and set_pids(4096, [1]) == 107000
    for wrong in ((1,), None, [None], ["1"]):
        with pytest.raises(ValueError, match="needs a list"):
            set_pids(notify, wrong)
    with pytest.raises(TypeError):
        set_pids("A" * 64, [1])


def test_acl_notify_import_by_key_unlisted_process_returns_507899(acl: ModuleType, peer: AclPeer) -> None:
    notify = ok(acl.rt.create_notify(0))
    key = ok(acl.rt.notify_get_export_key(notify, 65, 0))
    assert peer("rt.notify_import_by_key", key, 0) == (0, 507899)
    assert f"does not let process {peer.pid}" in peer("get_recent_err_msg")
    ok(acl.rt.notify_set_import_pid(notify, [os.getppid(), peer.pid]))
    there = peer.ok("rt.notify_import_by_key", key, 0)
    assert peer("rt.notify_get_export_key", there, 65, 0) == ("", 507899)
    assert "was imported" in peer("get_recent_err_msg")
    assert peer("rt.notify_set_import_pid", there, [peer.pid]) == 507899
    assert acl.rt.notify_import_by_key(key, 0) == (0, 507899)
    assert "this very process" in acl.get_recent_err_msg()
    everyones = ok(acl.rt.create_notify(0))
    ok(acl.rt.notify_get_export_key(everyones, 65, 2))
    assert acl.rt.notify_set_import_pid(everyones, [peer.pid]) == 207006


def test_acl_notify_import_by_key_invalid_key_returns_507899(acl: ModuleType, peer: AclPeer) -> None:
    key = ok(acl.rt.notify_get_export_key(ok(acl.rt.create_notify(0)), 65, 2))
    of_memory = ok(acl.rt.ipc_mem_get_export_key(filled(acl, 100, 0), 100, 65, 1))
    changed = ("B" if key[20] == "A" else "A").join((key[:20], key[21:]))
    for wrong in ("", "x" * 64, key[:-1], key + "A", changed, of_memory):
        assert peer("rt.notify_import_by_key", wrong, 0) == (0, 507899), wrong
    assert "notify keys to acl.rt.notify_import_by_key" in peer("get_recent_err_msg")
    assert peer("rt.ipc_mem_import_by_key", key, 0) == (0, 507899)
    for flags in (1, 3):
        assert peer("rt.notify_import_by_key", key, flags) == (0, 107000)
    peer.ok("rt.reset_device", 0)
    assert peer("rt.notify_import_by_key", key, 0) == (0, 107002)


def test_acl_destroy_notify_in_one_process_leaves_other_import_working(
    acl: ModuleType, peer: AclPeer
) -> None:
    notify, stream = ok(acl.rt.create_notify(0)), ok(acl.rt.create_stream())
    key = ok(acl.rt.notify_get_export_key(notify, 65, 2))
    first, second = (peer.ok("rt.notify_import_by_key", key, 0) for _ in range(2))
    assert first != second
    stream_there = peer.ok("rt.create_stream")
    peer.ok("rt.destroy_notify", first)
    assert peer("rt.record_notify", first, stream_there) == 107000
    ok(acl.rt.record_notify(notify, stream))
    ok(acl.rt.synchronize_stream(stream))
    ok(acl.rt.destroy_notify(notify))
    assert peer("rt.notify_import_by_key", key, 0) == (0, 507899)
    assert "is no longer valid" in peer("get_recent_err_msg")
    peer.ok("rt.wait_and_reset_notify", second, stream_there, 60)
    peer.ok("rt.synchronize_stream", stream_there)
    peer.ok("rt.destroy_notify", second)


def test_acl_reset_device_last_reference_ends_notify_key(acl: ModuleType, peer: AclPeer) -> None:
    key = ok(acl.rt.notify_get_export_key(ok(acl.rt.create_notify(0)), 65, 2))
    there = peer.ok("rt.notify_import_by_key", key, 0)
    ok(acl.rt.reset_device(0))
    assert peer("rt.notify_import_by_key", key, 0) == (0, 507899)
    peer.ok("rt.reset_device", 0)
    peer.ok("rt.set_device", 0)
    assert peer("rt.destroy_notify", there) == 107000


def test_acl_imported_notify_on_other_device_records_and_wait_returns_107000(
    acl: ModuleType, far: AclPeer
) -> None:
    notify, stream = ok(acl.rt.create_notify(0)), ok(acl.rt.create_stream())
    key = ok(acl.rt.notify_get_export_key(notify, 65, 2))
    there, stream_there = far.ok("rt.notify_import_by_key", key, 0), far.ok("rt.create_stream")
    ok(acl.rt.wait_and_reset_notify(notify, stream, 0))
    far.ok("rt.record_notify", there, stream_there)
    far.ok("rt.synchronize_stream", stream_there)
    ok(acl.rt.synchronize_stream(stream))
    assert far("rt.wait_and_reset_notify", there, stream_there, 0) == 107000
    assert "was created on device 0" in far("get_recent_err_msg")
    far.ok("rt.set_device", 0)
    near = far.ok("rt.create_stream")
    assert far("rt.wait_and_reset_notify", there, near, 0) == 107003
    again = far.ok("rt.notify_import_by_key", key, 0)
    far.ok("rt.record_notify", again, near)
    far.ok("rt.wait_and_reset_notify", again, near, 60)
    far.ok("rt.synchronize_stream", near)


@pytest.mark.parametrize("end", ["destroy_notify", "reset_device"])
def test_acl_notify_import_by_key_flag_2_enables_peer_access_until_ended(
    acl: ModuleType, far: AclPeer, end: str
) -> None:
    key = ok(acl.rt.notify_get_export_key(ok(acl.rt.create_notify(0)), 65, 2))
    there = far.ok("rt.notify_import_by_key", key, 2)
    assert acl.rt.device_peer_access_status(1, 0) == (0, 0)
    ok(acl.rt.device_enable_peer_access(1, 0))
    assert acl.rt.device_peer_access_status(1, 0) == (1, 0)
    far.ok("rt.notify_import_by_key", key, 0)
    far.ok(f"rt.{end}", there if end == "destroy_notify" else 1)
    assert acl.rt.device_peer_access_status(1, 0) == (0, 0)


def test_acl_wait_and_reset_notify_recorder_killed_returns_507057(acl: ModuleType, peer: AclPeer) -> None:
    notify, _ = shared(acl, peer)
    key = peer.ok("rt.notify_get_export_key", peer.ok("rt.create_notify", 0), 65, 2)
    theirs = ok(acl.rt.notify_import_by_key(key, 0))
    first, second, target = ok(acl.rt.create_stream()), ok(acl.rt.create_stream()), filled(acl, 64, 0)
    ok(acl.rt.wait_and_reset_notify(notify, first, 0))
    ok(acl.rt.wait_and_reset_notify(theirs, second, 0))
    for stream in (first, second):
        assert acl.rt.synchronize_stream_with_timeout(stream, 50) == 507046
    peer.kill()
    for stream in (first, second):
        acl.get_recent_err_msg()
        assert acl.rt.synchronize_stream(stream) == 507057
        assert str(peer.pid) in acl.get_recent_err_msg()
        ok(acl.rt.memset_async(target, 64, 1, 64, stream))
        ok(acl.rt.synchronize_stream(stream))
    assert content(acl, target, 64) == bytes([1]) * 64
    assert acl.rt.notify_import_by_key(key, 0) == (0, 507057)
    assert "has ended" in acl.get_recent_err_msg()


def test_acl_notify_import_by_key_counts_against_profile_limit(enter: Callable[[str], ModuleType]) -> None:
    spec = f"name=acl-many-{os.getpid()},devices=1,memory=64MiB,profile=ascend-310p"
    acl = enter(spec)
    ok(acl.rt.set_device(0))
    with acl_peer(spec) as other:
        key = other.ok("rt.notify_get_export_key", other.ok("rt.create_notify", 0), 65, 2)
        for _ in range(1023):
            ok(acl.rt.create_notify(0))
        imported = ok(acl.rt.notify_import_by_key(key, 0))
        assert acl.rt.notify_import_by_key(key, 0) == acl.rt.create_notify(0) == (0, 207009)
        ok(acl.rt.destroy_notify(imported))
        ok(acl.rt.create_notify(0))


def test_acl_notify_import_by_key_across_switches_returns_207000(enter: Callable[[str], ModuleType]) -> None:
    spec = f"name=acl-apart-{os.getpid()},devices=2,memory=64MiB,switch=1"
    acl = enter(spec)
    ok(acl.rt.set_device(0))
    with acl_peer(spec, 1) as other:
        key = other.ok("rt.notify_get_export_key", other.ok("rt.create_notify", 0), 65, 2)
        assert acl.rt.notify_import_by_key(key, 0) == (0, 207000)
