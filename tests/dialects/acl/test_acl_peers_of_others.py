"""``acl.rt``: peer access that another process enabled, and when it counts."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest

import peerlane
from helpers.acl_calls import content, filled, ok
from helpers.acl_peer import AclPeer, acl_peer
from peerlane.testing.procs import run_python

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(180)]


@pytest.fixture
def pointers(shared_acl: ModuleType) -> tuple[int, int]:
    """Return memory of device 1 and of device 0, which is set."""
    ok(shared_acl.rt.set_device(1))
    far = filled(shared_acl, 64, 0)
    ok(shared_acl.rt.set_device(0))
    return far, filled(shared_acl, 64, 7)


@pytest.fixture
def all_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let peer access count that any process of the node enabled."""
    monkeypatch.setenv("PEERLANE_ACL_POLICY", "kinds=checked,peers=node")


def enable_both(peer: AclPeer) -> None:
    """Enable access in both directions in the other process."""
    peer.ok("rt.device_enable_peer_access", 1, 0)
    peer.ok("rt.set_device", 1)
    peer.ok("rt.device_enable_peer_access", 0, 0)


def test_acl_peer_access_that_a_stranger_enabled_changes_no_result(
    shared_acl: ModuleType, peer: AclPeer, pointers: tuple[int, int]
) -> None:
    acl, (far, near) = shared_acl, pointers
    enable_both(peer)
    assert acl.rt.memcpy(far, 64, near, 64, 3) == 507899
    text = acl.get_recent_err_msg()
    assert f"process {peer.pid} made it, which shares no handle with this one" in text
    assert "under PEERLANE_ACL_POLICY=peers=node the calls of all processes count" in text
    assert content(acl, far, 64) == bytes(64)
    assert acl.rt.device_peer_access_status(0, 1) == (0, 0)
    assert peer("rt.device_peer_access_status", 0, 1) == (1, 0)
    ok(acl.rt.device_enable_peer_access(1, 0))
    assert acl.rt.memcpy(far, 64, near, 64, 3) == 507899
    ok(acl.rt.set_device(1))
    ok(acl.rt.device_enable_peer_access(0, 0))
    ok(acl.rt.memcpy(far, 64, near, 64, 3))
    assert peerlane.devices()[0].backend.relied_on() == ()


@pytest.mark.parametrize("exporter", ["this process", "the other process"])
def test_acl_peer_access_of_a_process_that_shares_memory_counts_and_is_named(
    shared_acl: ModuleType, peer: AclPeer, pointers: tuple[int, int], exporter: str
) -> None:
    acl, (far, near) = shared_acl, pointers
    ok(acl.rt.device_enable_peer_access(1, 0))
    peer.ok("rt.set_device", 1)
    peer.ok("rt.device_enable_peer_access", 0, 0)
    assert acl.rt.memcpy(far, 64, near, 64, 3) == 507899
    if exporter == "this process":
        key = ok(acl.rt.ipc_mem_get_export_key(far, 64, 65, 1))
        peer.ok("rt.ipc_mem_import_by_key", key, 0)
    else:
        memory = peer.ok("rt.malloc", 64, 0)
        key = peer.ok("rt.ipc_mem_get_export_key", memory, 64, 65, 1)
        ok(acl.rt.set_device(1))
        far = ok(acl.rt.ipc_mem_import_by_key(key, 0))
    ok(acl.rt.memcpy(far, 64, near, 64, 3))
    assert content(acl, far, 64) == bytes([7]) * 64
    assert acl.rt.device_peer_access_status(0, 1) == peer("rt.device_peer_access_status", 0, 1) == (1, 0)
    assert peerlane.devices()[0].backend.relied_on() == (peer.pid,)
    peer.kill()
    assert acl.rt.device_peer_access_status(0, 1) == (0, 0)


def test_acl_peer_access_counts_still_when_the_shared_memory_was_closed(
    shared_acl: ModuleType, peer: AclPeer, pointers: tuple[int, int]
) -> None:
    acl, (far, near) = shared_acl, pointers
    enable_both(peer)
    key = ok(acl.rt.ipc_mem_get_export_key(near, 64, 65, 1))
    peer.ok("rt.ipc_mem_import_by_key", key, 0)
    ok(acl.rt.memcpy(far, 64, near, 64, 3))
    peer.ok("rt.ipc_mem_close", key)
    ok(acl.rt.memcpy(far, 64, near, 64, 3))


