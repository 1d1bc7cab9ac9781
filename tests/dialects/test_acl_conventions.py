"""What holds for every call of ``acl``: arguments, shapes, names and messages."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from peerlane.dialects.acl._codes import FAULTS, REMEDIES, Code
from peerlane.dialects.acl._state import acl as convention
from peerlane.errors import Fault

ANY = object()
MODULES = ("acl", "acl.rt", "acl.util")

# Call, arguments of the right types, how many of them there must be, what it returns then.  On two devices,
# device 0 set.  Every failing one leaves a message.
CALLS: list[tuple[str, tuple[Any, ...], Any]] = [
    ("acl.init", ("no/such/file",), 100003),
    ("acl.rt.set_device", (9,), 107001),
    ("acl.rt.set_device", (-1,), 107001),
    ("acl.rt.reset_device", (1,), 507007),
    ("acl.rt.reset_device", (9,), 107001),
    ("acl.rt.malloc", (0, 2), (0, 100000)),
    ("acl.rt.malloc", (65 << 20, 2), (0, 207001)),
    ("acl.rt.malloc", (1 << 62, 2), (0, 207001)),
    ("acl.rt.malloc", ((1 << 64) - 65, 2), (0, 207001)),
    ("acl.rt.malloc", (-1, 2), (0, 100000)),
    ("acl.rt.malloc_host", (0,), (0, 100000)),
    ("acl.rt.malloc_host", (1 << 62,), (0, 207001)),
    ("acl.rt.malloc_host", (-1,), (0, 207001)),
    ("acl.rt.free", (0,), 100000),
    ("acl.rt.free", (4096,), 107000),
    ("acl.rt.free_host", (0,), 100000),
    ("acl.rt.free_host", (4096,), 107000),
    ("acl.rt.memcpy", (0, 8, 4096, 8, 1), 100000),
    ("acl.rt.memcpy", (4096, 8, 0, 8, 1), 100000),
    ("acl.rt.memcpy", (4096, 8, 8192, 8, 6), 100000),
    ("acl.rt.memcpy", (4096, 8, 8192, 8, 7), 100000),
    ("acl.rt.memcpy", (4096, 8, 8192, 8, -1), 100000),
    ("acl.rt.memcpy", (4096, 0, 8192, 8, 1), 107000),
    ("acl.rt.memcpy", (4096, 7, 8192, 8, 1), 107000),
    ("acl.rt.memcpy", (4096, 8, 8192, 8, 1), 107000),
    ("acl.rt.memset", (0, 8, 1, 8), 100000),
    ("acl.rt.memset", (4096, 0, 1, 8), 107000),
    ("acl.rt.memset", (4096, 7, 1, 8), 107000),
    ("acl.rt.memset", (4096, 8, 1, 8), 107000),
    ("acl.rt.memcpy2d", (0, 8, 4096, 8, 8, 1, 1), 100000),
    ("acl.rt.memcpy2d", (4096, 7, 8192, 8, 8, 1, 1), 100000),
    ("acl.rt.memcpy2d", (4096, 8, 8192, 7, 8, 1, 1), 100000),
    ("acl.rt.memcpy2d", (4096, 8, 8192, 8, 8, 1, 0), 100000),
    ("acl.rt.memcpy2d", (4096, 8, 8192, 8, 8, 1, 5), 100000),
    ("acl.rt.memcpy2d", (4096, 8, 8192, 8, 8, 1, 1), 107000),
    ("acl.rt.device_can_access_peer", (0, 0), (0, 100000)),
    ("acl.rt.device_can_access_peer", (0, 9), (0, 107001)),
    ("acl.rt.device_can_access_peer", (-1, 0), (0, 107001)),
    ("acl.rt.device_enable_peer_access", (1, 1), 200006),
    ("acl.rt.device_enable_peer_access", (0, 0), 100000),
    ("acl.rt.device_enable_peer_access", (9, 0), 107001),
    ("acl.rt.device_disable_peer_access", (0,), 100000),
    ("acl.rt.device_disable_peer_access", (9,), 107001),
    ("acl.rt.device_disable_peer_access", (1,), 507899),
    ("acl.rt.device_peer_access_status", (0, 9), (0, 107000)),
    ("acl.rt.device_peer_access_status", (-1, 0), (0, 107000)),
    ("acl.finalize_reference", (), (0, 100037)),
    ("acl.rt.create_stream_with_config", (8, 0), (0, 107000)),
    ("acl.rt.destroy_stream", (0,), 100000),
    ("acl.rt.synchronize_stream", (4096,), 107000),
    ("acl.rt.synchronize_stream_with_timeout", (0, -2), 107000),
    ("acl.rt.synchronize_device_with_timeout", (-2,), 107000),
    ("acl.rt.stream_query", (4096,), (0, 107000)),
    ("acl.rt.stream_get_id", (4096,), (0, 107000)),
    ("acl.rt.set_stream_failure_mode", (0, 2), 107000),
    ("acl.rt.create_event_with_flag", (0,), (0, 107000)),
    ("acl.rt.create_event_ex_with_flag", (0x80,), (0, 107000)),
    ("acl.rt.create_event_with_flag", (0x41,), (0, 207000)),
    ("acl.rt.destroy_event", (0,), 100000),
    ("acl.rt.record_event", (0, 0), 100000),
    ("acl.rt.reset_event", (4096, 0), 107000),
    ("acl.rt.query_event", (0,), (0, 100000)),
    ("acl.rt.query_event_status", (4096,), (0, 107000)),
    ("acl.rt.query_event_wait_status", (4096,), (0, 107000)),
    ("acl.rt.synchronize_event", (0,), 100000),
    ("acl.rt.event_elapsed_time", (0, 0), (0.0, 100000)),
    ("acl.rt.event_get_timestamp", (0,), (0, 100000)),
    ("acl.rt.get_event_id", (0,), (0, 100000)),
    ("acl.rt.stream_wait_event", (0, 0), 100000),
    ("acl.rt.create_notify", (2,), (0, 107000)),
    ("acl.rt.destroy_notify", (0,), 100000),
    ("acl.rt.record_notify", (0, 0), 100000),
    ("acl.rt.wait_and_reset_notify", (4096, 0, 0), 107000),
    ("acl.rt.get_notify_id", (0,), (0, 100000)),
    ("acl.rt.notify_batch_reset", ([],), 107000),
    ("acl.rt.notify_get_export_key", (0, 65, 0), ("", 100000)),
    ("acl.rt.notify_set_import_pid", (0, [1]), 100000),
    ("acl.rt.notify_import_by_key", ("", 0), (0, 507899)),
    ("acl.rt.process_report", (0,), 107000),
    ("acl.rt.process_report", (1,), 107012),
    ("acl.rt.launch_callback", (print, None, 1, 0), 107015),
    ("acl.rt.launch_callback", (print, None, 2, 0), 107000),
    ("acl.rt.get_memcpy_desc_size", (3,), (0, 207000)),
    ("acl.rt.set_memcpy_desc", (0, 6, 1, 1, 1, 0), (0, 100000)),
    ("acl.rt.memcpy_async_with_desc", (4096, 6, 0), 100000),
    ("acl.rt.memcpy_async", (0, 8, 4096, 8, 1, 0), 100000),
    ("acl.rt.memset_async", (4096, 7, 1, 8, 0), 107000),
    ("acl.rt.memcpy2d_async", (4096, 7, 8192, 8, 8, 1, 1, 0), 100000),
    ("acl.util.stop_thread", (1,), 100000),
]
GOOD = [
    ("acl.init", (), 0),
    ("acl.init", ("",), 0),
    ("acl.finalize", (), 0),
    ("acl.get_version", (), (1, 17, 0, 0)),
    ("acl.get_soc_name", (), "Virtual"),
    ("acl.get_recent_err_msg", (), None),
    ("acl.rt.set_device", (1,), 0),
    ("acl.rt.set_device", (True,), 0),
    ("acl.rt.set_device", (np.int64(1),), 0),
    ("acl.rt.reset_device", (0,), 0),
    ("acl.rt.get_device", (), (0, 0)),
    ("acl.rt.get_device_count", (), (2, 0)),
    ("acl.rt.get_run_mode", (), (1, 0)),
    ("acl.rt.memcpy", (0, 0, 0, 0, 99), 0),
    ("acl.rt.memcpy", (1 << 64, 0, 0, 1 << 64, 99), 0),
    ("acl.rt.memcpy", (4096, 8, 4096, 8, 0), 0),
    ("acl.rt.memset", (0, 0, 0, 0), 0),
    ("acl.rt.memcpy2d", (0, 0, 0, 0, 0, 1, 99), 0),
    ("acl.rt.memcpy2d", (0, 0, 0, 0, 1, 0, 99), 0),
    ("acl.rt.device_can_access_peer", (0, 1), (1, 0)),
    ("acl.rt.device_enable_peer_access", (1, 0), 0),
    ("acl.rt.device_enable_peer_access", (1, 1 << 32), 0),
    ("acl.rt.device_peer_access_status", (0, 0), (0, 0)),
    ("acl.rt.device_peer_access_status", (0, 1), (0, 0)),
]
# Parse codes of the binding: k pointers and sizes, i and I 32 bits (spec acl 1); u: as I, and checked (spec acl 2.6).
SIGNATURES = {
    "acl.rt.set_device": "i",
    "acl.rt.reset_device": "i",
    "acl.rt.malloc": "ki",
    "acl.rt.malloc_host": "k",
    "acl.rt.free": "k",
    "acl.rt.free_host": "k",
    "acl.rt.memcpy": "kkkki",
    "acl.rt.memset": "kkik",
    "acl.rt.memcpy2d": "kkkkkki",
    "acl.rt.get_mem_info": "i",
    "acl.rt.device_can_access_peer": "ii",
    "acl.rt.device_enable_peer_access": "iI",
    "acl.rt.device_disable_peer_access": "i",
    "acl.rt.device_peer_access_status": "ii",
    "acl.util.ptr_to_bytes": "kk",
    "acl.rt.memcpy_async": "kkkkik",
    "acl.rt.memcpy_async_with_condition": "kkkkik",
    "acl.rt.memset_async": "kkikk",
    "acl.rt.memcpy2d_async": "kkkkkkik",
    "acl.rt.get_memcpy_desc_size": "i",
    "acl.rt.set_memcpy_desc": "kikkkk",
    "acl.rt.memcpy_async_with_desc": "kik",
    "acl.rt.create_stream_with_config": "II",
    "acl.rt.destroy_stream": "k",
    "acl.rt.destroy_stream_force": "k",
    "acl.rt.synchronize_stream": "k",
    "acl.rt.synchronize_stream_with_timeout": "ki",
    "acl.rt.synchronize_device_with_timeout": "i",
    "acl.rt.stream_query": "k",
    "acl.rt.stream_abort": "k",
    "acl.rt.stream_get_id": "k",
    "acl.rt.set_stream_failure_mode": "kI",
    "acl.rt.create_event_with_flag": "I",
    "acl.rt.create_event_ex_with_flag": "I",
    "acl.rt.destroy_event": "k",
    "acl.rt.record_event": "kk",
    "acl.rt.reset_event": "kk",
    "acl.rt.query_event": "k",
    "acl.rt.query_event_status": "k",
    "acl.rt.query_event_wait_status": "k",
    "acl.rt.synchronize_event": "k",
    "acl.rt.synchronize_event_with_timeout": "ki",
    "acl.rt.event_elapsed_time": "kk",
    "acl.rt.event_get_timestamp": "k",
    "acl.rt.get_event_id": "k",
    "acl.rt.stream_wait_event": "kk",
    "acl.rt.set_op_wait_timeout": "I",
    "acl.rt.create_notify": "k",
    "acl.rt.destroy_notify": "k",
    "acl.rt.record_notify": "kk",
    "acl.rt.wait_and_reset_notify": "kku",
    "acl.rt.get_notify_id": "k",
    "acl.rt.notify_get_export_key": "kkk",
    "acl.rt.subscribe_report": "kk",
    "acl.rt.unsubscribe_report": "kk",
    "acl.rt.process_report": "i",
    "acl.util.stop_thread": "k",
}
NO_PARAMETERS = [
    "acl.finalize",
    "acl.finalize_reference",
    "acl.get_version",
    "acl.get_soc_name",
    "acl.get_recent_err_msg",
    "acl.rt.get_device",
    "acl.rt.get_device_count",
    "acl.rt.get_run_mode",
    "acl.rt.create_stream",
    "acl.rt.create_event",
    "acl.rt.synchronize_device",
    "acl.rt.get_stream_available_num",
    "acl.rt.get_event_avail_num",
    "acl.rt.ctx_get_current_default_stream",
]
WRONG: dict[str, list[Any]] = {
    "k": [None, 1.0, "1", b"1", [1], np.int64(1)],
    "i": [None, 1.0, "1", 1 << 31, -(1 << 31) - 1],
    "I": [None, 1.0, "1"],
    "u": [None, 1.0, "1", -1, 1 << 32],
}


def function(name: str) -> Callable[..., Any]:
    module, _, short = name.rpartition(".")
    return convention.functions(module)[short]


def named(cases: list[tuple[Any, ...]]) -> list[Any]:
    return [pytest.param(*case, id=f"{case[0]}{case[1]}") for case in cases]


@pytest.mark.parametrize(("name", "args", "expected"), named(CALLS))
def test_a_failure_has_the_vendors_shape_and_a_message(
    name: str, args: tuple[Any, ...], expected: Any, acl: ModuleType, message: Callable[[], str]
) -> None:
    result = function(name)(*args)
    assert result == expected
    code = result[-1] if isinstance(result, tuple) else result
    assert type(code) is int
    first, called, cause, solution = message().splitlines()
    assert first.endswith(f": {name} returned {code} (ACL_ERROR_{Code(code).name}).")
    assert called.startswith("        Called with: ")
    assert cause.startswith("        Possible Cause: ")
    assert solution.startswith("        Solution: ")
    assert acl.rt.get_device() == (0, 0)


@pytest.mark.parametrize(("name", "args", "expected"), named(GOOD))
def test_a_success_has_the_vendors_shape_and_no_message(
    name: str, args: tuple[Any, ...], expected: Any, acl: ModuleType
) -> None:
    result = function(name)(*args)
    assert result == expected
    assert type(result) is type(expected)
    assert acl.get_recent_err_msg() is None


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_bad_argument_list_is_the_vendors_type_error(name: str, acl: ModuleType) -> None:
    codes = SIGNATURES[name]
    wanted = f"{name} args parse failed"
    right = [1] * len(codes)
    for args in ([], right[1:], [*right, 1]):
        with pytest.raises(TypeError) as caught:
            function(name)(*args)
        assert str(caught.value) == wanted
    for position, code in enumerate(codes):
        for value in WRONG[code]:
            args = [*right[:position], value, *right[position + 1 :]]
            with pytest.raises(TypeError) as caught:
                function(name)(*args)
            assert str(caught.value) == wanted
            assert "argument " in str(caught.value.__cause__)
    assert acl.get_recent_err_msg() is None


@pytest.mark.parametrize("value", [None, 1, b"", "a\0b", "\udc80"])
def test_init_takes_text(value: object, acl: ModuleType) -> None:
    with pytest.raises(TypeError, match=r"^acl\.init args parse failed$"):
        acl.init(value)
    with pytest.raises(TypeError, match=r"^acl\.init args parse failed$"):
        acl.init("", "")


def test_no_call_takes_keywords(acl: ModuleType) -> None:
    for module in MODULES:
        for call in convention.functions(module).values():
            with pytest.raises(TypeError, match="keyword"):
                call(device_id=0)


@pytest.mark.parametrize("name", NO_PARAMETERS)
def test_calls_without_parameters_ignore_arguments(name: str, acl: ModuleType) -> None:
    assert function(name)(None, 1.5, "x") is not ANY


def test_words_wrap_like_the_parse_code(acl: ModuleType) -> None:
    pointer, ret = acl.rt.malloc((1 << 64) + 8, True)
    assert ret == 0
    assert acl.rt.free(pointer - (1 << 64)) == 0


def test_every_fault_has_a_code() -> None:
    assert set(FAULTS) == set(Fault)
    assert set(FAULTS.values()) <= set(Code)
    assert set(REMEDIES) == set(Fault)


def test_every_fault_of_the_neutral_api_becomes_its_code(
    acl: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    from peerlane import errors
    from peerlane.dialects.acl import _state

    for fault in Fault:

        def fail(*_: object, fault: Fault = fault) -> int:
            raise errors.Error(f"as {fault.value}", fault=fault)

        monkeypatch.setattr(_state.machine, "device", fail)
        assert acl.rt.set_device(0) == FAULTS[fault]
        assert acl.rt.device_can_access_peer(0, 1) == (0, FAULTS[fault])
        text = acl.get_recent_err_msg()
        assert f"as {fault.value}" in text
        assert f"        Solution: {REMEDIES[fault]}." in text


# The shape of what is not in this version; the code is always 200001.
ABSENT_SHAPES = {
    "acl.rt.host_unregister": 200001,
    "acl.rt.reduce_async": 200001,
    "acl.rt.get_stream_attribute": (0, 200001),
    "acl.rt.device_get_uuid": ({}, 200001),
    "acl.create_data_buffer": 0,
}


@pytest.mark.parametrize("name", ABSENT_SHAPES)
def test_an_absent_call_refuses_in_its_shape(name: str, acl: ModuleType, message: Callable[[], str]) -> None:
    assert function(name)(1, [2] * 1000) == ABSENT_SHAPES[name]
    text = message()
    assert f"{name} returned 200001 (ACL_ERROR_API_NOT_SUPPORT)" in text
    assert "not in this version of peerlane" in text
    assert len(text) < 1000


def test_an_absent_calls_output_is_the_callers(acl: ModuleType) -> None:
    first, _ = acl.rt.pointer_get_attributes(0)
    first["x"] = 1
    assert acl.rt.pointer_get_attributes(0) == ({}, 200001)


def test_modules_show_the_api_and_nothing_else(acl: ModuleType) -> None:
    for module in (acl, acl.rt, acl.util):
        names = {name for name in dir(module) if not name.startswith("_")}
        public = module.__name__.removeprefix("peerlane.dialects.")
        assert names - {"rt", "util"} == set(convention.functions(public))
        assert all(callable(getattr(module, name)) for name in names - {"rt", "util"})
        assert all(getattr(module, name).__doc__ for name in names)


@pytest.mark.parametrize(
    "name",
    ["MEMCPY_HOST_TO_DEVICE", "ACL_MEMCPY_DEVICE_TO_DEVICE", "memcpy_2d", "query_stream", "annotations"],
)
def test_what_the_binding_does_not_have_is_no_attribute(name: str, acl: ModuleType) -> None:
    assert not hasattr(acl.rt, name)
    assert not hasattr(acl.util, "vector_to_ptr")
    assert not hasattr(acl, "mem_set_access")


def test_messages_pile_up_newest_on_top_until_read(acl: ModuleType) -> None:
    assert acl.rt.free(0) == 100000
    assert acl.rt.set_device(7) == 107001
    assert acl.rt.set_device(0) == 0
    text = acl.get_recent_err_msg()
    assert text.index("acl.rt.set_device") < text.index("acl.rt.free")
    assert acl.get_recent_err_msg() is None


def test_messages_do_not_pile_up_without_end(acl: ModuleType) -> None:
    for _ in range(1000):
        acl.rt.free(0)
    assert acl.get_recent_err_msg().count("EE1001") <= 64


def test_a_message_names_where_an_address_points(acl: ModuleType, message: Callable[[], str]) -> None:
    pointer, _ = acl.rt.malloc(100, 2)
    host, _ = acl.rt.malloc_host(100)
    assert acl.rt.memcpy(pointer + 4, 8, host, 9, 1) == 107000
    text = message()
    assert f"dst={pointer + 4:#x} (byte 4 of allocation " in text
    assert "on virtual:0, allocated at test_acl_conventions.py:" in text
    assert f"src={host:#x} (start of allocation " in text
    assert "count 9 is more than dest_max, which is 8" in text
    assert acl.rt.memset(id(text), 1, 0, 1) == 107000
    assert "(pageable host memory)" in message()


@pytest.mark.parametrize("address", [0x40, 0xDEAD0000])
def test_a_wild_pointer_is_no_host_memory(address: int, acl: ModuleType, message: Callable[[], str]) -> None:
    for call in (
        lambda: acl.rt.free(address),
        lambda: acl.rt.free_host(address),
        lambda: acl.rt.memset(address, 1, 1, 1),
    ):
        assert call() == 107000
        text = message()
        assert f"{address:#x} (nothing is mapped there)" in text
        assert f"Possible Cause: {address:#x} is no address: nothing is mapped there." in text


def test_a_bad_device_says_how_to_have_more(acl: ModuleType, message: Callable[[], str]) -> None:
    assert acl.rt.set_device(9) == 107001
    assert "`peerlane run --devices N`" in message()


def test_an_absent_call_shows_pointers_as_such(acl: ModuleType, message: Callable[[], str]) -> None:
    pointer, _ = acl.rt.malloc(8, 2)
    acl.rt.reduce_async(pointer, pointer, 8, 0, 0, 0)
    assert f"argument 1={pointer:#x}, argument 2={pointer:#x}" in message()


@pytest.mark.parametrize(
    ("dpitch", "spitch", "height", "words"),
    [
        (1 << 63, 8, 5, "dpitch = 9,223,372"),
        (8, -1, 3, "spitch = 18,446"),
        (8, 8, -1, "dpitch = 8 bytes apart"),
    ],
)
def test_a_rectangle_beyond_64_bits_names_the_pitch(
    dpitch: int, spitch: int, height: int, words: str, acl: ModuleType, message: Callable[[], str]
) -> None:
    pointer, _ = acl.rt.malloc(64, 2)
    assert acl.rt.memcpy2d(pointer, dpitch, pointer, spitch, 8, height, 3) == 107000
    assert words in message()


def test_a_type_is_named_with_its_module(acl: ModuleType) -> None:
    name = f"numpy.{np.bool_.__name__}"
    for call, args in ((acl.rt.free, (np.bool_(True),)), (acl.rt.set_device, (np.bool_(True),))):
        with pytest.raises(TypeError) as caught:
            call(*args)
        assert str(caught.value.__cause__).endswith(f"must be an int, not {name}")
