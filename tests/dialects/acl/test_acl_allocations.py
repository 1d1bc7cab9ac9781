"""``acl.rt``: the allocation calls besides ``malloc``, and ``acl.media``'s memory."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from helpers.acl_calls import both_directions, content, filled, in_thread, ok

pytestmark = pytest.mark.timeout(60)
DEVICE_MEMORY: dict[str, tuple[Any, ...]] = {
    "malloc_align32": (0,),
    "malloc_cached": (0,),
    "malloc_with_cfg": (0, {}),
    "malloc_for_task_scheduler": (0, {}),
}


def entry(attr: int, **value: Any) -> dict[str, Any]:
    return {"attr": attr, "value": value}


def cfg(*entries: Any) -> dict[str, Any]:
    return {"numAttrs": len(entries), "attrs": list(entries)}


@pytest.mark.parametrize("name", DEVICE_MEMORY)
def test_acl_malloc_variants_allocate_on_device_of_calling_thread(acl: ModuleType, name: str) -> None:
    allocate, rest = getattr(acl.rt, name), DEVICE_MEMORY[name]
    ok(acl.rt.set_device(1))
    pointer = ok(allocate(100, *rest))
    assert pointer % 64 == 0
    assert ok(acl.rt.pointer_get_attributes(pointer))["location"] == {"id": 1, "type": 1}
    ok(acl.rt.memset(pointer, 100, 3, 100))
    assert acl.rt.memset(pointer, 101, 3, 101) == 107000
    assert content(acl, pointer, 100) == bytes([3]) * 100
    ok(acl.rt.free(pointer))
    assert allocate(0, *rest) == (0, 100000)
    assert allocate(65 << 20, *rest) == (0, 207001)
    assert in_thread(allocate, 8, *rest) == (0, 107002)
    ok(acl.finalize())
    ok(acl.rt.free(ok(allocate(8, *rest))))


def test_acl_malloc_host_with_cfg_valid_cfg_returns_pinned_memory(acl: ModuleType) -> None:
    pointer = ok(acl.rt.malloc_host_with_cfg(100, cfg(entry(1, moduleId=33), entry(3, rsv=[1]))))
    assert ok(acl.rt.pointer_get_attributes(pointer))["location"]["type"] == 0
    ok(acl.rt.free_host(pointer))
    assert acl.rt.malloc_host_with_cfg(0, {}) == (0, 100000)
    assert in_thread(acl.rt.malloc_host_with_cfg, 8, {}) == (0, 107002)


@pytest.mark.parametrize(
    ("argument", "raised"),
    [
        ({"numAttrs": 1}, TypeError),
        ({"numAttrs": 1, "attrs": ()}, TypeError),
        ({"numAttrs": 2, "attrs": [entry(1, moduleId=1)]}, KeyError),
        ({"attrs": [entry(1, moduleId=1)]}, KeyError),
        (cfg(5), TypeError),
        (cfg({"attr": 1}), TypeError),
        (cfg({"attr": 1, "value": 5}), TypeError),
        (cfg(entry(1)), KeyError),
        (cfg(entry(1, vaFlag=1)), KeyError),
        (cfg(entry(1, moduleId="33")), ValueError),
        (cfg(entry(2, deviceId=-1)), ValueError),
        (cfg(entry(1, rsv=(1,))), TypeError),
        (cfg(entry(1, rsv=["1"])), ValueError),
    ],
)
def test_acl_malloc_with_cfg_malformed_cfg_raises_as_vendor_binding(
    acl: ModuleType, argument: Any, raised: type[Exception]
) -> None:
    for call, args in ((acl.rt.malloc_with_cfg, (8, 0)), (acl.rt.malloc_host_with_cfg, (8,))):
        with pytest.raises(raised, match="cfg"):
            call(*args, argument)
    assert acl.get_recent_err_msg() is None


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([], 0),
        ([entry(1, moduleId=33)], 0),
        ([entry(2, deviceId=0)], 0),
        ([entry(2, rsv=[0] * 8)], 0),
        ([{"value": {"rsv": []}}], 107000),
        ([entry(1, moduleId=33), entry(2, deviceId=1)], 107000),
        ([entry(2, rsv=[1])], 107000),
        ([entry(4, rsv=[])], 107000),
    ],
)
def test_acl_malloc_with_cfg_attributes_return_documented_codes(
    acl: ModuleType, entries: list[Any], code: int
) -> None:
    for call, args in (
        (acl.rt.malloc_with_cfg, (8, 0)),
        (acl.rt.malloc_for_task_scheduler, (8, 0)),
        (acl.rt.malloc_host_with_cfg, (8,)),
    ):
        pointer, ret = call(*args, cfg(*entries))
        assert (bool(pointer), ret) == (not code, code)


@pytest.mark.parametrize(
    ("name", "policy", "is_for_peers"),
    [
        ("malloc_align32", 3, True),
        ("malloc_cached", 3, False),
        ("malloc_cached", 6, False),
        ("malloc_with_cfg", 4, True),
        ("malloc_with_cfg", 0x1000 | 5, True),
        ("malloc_with_cfg", 0x100000 | 7, True),
        ("malloc_with_cfg", 0x1000 | 2, False),
        ("malloc_for_task_scheduler", 0x100 | 3, True),
    ],
)
def test_acl_malloc_variants_policy_bits_decide_peer_copy_on_310p(
    enter: Callable[[str], ModuleType], name: str, policy: int, is_for_peers: bool
) -> None:
    for profile in ("ascend-310p", "ascend-a2"):
        acl = enter(f"devices=2,memory=64MiB,profile={profile}")
        both_directions(acl)
        pointer = ok(getattr(acl.rt, name)(64, policy, *DEVICE_MEMORY[name][1:]))
        ok(acl.rt.set_device(1))
        other = ok(acl.rt.malloc(64, 3))
        may = is_for_peers or profile == "ascend-a2"
        assert acl.rt.memcpy(other, 64, pointer, 64, 3) == (0 if may else 507899)


@pytest.mark.parametrize("name", ["mem_flush", "mem_invalidate"])
def test_acl_mem_flush_and_invalidate_check_range_and_change_nothing(acl: ModuleType, name: str) -> None:
    call, pointer, host = getattr(acl.rt, name), filled(acl, 100, 4), ok(acl.rt.malloc_host(8))
    ok(call(pointer, 100))
    ok(call(pointer + 50, 50))
    assert call(pointer, 101) == call(host, 8) == 107000
    assert in_thread(call, pointer, 100) == 107002
    assert content(acl, pointer, 100) == bytes([4]) * 100
    ok(acl.rt.free(pointer))
    assert call(pointer, 100) == 107000


def test_acl_dvpp_malloc_returns_device_memory_that_dvpp_free_ends(acl: ModuleType) -> None:
    pointer = ok(acl.media.dvpp_malloc(100))
    assert ok(acl.rt.pointer_get_attributes(pointer))["location"] == {"id": 0, "type": 1}
    ok(acl.rt.memset(pointer, 100, 3, 100))
    assert content(acl, pointer, 100) == bytes([3]) * 100
    assert acl.media.dvpp_free(pointer + 1) == 107000
    ok(acl.media.dvpp_free(pointer))
    assert acl.media.dvpp_free(pointer) == 107000
    assert "freed by acl.media.dvpp_free" in acl.get_recent_err_msg()
    assert acl.media.dvpp_malloc(65 << 20) == (0, 207001)
    assert in_thread(acl.media.dvpp_malloc, 8) == (0, 107002)