@pytest.mark.any_schedule
def test_acl_result_that_rests_on_another_process_names_it_at_the_end(
    shared_node: str, tmp_path: Path
) -> None:
    program = """
import sys, acl
acl.init()
acl.rt.set_device(0)
near, _ = acl.rt.malloc(64, 0)
acl.rt.set_device(1)
far, _ = acl.rt.malloc(64, 0)
sys.exit(acl.rt.memcpy(far, 64, near, 64, 3) != 0)
"""
    with acl_peer(shared_node) as peer:
        enable_both(peer)
        rule = {"PEERLANE_ACL_POLICY": "peers=node", "PEERLANE_EXPLAIN": "1", "PEERLANE_NODE": shared_node}
        words = ["-m", "peerlane", "run", "-c", program]
        done = run_python(words, timeout=60, env={**os.environ, **rule}, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        named = f"had not enabled itself, but process {peer.pid}, which shares handles with it or counts"
        assert named in done.stderr


@pytest.mark.usefixtures("all_count")
def test_acl_peer_access_one_direction_per_process_takes_effect_in_both(
    shared_acl: ModuleType, peer: AclPeer, pointers: tuple[int, int]
) -> None:
    acl, (far, near) = shared_acl, pointers
    stream = ok(acl.rt.create_stream())

    def statuses() -> list[int]:
        reported = [
            call("rt.device_peer_access_status", a, b)[0] for call in (peer,) for a, b in ((0, 1), (1, 0))
        ]
        return reported + [acl.rt.device_peer_access_status(a, b)[0] for a, b in ((0, 1), (1, 0))]

    def copied() -> list[int]:
        codes = [acl.rt.memcpy(far, 64, near, 64, 3), acl.rt.memcpy2d(far, 64, near, 64, 64, 1, 3)]
        ok(acl.rt.memcpy_async(far, 64, near, 64, 3, stream))
        return [*codes, acl.rt.synchronize_stream(stream)]

    ok(acl.rt.device_enable_peer_access(1, 0))
    assert statuses() == [0] * 4 and copied() == [507899] * 3
    assert "device_enable_peer_access(0, 0) while device 1" in acl.get_recent_err_msg()
    peer.ok("rt.set_device", 1)
    peer.ok("rt.device_enable_peer_access", 0, 0)
    peer.ok("rt.device_enable_peer_access", 0, 0)
    assert statuses() == [1] * 4 and copied() == [0] * 3
    assert content(acl, far, 64) == bytes([7]) * 64
    peer.ok("rt.device_disable_peer_access", 0)
    assert statuses() == [1] * 4 and copied() == [0] * 3
    peer.ok("rt.device_disable_peer_access", 0)
    assert statuses() == [0] * 4 and copied() == [507899] * 3
    assert acl.rt.device_disable_peer_access(1) == 0
    assert acl.rt.device_disable_peer_access(1) == 507899


@pytest.mark.usefixtures("all_count")
def test_acl_memcpy_both_directions_enabled_by_other_process_succeeds(
    shared_acl: ModuleType, peer: AclPeer, pointers: tuple[int, int]
) -> None:
    acl, (far, near) = shared_acl, pointers
    enable_both(peer)
    ok(acl.rt.memcpy(far, 64, near, 64, 3))
    assert acl.rt.device_disable_peer_access(1) == 507899
    assert not any(device.peers for device in peerlane.devices())


@pytest.mark.usefixtures("all_count")
def test_acl_peer_access_enabled_by_killed_process_ends(
    shared_acl: ModuleType, peer: AclPeer, pointers: tuple[int, int]
) -> None:
    acl, (far, near) = shared_acl, pointers
    ok(acl.rt.device_enable_peer_access(1, 0))
    peer.ok("rt.set_device", 1)
    peer.ok("rt.device_enable_peer_access", 0, 0)
    ok(acl.rt.memcpy(far, 64, near, 64, 3))
    peer.kill()
    assert acl.rt.device_peer_access_status(0, 1) == (0, 0)
    assert acl.rt.memcpy(far, 64, near, 64, 3) == 507899
    ok(acl.rt.set_device(1))
    ok(acl.rt.device_enable_peer_access(0, 0))
    ok(acl.rt.memcpy(far, 64, near, 64, 3))


@pytest.mark.usefixtures("all_count")
def test_acl_peer_access_of_acl_survives_discard_by_neutral_api(
    shared_acl: ModuleType, peer: AclPeer
) -> None:
    acl, (d0, d1) = shared_acl, peerlane.devices()
    ok(acl.rt.device_enable_peer_access(1, 0))
    d0.peers.add(d1)
    d0.peers.discard(d1)
    peer.ok("rt.set_device", 1)
    peer.ok("rt.device_enable_peer_access", 0, 0)
    assert acl.rt.device_peer_access_status(0, 1) == peer("rt.device_peer_access_status", 0, 1) == (1, 0)
