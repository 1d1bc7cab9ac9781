"""``acl.rt``: peer access that two processes enable, one direction each."""

from __future__ import annotations

from types import ModuleType

import pytest

import peerlane
from helpers.acl_calls import content, filled, ok
from helpers.acl_peer import AclPeer

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def pointers(shared_acl: ModuleType) -> tuple[int, int]:
    """Return memory of device 1 and of device 0, which is set."""
    ok(shared_acl.rt.set_device(1))
    far = filled(shared_acl, 64, 0)
    ok(shared_acl.rt.set_device(0))
    return far, filled(shared_acl, 64, 7)


def test_acl_peer_access_one_direction_per_process_takes_effect_in_both(
    shared_acl: ModuleType, peer: AclPeer, pointers: tuple[int, int]
) -> None:
    acl, (far, near) = shared_acl, pointers
    stream = ok(acl.rt.create_stream())

    def statuses() -> list[int]:
        found = [
            call("rt.device_peer_access_status", a, b)[0] for call in (peer,) for a, b in ((0, 1), (1, 0))
        ]
        return found + [acl.rt.device_peer_access_status(a, b)[0] for a, b in ((0, 1), (1, 0))]

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


def test_acl_memcpy_both_directions_enabled_by_other_process_succeeds(
    shared_acl: ModuleType, peer: AclPeer, pointers: tuple[int, int]
) -> None:
    acl, (far, near) = shared_acl, pointers
    peer.ok("rt.device_enable_peer_access", 1, 0)
    peer.ok("rt.set_device", 1)
    peer.ok("rt.device_enable_peer_access", 0, 0)
    ok(acl.rt.memcpy(far, 64, near, 64, 3))
    assert acl.rt.device_disable_peer_access(1) == 507899
    assert not any(device.peers for device in peerlane.devices())


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
