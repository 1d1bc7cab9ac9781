"""``acl.rt``: events, waits for them, and their times."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest

from helpers.acl_calls import MIB, Held, both_directions, content, filled, holding, in_thread, ok
from helpers.promised import overdue
from peerlane.dialects.acl import _event

pytestmark = pytest.mark.timeout(60)
SYNC, TIME_LINE, IPC = 1, 8, 0x40
MAKERS: list[tuple[str, tuple[int, ...]]] = [
    ("create_event", ()),
    ("create_event_with_flag", (SYNC | TIME_LINE,)),
    ("create_event_ex_with_flag", (SYNC | TIME_LINE,)),
]
everywhere = pytest.mark.parametrize(("maker", "args"), MAKERS, ids=[maker for maker, _ in MAKERS])


@everywhere
def test_acl_stream_wait_event_of_other_stream_orders_copies(
    maker: str, args: tuple[int, ...], acl: ModuleType
) -> None:
    first, second = ok(acl.rt.create_stream()), ok(acl.rt.create_stream())
    event = ok(getattr(acl.rt, maker)(*args))
    source, middle, target = holding(acl, bytes(range(64))), filled(acl, 64, 0), filled(acl, 64, 0)
    held = Held(acl, first)
    ok(acl.rt.memcpy_async(middle, 64, source, 64, 3, first))
    ok(acl.rt.record_event(event, first))
    ok(acl.rt.stream_wait_event(second, event))
    ok(acl.rt.memcpy_async(target, 64, middle, 64, 3, second))
    assert acl.rt.stream_query(second) == (1, 0)
    held.release()
    ok(acl.rt.synchronize_stream(second))
    assert content(acl, target, 64) == bytes(range(64))


def test_acl_stream_wait_event_of_other_device_orders_copy(acl: ModuleType) -> None:
    both_directions(acl)
    size = 4 * MIB
    far, event, first = filled(acl, size, 7), ok(acl.rt.create_event()), ok(acl.rt.create_stream())
    held = Held(acl, first)
    ok(acl.rt.memset_async(far, size, 8, size, first))
    ok(acl.rt.record_event(event, first))
    ok(acl.rt.set_device(1))
    near, second = filled(acl, size, 0), ok(acl.rt.create_stream())
    ok(acl.rt.stream_wait_event(second, event))
    ok(acl.rt.memcpy_async(near, size, far, size, 3, second))
    assert acl.rt.record_event(event, second) == 107003
    assert "event" in acl.get_recent_err_msg()
    ok(acl.rt.set_device(0))
    held.release()
    ok(acl.rt.set_device(1))
    ok(acl.rt.synchronize_stream(second))
    assert content(acl, near, size) == bytes([8]) * size


def test_acl_event_calls_swapped_arguments_return_107000_and_name_kind(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    stream, event = ok(acl.rt.create_stream()), ok(acl.rt.create_event())
    assert acl.rt.record_event(stream, event) == 107000
    assert "another kind: stream " in message()
    ok(acl.rt.record_event(event, stream))
    assert acl.rt.stream_wait_event(event, stream) == 107000
    assert "another kind: event " in message()
    ok(acl.rt.stream_wait_event(stream, event))


def test_acl_query_event_and_query_event_status_report_opposite_values(acl: ModuleType) -> None:
    stream, event = ok(acl.rt.create_stream()), ok(acl.rt.create_event())
    assert acl.rt.query_event(event) == (1, 0)
    assert acl.rt.query_event_status(event) == (0, 0)
    held = Held(acl, stream)
    ok(acl.rt.record_event(event, stream))
    assert acl.rt.query_event(event) == (1, 0)
    assert acl.rt.query_event_status(event) == (0, 0)
    held.release()
    ok(acl.rt.synchronize_event(event))
    assert acl.rt.query_event(event) == (0, 0)
    assert acl.rt.query_event_status(event) == (1, 0)


def test_acl_plain_event_never_recorded_calls_return_107000_or_507000(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    stream, event = ok(acl.rt.create_stream()), ok(acl.rt.create_event())
    other = ok(acl.rt.create_event())
    ok(acl.rt.record_event(other, stream))
    ok(acl.rt.synchronize_stream(stream))
    for result, wanted in (
        (acl.rt.stream_wait_event(stream, event), 107000),
        (acl.rt.synchronize_event(event), 107000),
        (acl.rt.synchronize_event_with_timeout(event, 5), 107000),
        (acl.rt.event_elapsed_time(other, event), (0.0, 507000)),
        (acl.rt.event_elapsed_time(event, other), (0.0, 507000)),
        (acl.rt.event_get_timestamp(event), (0, 507000)),
    ):
        assert result == wanted
    assert message().count("was never recorded") == 6
    ok(acl.rt.synchronize_stream(stream))


def test_acl_ex_event_not_recorded_is_complete(acl: ModuleType) -> None:
    stream, event = ok(acl.rt.create_stream()), ok(acl.rt.create_event_ex_with_flag(SYNC))
    assert acl.rt.query_event_status(event) == (1, 0)
    ok(acl.rt.synchronize_event(event))
    ok(acl.rt.stream_wait_event(stream, event))
    ok(acl.rt.synchronize_stream(stream))
    held = Held(acl, stream)
    ok(acl.rt.record_event(event, stream))
    assert acl.rt.query_event_status(event) == (0, 0)
    held.release()
    ok(acl.rt.synchronize_event(event))
    assert acl.rt.query_event_status(event) == (1, 0)
    for result in (
        acl.rt.query_event(event)[1],
        acl.rt.query_event_wait_status(event)[1],
        acl.rt.reset_event(event, stream),
    ):
        assert result == 207000


def test_acl_stream_wait_event_before_record_waits_for_it(acl: ModuleType) -> None:
    first, second, third = (ok(acl.rt.create_stream()) for _ in range(3))
    event, target = ok(acl.rt.create_event_with_flag(SYNC)), filled(acl, 128, 0)
    for value in (1, 2, 3):
        for number, waiting in enumerate((second, third)):
            ok(acl.rt.stream_wait_event(waiting, event))
            ok(acl.rt.memset_async(target + 64 * number, 64, value, 64, waiting))
        assert acl.rt.stream_query(second) == acl.rt.stream_query(third) == (1, 0)
        ok(acl.rt.record_event(event, first))
        ok(acl.rt.synchronize_device())
        assert content(acl, target, 128) == bytes([value] * 128)
        ok(acl.rt.reset_event(event, first))
        assert acl.rt.query_event(event) == (1, 0)


def test_acl_reset_event_of_plain_event_returns_207000(acl: ModuleType, message: Callable[[], str]) -> None:
    stream, event = ok(acl.rt.create_stream()), ok(acl.rt.create_event())
    ok(acl.rt.record_event(event, stream))
    assert acl.rt.reset_event(event, stream) == 207000
    assert "made by acl.rt.create_event, and such events are not reset" in message()
    assert acl.rt.query_event(event) == (0, 0) or acl.rt.synchronize_event(event) == 0


def test_acl_stream_wait_event_recorded_again_waits_for_first_record_only(acl: ModuleType) -> None:
    first, second = ok(acl.rt.create_stream()), ok(acl.rt.create_stream())
    event, target = ok(acl.rt.create_event()), filled(acl, 64, 0)
    ok(acl.rt.record_event(event, first))
    ok(acl.rt.stream_wait_event(second, event))  # waits for the first record
    held = Held(acl, first)
    ok(acl.rt.record_event(event, first))
    ok(acl.rt.memset_async(target, 64, 1, 64, second))
    ok(acl.rt.synchronize_stream(second))
    assert acl.rt.query_event(event) == (1, 0)
    held.release()
    ok(acl.rt.synchronize_event(event))


def test_acl_query_event_wait_status_reports_waiting_stream(acl: ModuleType) -> None:
    first, second = ok(acl.rt.create_stream()), ok(acl.rt.create_stream())
    event = ok(acl.rt.create_event())
    held = Held(acl, first)
    ok(acl.rt.record_event(event, first))
    assert acl.rt.query_event_wait_status(event) == (0, 0)
    ok(acl.rt.stream_wait_event(second, event))
    assert acl.rt.query_event_wait_status(event) == (1, 0)
    held.release()
    ok(acl.rt.synchronize_stream(second))
    assert acl.rt.query_event_wait_status(event) == (0, 0)
    for _ in range(300):
        ok(acl.rt.stream_wait_event(second, event))
    ok(acl.rt.synchronize_stream(second))
    assert acl.rt.query_event_wait_status(event) == (0, 0)


def test_acl_destroy_event_while_stream_waits_keeps_order(acl: ModuleType) -> None:
    first, second = ok(acl.rt.create_stream()), ok(acl.rt.create_stream())
    event, target = ok(acl.rt.create_event()), filled(acl, 64, 0)
    held = Held(acl, first)
    ok(acl.rt.memset_async(target, 64, 1, 64, first))
    ok(acl.rt.record_event(event, first))
    ok(acl.rt.stream_wait_event(second, event))
    ok(acl.rt.memset_async(target, 32, 2, 32, second))
    ok(acl.rt.destroy_event(event))
    assert acl.rt.destroy_event(event) == acl.rt.synchronize_event(event) == 107000
    held.release()
    ok(acl.rt.synchronize_stream(second))
    assert content(acl, target, 64) == bytes([2] * 32 + [1] * 32)


def test_acl_synchronize_event_with_timeout_expires_with_507047(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    stream, event = ok(acl.rt.create_stream()), ok(acl.rt.create_event())
    held = Held(acl, stream)
    ok(acl.rt.record_event(event, stream))
    start = time.monotonic()
    assert acl.rt.synchronize_event_with_timeout(event, 30) == 507047
    assert 0.03 <= time.monotonic() - start < overdue(0.03)
    assert "acl.rt.synchronize_event_with_timeout returned 507047" in message()
    for timeout in (0, -2):
        assert acl.rt.synchronize_event_with_timeout(event, timeout) == 107000
        assert f"the timeout is {timeout} ms; valid are -1 and 1 or more" in message()
    held.release()
    ok(acl.rt.synchronize_event_with_timeout(event, -1))


def test_acl_synchronize_event_lets_other_threads_run(acl: ModuleType) -> None:
    stream, event = ok(acl.rt.create_stream()), ok(acl.rt.create_event())
    held = Held(acl, stream)
    ok(acl.rt.record_event(event, stream))
    started = threading.Event()

    def wait() -> int:
        acl.rt.set_device(1)  # any device will do
        started.set()
        return int(acl.rt.synchronize_event(event))

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        assert started.wait(20)
        held.release()
        assert waiting.result(timeout=20) == 0


def test_acl_event_elapsed_time_lies_within_measured_time(acl: ModuleType) -> None:
    stream = ok(acl.rt.create_stream())
    start, end = ok(acl.rt.create_event()), ok(acl.rt.create_event_with_flag(TIME_LINE))
    before = time.monotonic_ns() // 1000
    ok(acl.rt.record_event(start, stream))
    ok(acl.rt.synchronize_event(start))
    time.sleep(0.02)
    ok(acl.rt.record_event(end, stream))
    ok(acl.rt.synchronize_event(end))
    after = time.monotonic_ns() // 1000
    elapsed, ret = acl.rt.event_elapsed_time(start, end)
    assert ret == 0 and type(elapsed) is float
    assert 20 <= elapsed <= (after - before) / 1000
    assert acl.rt.event_elapsed_time(end, start) == (-elapsed, 0)
    first, last = ok(acl.rt.event_get_timestamp(start)), ok(acl.rt.event_get_timestamp(end))
    assert before <= first < last <= after
    assert abs((last - first) / 1000 - elapsed) < 0.01


def test_acl_event_times_not_available_return_code_and_reason(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    stream, done, pending = (
        ok(call()) for call in (acl.rt.create_stream, acl.rt.create_event, acl.rt.create_event)
    )
    plain, unrecorded = ok(acl.rt.create_event_with_flag(SYNC)), ok(acl.rt.create_event())
    for event in (done, plain):
        ok(acl.rt.record_event(event, stream))
        ok(acl.rt.synchronize_event(event))
    held = Held(acl, stream)
    ok(acl.rt.record_event(pending, stream))
    for other, code, words in (
        (pending, 107006, "Solution: call acl.rt.synchronize_event"),
        (plain, 107006, "without the flag TIME_LINE"),
        (unrecorded, 507000, "was never recorded"),
    ):
        assert acl.rt.event_elapsed_time(done, other) == (0.0, code)
        assert words in message()
        assert acl.rt.event_elapsed_time(other, done) == (0.0, code)
        assert words in message()
        assert acl.rt.event_get_timestamp(other) == (0, code)
        assert words in message()
    held.release()
    ok(acl.rt.synchronize_stream(stream))


def test_acl_set_op_wait_timeout_expired_wait_fails_and_stream_goes_on(acl: ModuleType) -> None:
    first, second, target = ok(acl.rt.create_stream()), ok(acl.rt.create_stream()), filled(acl, 64, 0)
    event = ok(acl.rt.create_event())
    held = Held(acl, first)
    ok(acl.rt.record_event(event, first))
    ok(acl.rt.set_op_wait_timeout(1))
    ok(acl.rt.stream_wait_event(second, event))
    ok(acl.rt.memset_async(target, 64, 1, 64, second))
    assert acl.rt.synchronize_stream(second) == 107019
    assert "did not come within 1 s" in acl.get_recent_err_msg()
    assert content(acl, target, 64) == bytes([1] * 64)  # the operation behind the wait runs
    ok(acl.rt.set_op_wait_timeout(0))
    ok(acl.rt.stream_wait_event(second, event))
    assert acl.rt.synchronize_stream_with_timeout(second, 50) == 507046
    held.release()
    ok(acl.rt.synchronize_stream(second))


def test_acl_stream_abort_after_record_fails_waiters_with_107023(acl: ModuleType) -> None:
    first, second = ok(acl.rt.create_stream()), ok(acl.rt.create_stream())
    event, target = ok(acl.rt.create_event()), filled(acl, 64, 0)
    Held(acl, first)
    ok(acl.rt.record_event(event, first))
    ok(acl.rt.stream_wait_event(second, event))
    ok(acl.rt.memset_async(target, 64, 1, 64, second))
    ok(acl.rt.stream_abort(first))
    assert acl.rt.synchronize_event(event) == 107023
    assert acl.rt.synchronize_stream(second) == 107023
    assert acl.rt.synchronize_stream(first) == 107023
    assert acl.rt.query_event_status(event) == (1, 0)
    assert acl.rt.event_get_timestamp(event) == (0, 107023)


def test_acl_synchronize_stream_circular_event_waits_return_507046(acl: ModuleType) -> None:
    streams = [ok(acl.rt.create_stream()) for _ in range(2)]
    events = [ok(acl.rt.create_event_with_flag(SYNC)) for _ in range(2)]
    for number in range(2):
        ok(acl.rt.stream_wait_event(streams[number], events[1 - number]))
    for number in range(2):
        ok(acl.rt.record_event(events[number], streams[number]))
    assert acl.rt.synchronize_stream(streams[0]) == 507046
    assert f"stream {streams[1]:#x}" in acl.get_recent_err_msg()
    for stream in streams:
        ok(acl.rt.stream_abort(stream))
        assert acl.rt.synchronize_stream(stream) == 107023


def test_acl_events_across_streams_and_devices_equal_sequential_model(acl: ModuleType) -> None:
    both_directions(acl)
    drawn, size = random.Random(5), 2048
    areas, streams, events, model = [], [], [], []
    for device in (0, 1):
        ok(acl.rt.set_device(device))
        areas += [filled(acl, size, 0) for _ in range(2)]
        streams += [(device, ok(acl.rt.create_stream())) for _ in range(4)]
        events.append([ok(acl.rt.create_event()), ok(acl.rt.create_event_with_flag(SYNC))])
        model += [bytearray(size) for _ in range(2)]
    last = None
    for _ in range(400):
        device, stream = drawn.choice(streams)
        ok(acl.rt.set_device(device))
        if last is not None:
            ok(acl.rt.stream_wait_event(stream, last))
        to, source, count = drawn.randrange(4), drawn.randrange(4), drawn.randrange(1, size)
        at, start = drawn.randrange(size - count + 1), drawn.randrange(size - count + 1)
        if drawn.random() < 0.4:
            value = drawn.randrange(256)
            ok(acl.rt.memset_async(areas[to] + at, count, value, count, stream))
            model[to][at : at + count] = bytes([value]) * count
        else:
            ok(acl.rt.memcpy_async(areas[to] + at, count, areas[source] + start, count, 3, stream))
            model[to][at : at + count] = bytes(model[source][start : start + count])
        last = drawn.choice(events[device])
        ok(acl.rt.record_event(last, stream))
    ok(acl.rt.synchronize_event(last))
    assert [content(acl, area, size) for area in areas] == [bytes(each) for each in model]


ON_EVENTS: list[tuple[str, tuple[int, ...], tuple[int, ...], Any]] = [
    ("destroy_event", (), (), ()),
    ("record_event", (), (0,), ()),
    ("reset_event", (), (0,), ()),
    ("query_event", (), (), (0,)),
    ("query_event_status", (), (), (0,)),
    ("query_event_wait_status", (), (), (0,)),
    ("synchronize_event", (), (), ()),
    ("synchronize_event_with_timeout", (), (1,), ()),
    ("event_get_timestamp", (), (), (0,)),
    ("get_event_id", (), (), (0,)),
    ("stream_wait_event", (0,), (), ()),
]


@pytest.mark.parametrize(("name", "before", "after", "blank"), ON_EVENTS, ids=[each[0] for each in ON_EVENTS])
def test_acl_event_calls_invalid_event_return_documented_codes(
    name: str,
    before: tuple[int, ...],
    after: tuple[int, ...],
    blank: tuple[int, ...],
    acl: ModuleType,
    message: Callable[[], str],
) -> None:
    call = getattr(acl.rt, name)
    gone = ok(acl.rt.create_event())
    ok(acl.rt.destroy_event(gone))

    def called(event: int) -> Any:
        return call(*before, event, *after)

    def wanted(code: int) -> Any:
        return (*blank, code) if blank else code

    for handle, code in ((0, 100000), (0xABC0, 107000), (gone, 107000), (ok(acl.rt.create_stream()), 107000)):
        assert called(handle) == wanted(code)
        assert f"returned {code}" in message()
    assert in_thread(called, gone) == wanted(107002)


def test_acl_create_event_beyond_device_limit_returns_207007(
    acl: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_event, "MOST_EVENTS", 5)
    events = [ok(acl.rt.create_event()) for _ in range(5)]
    assert ok(acl.rt.get_event_avail_num()) == 0
    for create in (acl.rt.create_event, lambda: acl.rt.create_event_with_flag(1)):
        assert create() == (0, 207007)
    ok(acl.rt.destroy_event(events[0]))
    assert ok(acl.rt.get_event_avail_num()) == 1
    assert len({ok(acl.rt.get_event_id(event)) for event in events[1:]}) == 4
    ok(acl.rt.create_event_ex_with_flag(1))


FLAGS = [
    (
        "create_event_with_flag",
        (1, 2, 3, 8, 9, 10, 11, 0x10, 0x20),
        (0, 4, 0x11, 0x21, 0x30, 0x3B, IPC, 0x41, 0x80),
    ),
    ("create_event_ex_with_flag", (1, 2, 3, 8, 9, 10, 11), (0, 4, 0x10, 0x11, 0x20, 0x21, 0x41, 0x80)),
]


@pytest.mark.parametrize(("name", "valid", "invalid"), FLAGS, ids=[name for name, *_ in FLAGS])
def test_acl_create_event_with_flag_accepts_only_documented_flags(
    name: str, valid: tuple[int, ...], invalid: tuple[int, ...], acl: ModuleType
) -> None:
    for flag in valid:
        ok(getattr(acl.rt, name)(flag))
    for flag in invalid:
        assert getattr(acl.rt, name)(flag) == (0, 107000), flag
        text = acl.get_recent_err_msg()
        assert f"flag is {flag:#x}; valid are combinations of 1, 2 and 8" in text
        assert ("or 0x10 or 0x20 alone" in text) is (name == "create_event_with_flag")


def test_acl_create_event_ex_with_flag_ipc_returns_207000(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    assert acl.rt.create_event_ex_with_flag(IPC) == (0, 207000)
    assert "flag is 0x40, IPC" in message()


@pytest.mark.parametrize("name", ["create_event_with_flag", "create_event_ex_with_flag"])
@pytest.mark.parametrize("flag", [2, TIME_LINE, TIME_LINE | 2])
def test_acl_event_without_sync_flag_stream_wait_and_reset_return_207000(
    name: str, flag: int, acl: ModuleType, message: Callable[[], str]
) -> None:
    first, second = ok(acl.rt.create_stream()), ok(acl.rt.create_stream())
    event = ok(getattr(acl.rt, name)(flag))
    for recorded in (False, True):
        if recorded:
            ok(acl.rt.record_event(event, first))
            ok(acl.rt.synchronize_event(event))
        for call, args, what in (
            (acl.rt.stream_wait_event, (second, event), "waited for by streams"),
            (acl.rt.stream_wait_event, (0, event), "waited for by streams"),
            (acl.rt.reset_event, (event, first), "reset"),
        ):
            assert call(*args) == 207000
            assert (
                f"was created with flag {flag:#x}, without SYNC (1), and such events are not {what}"
                in message()
            )
        assert acl.rt.query_event_wait_status(event) == (0, 207000)
        assert acl.get_recent_err_msg()
    assert acl.rt.query_event_status(event) == (1, 0)
    ok(acl.rt.synchronize_device())


def test_acl_device_use_only_event_record_and_wait_return_107000(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    stream, event = ok(acl.rt.create_stream()), ok(acl.rt.create_event_with_flag(0x10))
    for call, args in (
        (acl.rt.record_event, (event, stream)),
        (acl.rt.record_event, (event, 0)),
        (acl.rt.reset_event, (event, stream)),
        (acl.rt.stream_wait_event, (stream, event)),
    ):
        assert call(*args) == 107000
        assert "was created with flag 0x10 (DEVICE_USE_ONLY)" in message()
    assert acl.rt.query_event_status(event) == (0, 0)
    assert ok(acl.rt.get_event_id(event)) > 0
    ok(acl.rt.destroy_event(event))


def test_acl_external_event_orders_streams_and_host_queries_return_207000(acl: ModuleType) -> None:
    first, second = ok(acl.rt.create_stream()), ok(acl.rt.create_stream())
    event, source, target = ok(acl.rt.create_event_with_flag(0x20)), filled(acl, 64, 0), filled(acl, 64, 9)
    held = Held(acl, first)
    ok(acl.rt.memset_async(source, 64, 3, 64, first))
    ok(acl.rt.record_event(event, first))
    ok(acl.rt.stream_wait_event(second, event))
    ok(acl.rt.memcpy_async(target, 64, source, 64, 3, second))
    other = ok(acl.rt.create_event())
    for result in (
        acl.rt.query_event(event),
        acl.rt.query_event_status(event),
        acl.rt.query_event_wait_status(event),
        acl.rt.event_elapsed_time(event, other),
        acl.rt.event_elapsed_time(other, event),
        acl.rt.event_get_timestamp(event),
        (0, acl.rt.synchronize_event(event)),
        (0, acl.rt.synchronize_event_with_timeout(event, 5)),
    ):
        assert result == (0, 207000)
    held.release()
    ok(acl.rt.synchronize_stream(second))
    assert content(acl, target, 64) == bytes([3]) * 64
    ok(acl.rt.reset_event(event, first))
    ok(acl.rt.synchronize_device())
