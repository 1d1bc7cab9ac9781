"""``ASCEND_RT_VISIBLE_DEVICES``: which devices of the node a process sees, and how it numbers them."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType

import pytest

import peerlane
from helpers.acl_calls import content, filled, in_thread, ok
from helpers.acl_peer import acl_peer

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]
Shown = Callable[..., ModuleType]
SIZE = 2 << 20
FREE = 64 << 20
# Expectations of the unit tests of the vendor's runtime for a machine with 3 devices (hicann/runtime).
LISTS = [
    *[("0,1,2", [0, 1, 2]), ("0,1", [0, 1]), ("1", [1]), ("1,2", [1, 2]), ("0,2", [0, 2])],
    *[("", []), (",0", []), ("-1,2", []), ("10", []), ("10,", []), ("10#", []), ("x", []), (" 1", [])],
    *[("0,1,5,7", [0, 1]), ("1,,", [1]), ("1,", [1]), ("1*", [1]), ("0,1$0,", [0, 1]), ("0#1,", [0])],
    *[("1, 2", [1]), ("1 ,2", [1]), ("1,-1", [1]), ("0,1,3,4", [0, 1]), ("0-2", [0]), ("0x1", [0])],
    *[("0,1,1", []), ("1,0,1", []), ("1,1,0", []), ("1,0", []), ("2,1", []), ("0,1,2,0", [0, 1, 2])],
    *[("1234567891012345678910123456789", []), ("9" * 5000, [])],
]


@pytest.fixture
def shown(enter: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Return a function that enters a node of 3 devices with a list of visible ones."""

    def show(listed: str, spec: str = "devices=3,memory=64MiB") -> ModuleType:
        monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", listed)
        return enter(spec)

    return show


def free() -> list[int]:
    return [device.free_bytes for device in peerlane.devices()]


@pytest.mark.parametrize(("listed", "wanted"), LISTS, ids=[listed[:20] or "empty" for listed, _ in LISTS])
def test_acl_visible_devices_list_ends_before_first_invalid_entry(
    shown: Shown, listed: str, wanted: list[int]
) -> None:
    acl = shown(listed)
    assert acl.rt.get_device_count() == ((len(wanted), 0) if wanted else (0, 207004))
    assert [ok(acl.rt.get_logic_dev_id_by_user_dev_id(user)) for user in range(len(wanted))] == wanted
    for beyond in (-1, len(wanted), 9):
        assert acl.rt.set_device(beyond) == 107001
    for user, logic in enumerate(wanted):
        ok(acl.rt.set_device(user))
        assert acl.rt.get_device() == (user, 0)
        ok(acl.rt.malloc(SIZE, 0))
        assert [at for at, left in enumerate(free()) if left < FREE] == wanted[: user + 1]
        assert acl.rt.get_user_dev_id_by_logic_dev_id(logic) == (user, 0)


def test_acl_visible_devices_unset_shows_all(enter: Callable[[str], ModuleType]) -> None:
    acl = enter("devices=3,memory=64MiB")
    assert acl.rt.get_device_count() == (3, 0)
    assert [acl.rt.get_user_dev_id_by_logic_dev_id(at) for at in range(4)] == [
        (0, 0),
        (1, 0),
        (2, 0),
        (0, 107001),
    ]


def test_acl_visible_devices_list_showing_none_message_explains_it(shown: Shown) -> None:
    acl = shown("2,1")
    assert acl.rt.get_device_count() == (0, 207004)
    text = acl.get_recent_err_msg()
    assert "ASCEND_RT_VISIBLE_DEVICES='2,1' shows none of the node's 3" in text and "ascending" in text
    assert acl.rt.set_device(0) == 107001
    text = acl.get_recent_err_msg()
    assert "ASCEND_RT_VISIBLE_DEVICES='2,1' shows none" in text
    assert "or unset it" in text and "--devices" not in text
    assert acl.get_soc_name() is None


def test_acl_visible_devices_id_calls_translate_numbers(shown: Shown) -> None:
    acl = shown("1,2")
    assert [acl.rt.get_phy_dev_id_by_logic_dev_id(at) for at in range(4)] == [
        (0, 0),
        (1, 0),
        (2, 0),
        (0, 107001),
    ]
    assert [acl.rt.get_logic_dev_id_by_phy_dev_id(at) for at in range(3)] == [(0, 0), (1, 0), (2, 0)]
    assert acl.rt.get_user_dev_id_by_logic_dev_id(0) == (0, 107001)
    assert "device 0 of the node is not visible" in acl.get_recent_err_msg()
    assert acl.rt.get_device_info(0, 402) == (1, 0)  # the physical number
    assert acl.rt.device_get_uuid(0)[0]["bytes"] == list(peerlane.devices()[1].uuid)
    assert acl.rt.set_device(2) == 107001
    assert "shows 2 of the node's 3, numbered 0 to 1" in acl.get_recent_err_msg()
    assert in_thread(acl.rt.get_device) == (0, 107002)
    assert acl.rt.device_can_access_peer(0, 1) == (1, 0)
    assert acl.rt.device_can_access_peer(0, 2) == (0, 107001)
    assert acl.rt.device_peer_access_status(0, 2) == (0, 107000)


