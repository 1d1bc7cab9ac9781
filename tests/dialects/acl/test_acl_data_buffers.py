"""``acl``: data buffers; ``acl.rt``: attributes of streams and of devices."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import peerlane
from helpers.acl_calls import filled, in_thread, ok

pytestmark = pytest.mark.timeout(60)


def test_acl_data_buffer_keeps_address_and_size(acl: ModuleType) -> None:
    pointer = filled(acl, 64, 1)
    buffer = acl.create_data_buffer(pointer, (1 << 32) + 64)
    assert type(buffer) is int and buffer
    assert acl.get_data_buffer_addr(buffer) == pointer
    assert (acl.get_data_buffer_size_v2(buffer), acl.get_data_buffer_size(buffer)) == ((1 << 32) + 64, 64)
    ok(acl.update_data_buffer(buffer, pointer + 8, 16))
    assert (acl.get_data_buffer_addr(buffer), acl.get_data_buffer_size_v2(buffer)) == (pointer + 8, 16)
    empty = acl.create_data_buffer(0, 0)
    assert empty not in (0, buffer)
    assert (acl.get_data_buffer_addr(empty), acl.get_data_buffer_size(empty)) == (0, 0)
    assert acl.get_recent_err_msg() is None
    ok(acl.destroy_data_buffer(empty))
    ok(acl.destroy_data_buffer(buffer))
    ok(acl.rt.free(pointer))


def test_acl_data_buffer_without_device_and_init_works(acl: ModuleType) -> None:
    buffer = in_thread(acl.create_data_buffer, 8, 8)
    ok(acl.rt.reset_device(0))
    acl.finalize()
    assert acl.get_data_buffer_addr(buffer) == 8
    ok(acl.destroy_data_buffer(buffer))


@pytest.mark.parametrize("call", ["get_data_buffer_addr", "get_data_buffer_size", "get_data_buffer_size_v2"])
def test_acl_data_buffer_calls_invalid_buffer_return_0_and_leave_message(acl: ModuleType, call: str) -> None:
    over, stream = acl.create_data_buffer(1, 1), ok(acl.rt.create_stream())
    ok(acl.destroy_data_buffer(over))
    for wrong in (0, 4096, over, stream):
        assert getattr(acl, call)(wrong) == 0
        assert f"acl.{call} returned 100000" in acl.get_recent_err_msg()
        if wrong:
            assert acl.destroy_data_buffer(wrong) == acl.update_data_buffer(wrong, 1, 1) == 100000
            assert "is no data buffer or was destroyed" in acl.get_recent_err_msg()


@pytest.mark.parametrize(
    ("attribute", "value", "read_back"),
    [
        (1, {"failureMode": 1}, {"failureMode": 1}),
        (1, {}, {"failureMode": 0}),
        (1, {"failureMode": "1"}, {"failureMode": 0}),
        (2, {"overflowSwitch": 1}, {"overflowSwitch": 1}),
        (3, {"userCustomTag": (1 << 32) - 1}, {"userCustomTag": (1 << 32) - 1}),
        (4, {"reserved": [1, 9, 9]}, {"reserved": [1, 0, 0, 0]}),
        (5, {"reserved": [7]}, {"reserved": [7, 0, 0, 0]}),
        (5, {"reserved": []}, {"reserved": [0, 0, 0, 0]}),
    ],
)
def test_acl_set_stream_attribute_changes_only_that_stream(
    acl: ModuleType, attribute: int, value: Any, read_back: Any
) -> None:
    stream, other = ok(acl.rt.create_stream()), ok(acl.rt.create_stream())
    before = ok(acl.rt.get_stream_attribute(other, attribute))
    ok(acl.rt.set_stream_attribute(stream, attribute, value))
    assert ok(acl.rt.get_stream_attribute(stream, attribute)) == read_back
    assert ok(acl.rt.get_stream_attribute(other, attribute)) == before
    assert in_thread(acl.rt.set_stream_attribute, stream, attribute, value) == 107002
    assert in_thread(acl.rt.get_stream_attribute, stream, attribute)[1] == 107002
    ok(acl.rt.set_device(1))
    assert acl.rt.set_stream_attribute(stream, attribute, value) == 107003


def test_acl_set_stream_failure_mode_and_stream_attribute_1_are_one_value(acl: ModuleType) -> None:
    stream = ok(acl.rt.create_stream())
    ok(acl.rt.set_stream_failure_mode(stream, 1))
    assert ok(acl.rt.get_stream_attribute(stream, 1)) == {"failureMode": 1}
    ok(acl.rt.set_stream_attribute(stream, 1, {"failureMode": 0}))
    assert acl.rt.set_stream_attribute(stream, 1, {"failureMode": 1 << 32}) == 107000
    assert ok(acl.rt.get_stream_attribute(stream, 1)) == {"failureMode": 0}


def test_acl_stream_attribute_5_reads_priority_of_creation(enter: Callable[[str], ModuleType]) -> None:
    for profile, code in (("ascend-a2", 0), ("ascend-310p", 207000)):
        acl = enter(f"devices=1,memory=64MiB,profile={profile}")
        ok(acl.rt.set_device(0))
        stream = ok(acl.rt.create_stream_with_config(3, 0))
        assert ok(acl.rt.get_stream_attribute(stream, 5)) == {"reserved": [3, 0, 0, 0]}
        assert acl.rt.set_stream_attribute(stream, 5, {"reserved": [8]}) == (code or 107000)
        assert acl.rt.set_stream_attribute(stream, 5, {"reserved": [2]}) == code


@pytest.mark.parametrize(
    ("spec", "inside", "across"),
    [
        ("devices=4,switch=2,memory=64MiB", 0x02, 0x10),
        ("devices=4,switch=2,memory=64MiB,profile=ascend-a2", 0x01, 0x10),
        ("devices=4,switch=2,memory=64MiB,profile=ascend-310p", 0x02, 0x10),
    ],
)
def test_acl_get_devices_topo_reports_links_of_node(
    enter: Callable[[str], ModuleType], spec: str, inside: int, across: int
) -> None:
    acl = enter(spec)
    read_back = [[ok(acl.rt.get_devices_topo(a, b)) for b in range(4)] for a in range(4)]
    i, x = inside, across
    assert read_back == [[0, i, x, x], [i, 0, x, x], [x, x, 0, i], [x, x, i, 0]]


def test_acl_device_get_uuid_equals_uuid_of_neutral_device(acl: ModuleType) -> None:
    for device in peerlane.devices():
        assert ok(acl.rt.device_get_uuid(device.ordinal)) == {"bytes": list(device.uuid)}
    assert ok(acl.rt.device_get_uuid(0)) != ok(acl.rt.device_get_uuid(1))


def test_acl_get_device_info_every_documented_attribute_has_value(acl: ModuleType) -> None:
    expected = {1: 1, 101: 1, 102: 1, 201: 1, 301: 64 << 20, 302: 0, 402: 1, 403: 1}
    expected |= dict.fromkeys((401, 404, 405, 406, 407, 501), 0)
    expected |= dict.fromkeys((*range(205, 213), 408, 409, 601), 0)
    assert {attribute: ok(acl.rt.get_device_info(1, attribute)) for attribute in expected} == expected
    for attribute, code in ((0, 107000), (202, 207000)):
        assert acl.rt.get_device_info(1, attribute) == (0, code)
        assert "Solution: pass one of 1, 101, 102, 201" in acl.get_recent_err_msg()


@pytest.mark.parametrize(
    ("profile", "architecture"), [("ascend-a2", 2201), ("ascend-310p", 2002), ("hgx", 0)]
)
def test_acl_get_device_info_attribute_601_is_architecture_of_profile(
    enter: Callable[[str], ModuleType], profile: str, architecture: int
) -> None:
    assert ok(enter(f"profile={profile}").rt.get_device_info(0, 601)) == architecture


def test_acl_mem_uce_repair_wrong_list_raises_type_error(acl: ModuleType) -> None:
    for wrong in ((), {}, None, [1]):
        with pytest.raises(TypeError, match="mem_uce_repair"):
            acl.rt.mem_uce_repair(0, wrong)


def test_acl_calls_result_changed_by_caller_does_not_affect_next_result(acl: ModuleType) -> None:
    for call, args in (
        (acl.get_cann_version, (0,)),
        (acl.rt.get_device_utilization_rate, (0,)),
        (acl.rt.get_stream_attribute, (0, 1)),
        (acl.get_cann_version, (9,)),
    ):
        first = call(*args)
        first[0]["changed"] = 1
        assert "changed" not in call(*args)[0]
    acl.get_cann_attribute_list()[0].append(1)
    assert acl.get_cann_attribute_list() == ([], 0, 0)