def test_acl_visible_devices_memory_calls_use_visible_numbers(shown: Shown) -> None:
    acl = shown("1,2")
    ok(acl.rt.set_device(1))
    pointer = filled(acl, SIZE, 3)
    assert free() == [FREE, FREE, FREE - SIZE]
    assert ok(acl.rt.pointer_get_attributes(pointer))["location"] == {"id": 1, "type": 1}
    prop = {"memAttr": 4, "location": {"type": 1, "id": 0}}
    handle = ok(acl.rt.malloc_physical(SIZE, prop, 0))
    assert free() == [FREE, FREE - SIZE, FREE - SIZE]
    assert acl.rt.malloc_physical(SIZE, {**prop, "location": {"type": 1, "id": 2}}, 0) == (0, 107001)
    start = ok(acl.rt.reserve_mem_address(SIZE, 0, 0, 0))
    ok(acl.rt.map_mem(start, SIZE, 0, handle, 0))
    assert ok(acl.rt.pointer_get_attributes(start))["location"] == {"id": 0, "type": 1}
    config = {"numAttrs": 1, "attrs": [{"attr": 2, "value": {"deviceId": 1}}]}
    ok(acl.rt.malloc_with_cfg(64, 0, config))
    config["attrs"][0]["value"]["deviceId"] = 2
    assert acl.rt.malloc_with_cfg(64, 0, config) == (0, 107000)
    ok(acl.rt.unmap_mem(start))
    ok(acl.rt.reset_device(1))
    assert acl.rt.reset_device(2) == 107001


def test_acl_visible_devices_peer_calls_and_messages_use_visible_numbers(shown: Shown) -> None:
    acl = shown("1,2")
    ok(acl.rt.set_device(0))
    near = filled(acl, 64, 1)
    ok(acl.rt.set_device(1))
    far, stream = filled(acl, 64, 2), ok(acl.rt.create_stream())
    assert acl.rt.memcpy(near, 64, far, 64, 3) == 507899
    text = acl.get_recent_err_msg()
    assert "devices 0 and 1 have no effective peer access" in text
    assert "acl.rt.device_enable_peer_access(1, 0) while device 0 is set" in text
    assert acl.rt.device_enable_peer_access(1, 0) == 100000
    ok(acl.rt.device_enable_peer_access(0, 0))
    ok(acl.rt.set_device(0))
    assert acl.rt.record_event(ok(acl.rt.create_event()), stream) == 107003
    assert "device 1, and device 0 is current" in acl.get_recent_err_msg().replace(" of ", " ")
    ok(acl.rt.device_enable_peer_access(1, 0))
    assert acl.rt.device_peer_access_status(0, 1) == (1, 0)
    ok(acl.rt.memcpy(near, 64, far, 64, 3))
    assert content(acl, near, 64) == bytes([2]) * 64
    ok(acl.rt.device_disable_peer_access(1))
    assert acl.rt.device_disable_peer_access(1) == 507899
    assert "from device 0 to device 1 is not enabled" in acl.get_recent_err_msg()
    ok(acl.rt.destroy_event(ok(acl.rt.create_event())))
    ok(acl.rt.set_device(1))
    ok(acl.rt.destroy_stream(stream))
    assert acl.rt.stream_query(stream) == (0, 107000)
    assert "a stream of device 1" in acl.get_recent_err_msg()


@pytest.mark.parametrize("listed", ["0", "1", "0,1"])
def test_acl_visible_devices_processes_with_different_lists_share_memory(
    enter: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, listed: str
) -> None:
    node = f"name=acl-visible-{os.getpid()},devices=2,memory=64MiB"
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "1")
    with acl_peer(node) as other:  # its device 0 is device 1 of the node
        assert other("rt.get_device_count") == (1, 0)
        far = other.ok("rt.malloc", SIZE, 0)
        other.ok("rt.memset", far, SIZE, 7, SIZE)
        key = other.ok("rt.ipc_mem_get_export_key", far, SIZE, 65, 1)
        monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", listed)
        acl = enter(node)
        ok(acl.rt.set_device(0))
        pointer = ok(acl.rt.ipc_mem_import_by_key(key, 0))
        home = {"0": -1, "1": 0, "0,1": 1}[listed]
        assert ok(acl.rt.pointer_get_attributes(pointer))["location"] == {"id": home, "type": 1}
        mine, stream = filled(acl, 64, 0), ok(acl.rt.create_stream())
        is_near = listed == "1"
        results = acl.rt.memcpy_async(mine, 64, pointer, 64, 3, stream), acl.rt.synchronize_stream(stream)
        assert set(results) == ({0} if is_near else {0, 507899})
        if is_near:
            assert content(acl, mine, 64) == bytes([7]) * 64
        ok(acl.rt.ipc_mem_close(key))
