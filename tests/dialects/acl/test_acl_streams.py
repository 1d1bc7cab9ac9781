"""``acl.rt``: streams, synchronization, limits, and resets of their device."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest

import peerlane
from helpers.acl_calls import MIB, Held, content, filled, in_thread, ok
from helpers.promised import overdue
from peerlane.backends.virtual.stream import VirtualStream
from peerlane.dialects.acl import _state

pytestmark = pytest.mark.timeout(60)
UNKNOWN = 0xABC0


def test_acl_stream_runs_operations_in_submission_order(acl: ModuleType) -> None:
    stream = ok(acl.rt.create_stream())
    target, other = filled(acl, 64, 0), filled(acl, 64, 7)
    ok(acl.rt.memset_async(target, 64, 1, 64, stream))
    ok(acl.rt.memcpy_async(target, 32, other, 32, 3, stream))
    ok(acl.rt.memset_async(target, 8, 2, 8, stream))
    ok(acl.rt.synchronize_stream(stream))
    assert content(acl, target, 64) == bytes([2] * 8 + [7] * 24 + [1] * 32)
    ok(acl.rt.destroy_stream(stream))


# (call, arguments before the stream, arguments after it); each takes the stream as an int.
ON_STREAMS: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = [
    ("destroy_stream", (), ()),
    ("destroy_stream_force", (), ()),
    ("synchronize_stream", (), ()),
    ("synchronize_stream_with_timeout", (), (5,)),
    ("stream_query", (), ()),
    ("stream_abort", (), ()),
    ("stream_get_id", (), ()),
    ("set_stream_failure_mode", (), (0,)),
    ("subscribe_report", (1,), ()),
    ("unsubscribe_report", (1,), ()),
]


def code_of(result: Any) -> int:
    """Return the code of a failure, whose other outputs must be zeros."""
    if isinstance(result, tuple):
        assert not any(result[:-1])
        return int(result[-1])
    return int(result)


@pytest.mark.parametrize(
    ("name", "before", "after"), ON_STREAMS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_acl_stream_calls_invalid_stream_return_107000_or_107003(
    name: str, before: tuple[int, ...], after: tuple[int, ...], acl: ModuleType, message: Callable[[], str]
) -> None:
    call = getattr(acl.rt, name)
    event = ok(acl.rt.create_event())
    gone = ok(acl.rt.create_stream())
    ok(acl.rt.destroy_stream(gone))
    ok(acl.rt.set_device(1))
    elsewhere = ok(acl.rt.create_stream())
    ok(acl.rt.set_device(0))
    for handle, code, words in (
        (UNKNOWN, 107000, "gave out no stream with the number 0xabc0"),
        (event, 107000, "number of another kind: event "),
        (gone, 107000, "ended by acl.rt.destroy_stream at "),
        (elsewhere, 107003, "belongs to device 1, and device 0 is current"),
    ):
        assert code_of(call(*before, handle, *after)) == code
        assert words in message()
    assert in_thread(lambda: code_of(call(*before, gone, *after))) == 107002


def test_acl_stream_and_event_handles_are_never_reused(acl: ModuleType) -> None:
    seen = set()
    for _ in range(1000):
        stream, event = ok(acl.rt.create_stream()), ok(acl.rt.create_event())
        seen |= {stream, event}
        ok(acl.rt.destroy_stream(stream))
        ok(acl.rt.destroy_event(event))
    assert len(seen) == 2000


@pytest.mark.parametrize("name", ["destroy_stream", "destroy_stream_force"])
def test_acl_destroy_stream_default_stream_is_refused(name: str, acl: ModuleType) -> None:
    assert getattr(acl.rt, name)(0) == 100000
    default = ok(acl.rt.ctx_get_current_default_stream())
    assert getattr(acl.rt, name)(default) == 107000
    ok(acl.rt.synchronize_stream(0))


def test_acl_stream_0_is_default_stream_of_current_context(acl: ModuleType) -> None:
    first = ok(acl.rt.ctx_get_current_default_stream())
    assert first and ok(acl.rt.ctx_get_current_default_stream()) == first
    assert ok(acl.rt.stream_get_id(0)) == ok(acl.rt.stream_get_id(first))
    ok(acl.rt.set_device(1))
    second = ok(acl.rt.ctx_get_current_default_stream())
    assert second != first
    target = filled(acl, 64, 0)
    ok(acl.rt.memset_async(target, 64, 3, 64, 0))
    ok(acl.rt.synchronize_stream(second))
    assert content(acl, target, 64) == bytes([3] * 64)
    assert acl.rt.synchronize_stream(first) == 107003


def test_acl_default_stream_does_not_wait_for_other_streams(acl: ModuleType) -> None:
    stream = ok(acl.rt.create_stream())
    held = Held(acl, stream)
    target = filled(acl, 64, 0)
    ok(acl.rt.memset_async(target, 64, 1, 64, stream))
    ok(acl.rt.memset_async(target, 64, 2, 64, 0))
    ok(acl.rt.synchronize_stream(0))
    assert content(acl, target, 64) == bytes([2] * 64)
    held.release()
    ok(acl.rt.synchronize_stream(stream))
    assert content(acl, target, 64) == bytes([1] * 64)


def test_acl_stream_query_reports_pending_work(acl: ModuleType) -> None:
    stream = ok(acl.rt.create_stream())
    assert acl.rt.stream_query(stream) == (0, 0)
    held = Held(acl, stream)
    assert acl.rt.stream_query(stream) == (1, 0)
    held.release()
    ok(acl.rt.synchronize_stream(stream))
    assert acl.rt.stream_query(stream) == (0, 0)


def test_acl_synchronize_with_timeout_counts_milliseconds_and_returns_507046(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    stream = ok(acl.rt.create_stream())
    held = Held(acl, stream)
    for wait in (
        lambda: acl.rt.synchronize_stream_with_timeout(stream, 30),
        lambda: acl.rt.synchronize_device_with_timeout(30),
    ):
        start = time.monotonic()
        assert wait() == 507046
        assert 0.03 <= time.monotonic() - start < overdue(0.03)
        assert "was not done after 0.0" in message()
    for timeout in (0, -2, -(1 << 31)):
        assert acl.rt.synchronize_stream_with_timeout(stream, timeout) == 107000
        assert f"the timeout is {timeout} ms; valid are -1 and 1 or more" in message()
        assert acl.rt.synchronize_device_with_timeout(timeout) == 107000
        assert "pass 1 ms or more, or -1 to wait for ever" in message()
    held.release()
    ok(acl.rt.synchronize_stream_with_timeout(stream, -1))
    ok(acl.rt.synchronize_device_with_timeout(10_000))


def test_acl_synchronize_stream_lets_other_threads_run(acl: ModuleType) -> None:
    stream = ok(acl.rt.create_stream())
    held = Held(acl, stream)
    started = threading.Event()

    def wait() -> int:
        acl.rt.set_device(0)
        started.set()
        return int(acl.rt.synchronize_stream(stream))

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        assert started.wait(20)
        held.release()
        assert waiting.result(timeout=20) == 0


def test_acl_synchronize_device_waits_for_every_stream_and_reports_first_failure(acl: ModuleType) -> None:
    streams = [ok(acl.rt.create_stream()) for _ in range(4)]
    target = filled(acl, 4 * MIB, 0)
    ok(acl.rt.set_device(1))
    far = filled(acl, 64, 1)
    ok(acl.rt.set_device(0))
    ok(acl.rt.memcpy_async(target, 64, far, 64, 3, streams[1]))
    for number, stream in enumerate(streams):
        ok(acl.rt.memset_async(target + number * MIB, MIB, number + 1, MIB, stream))
    assert acl.rt.synchronize_device() == 507899
    assert content(acl, target, 4 * MIB) == b"".join(bytes([n + 1]) * MIB for n in range(4))
    ok(acl.rt.synchronize_device())


def test_acl_set_stream_failure_mode_1_stops_stream_after_failure(acl: ModuleType) -> None:
    ok(acl.rt.set_device(1))
    far = filled(acl, 64, 1)
    ok(acl.rt.set_device(0))
    target = filled(acl, 64, 0)
    stream = ok(acl.rt.create_stream())
    for mode, wanted in ((0, 5), (1, 6), (0, 7)):
        before = content(acl, target, 64)
        ok(acl.rt.set_stream_failure_mode(stream, mode))
        held = Held(acl, stream)
        ok(acl.rt.memcpy_async(target, 64, far, 64, 3, stream))
        ok(acl.rt.memset_async(target, 64, wanted, 64, stream))
        held.release()
        assert acl.rt.synchronize_stream(stream) == 507899
        assert "peer access" in acl.get_recent_err_msg()
        assert content(acl, target, 64) == (before if mode else bytes([wanted] * 64))
        ok(acl.rt.synchronize_stream(stream))
    assert acl.rt.set_stream_failure_mode(stream, 2) == 107000


def test_acl_stream_abort_cancels_queued_work_and_stream_stays_usable(acl: ModuleType) -> None:
    stream = ok(acl.rt.create_stream())
    target = filled(acl, 64, 0)
    Held(acl, stream)
    ok(acl.rt.memset_async(target, 64, 1, 64, stream))
    ok(acl.rt.stream_abort(stream))
    assert acl.rt.synchronize_stream(stream) == 107023
    assert content(acl, target, 64) == bytes(64)
    ok(acl.rt.memset_async(target, 64, 2, 64, stream))
    ok(acl.rt.synchronize_stream(stream))
    assert content(acl, target, 64) == bytes([2] * 64)


@pytest.mark.parametrize("name", ["stream_abort", "destroy_stream_force"])
def test_acl_stream_abort_ends_waits_of_other_threads_with_107023(
    name: str, acl: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, waits, inside = ok(acl.rt.create_stream()), 3, threading.Semaphore(0)
    Held(acl, stream)
    sync = VirtualStream.sync

    def sync_that_signals(self: peerlane.Stream, timeout: float | None = None) -> None:
        inside.release()
        sync(self, timeout)

    def wait(_: int) -> int:
        acl.rt.set_device(0)
        return int(acl.rt.synchronize_stream(stream))

    monkeypatch.setattr(VirtualStream, "sync", sync_that_signals)
    with ThreadPoolExecutor(waits) as pool:
        waiting = pool.map(wait, range(waits), timeout=20)
        for _ in range(waits):
            assert inside.acquire(timeout=20)
        ok(getattr(acl.rt, name)(stream))
        assert list(waiting) == [107023] * waits


def test_acl_destroy_stream_waits_and_destroy_stream_force_does_not(acl: ModuleType) -> None:
    target = filled(acl, 8 * MIB, 0)
    stream = ok(acl.rt.create_stream())
    ok(acl.rt.memset_async(target, 8 * MIB, 1, 8 * MIB, stream))
    ok(acl.rt.destroy_stream(stream))
    assert content(acl, target, 8 * MIB) == bytes([1]) * (8 * MIB)
    stream = ok(acl.rt.create_stream())
    Held(acl, stream)
    ok(acl.rt.memset_async(target, 64, 2, 64, stream))
    ok(acl.rt.destroy_stream_force(stream))
    assert acl.rt.synchronize_stream(stream) == 107000
    assert content(acl, target, 64) == bytes([1] * 64)


def test_acl_destroy_stream_endless_notify_wait_returns_107023(acl: ModuleType) -> None:
    stream, notify = ok(acl.rt.create_stream()), ok(acl.rt.create_notify(0))
    ok(acl.rt.wait_and_reset_notify(notify, stream, 0))
    assert acl.rt.destroy_stream(stream) == 107023
    assert acl.rt.stream_query(stream) == (0, 107000)


@pytest.mark.parametrize("end", ["destroy_stream", "reset_device"])
def test_acl_ending_stream_with_endless_wait_ends_waits_of_other_threads(
    end: str, acl: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, waits, inside = ok(acl.rt.create_stream()), 3, threading.Semaphore(0)
    ok(acl.rt.wait_and_reset_notify(ok(acl.rt.create_notify(0)), stream, 0))
    sync = VirtualStream.sync

    def sync_that_signals(self: peerlane.Stream, timeout: float | None = None) -> None:
        inside.release()
        sync(self, timeout)

    def wait(_: int) -> int:
        _state.machine.thread.context = own  # set_device would add a reference
        return int(acl.rt.synchronize_stream(stream))

    own = _state.machine.thread.context
    monkeypatch.setattr(VirtualStream, "sync", sync_that_signals)
    with ThreadPoolExecutor(waits) as pool:
        waiting = pool.map(wait, range(waits), timeout=20)
        for _ in range(waits):
            assert inside.acquire(timeout=20)
        assert getattr(acl.rt, end)(stream if end == "destroy_stream" else 0) == 107023
        assert list(waiting) == [107023] * waits
    if end == "reset_device":
        ok(acl.rt.set_device(0))


def test_acl_destroy_stream_unreported_failure_returns_its_code(acl: ModuleType) -> None:
    ok(acl.rt.set_device(1))
    far = filled(acl, 64, 1)
    ok(acl.rt.set_device(0))
    stream = ok(acl.rt.create_stream())
    ok(acl.rt.memcpy_async(filled(acl, 64, 0), 64, far, 64, 3, stream))
    assert acl.rt.destroy_stream(stream) == 507899
    assert acl.rt.destroy_stream(stream) == 107000


def test_acl_reset_device_last_reference_waits_for_work_and_ends_handles(acl: ModuleType) -> None:
    host = ok(acl.rt.malloc_host(8 * MIB))
    stream, default = ok(acl.rt.create_stream()), ok(acl.rt.ctx_get_current_default_stream())
    event, notify = ok(acl.rt.create_event()), ok(acl.rt.create_notify(0))
    device = filled(acl, 8 * MIB, 9)
    ok(acl.rt.memcpy_async(host, 4 * MIB, device, 4 * MIB, 2, stream))
    ok(acl.rt.memcpy_async(host + 4 * MIB, 4 * MIB, device, 4 * MIB, 2, 0))
    ok(acl.rt.reset_device(0))
    assert acl.util.ptr_to_bytes(host, 8 * MIB) == bytes([9]) * (8 * MIB)
    ok(acl.rt.set_device(0))
    for handle in (stream, default):
        assert acl.rt.synchronize_stream(handle) == 107000
    assert acl.rt.query_event(event) == (0, 107000)
    assert acl.rt.get_notify_id(notify) == (0, 107000)
    assert ok(acl.rt.ctx_get_current_default_stream()) not in (stream, default)
    ok(acl.rt.free_host(host))


def test_acl_reset_device_endless_notify_wait_returns_107023(acl: ModuleType) -> None:
    stream, notify = ok(acl.rt.create_stream()), ok(acl.rt.create_notify(0))
    ok(acl.rt.wait_and_reset_notify(notify, stream, 0))
    assert acl.rt.reset_device(0) == 107023
    assert acl.rt.reset_device(0) == 507007


@pytest.mark.parametrize(("profile", "most"), [("ascend-a2", 1984), ("ascend-310p", 1024)])
def test_acl_create_stream_beyond_profile_limit_returns_207008(
    profile: str, most: int, enter: Callable[[str], ModuleType]
) -> None:
    acl = enter(f"devices=2,memory=64MiB,profile={profile}")
    ok(acl.rt.set_device(0))
    ok(acl.rt.synchronize_stream(0))
    assert ok(acl.rt.get_stream_available_num()) == most
    streams = [ok(acl.rt.create_stream()) for _ in range(most)]
    assert ok(acl.rt.get_stream_available_num()) == 0
    assert acl.rt.create_stream() == (0, 207008)
    assert f"{most:,} streams" in acl.get_recent_err_msg()
    assert acl.rt.create_stream_with_config(0, 0) == (0, 207008)
    ok(acl.rt.set_device(1))
    ok(acl.rt.create_stream())
    ok(acl.rt.set_device(0))
    ok(acl.rt.destroy_stream(streams[0]))
    ok(acl.rt.destroy_stream_force(streams[1]))
    assert ok(acl.rt.get_stream_available_num()) == 2
    ok(acl.rt.create_stream())


@pytest.mark.parametrize(
    ("priority", "flag", "ret"), [(0, 0, 0), (7, 15, 0), (8, 0, 107000), (0, 16, 107000)]
)
def test_acl_create_stream_with_config_checks_priority_and_flag(
    priority: int, flag: int, ret: int, acl: ModuleType
) -> None:
    stream, got = acl.rt.create_stream_with_config(priority, flag)
    assert got == ret and bool(stream) == (ret == 0)


def test_acl_stream_get_id_differs_per_stream(acl: ModuleType) -> None:
    ids = {ok(acl.rt.stream_get_id(ok(acl.rt.create_stream()))) for _ in range(10)}
    assert len(ids) == 10 and all(0 < number < 1 << 31 for number in ids)


def test_acl_memset_async_from_eight_threads_on_one_stream_succeeds(acl: ModuleType) -> None:
    stream, target = ok(acl.rt.create_stream()), filled(acl, 8 * 64, 0)

    def work(number: int) -> int:
        acl.rt.set_device(0)
        codes = [acl.rt.memset_async(target + number * 64, 64, number + 1, 64, stream) for _ in range(200)]
        return int(any(codes) or acl.rt.synchronize_stream(stream))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8), timeout=40)) == [0] * 8
    assert content(acl, target, 8 * 64) == b"".join(bytes([n + 1]) * 64 for n in range(8))


def test_acl_destroy_stream_from_two_threads_succeeds_once(acl: ModuleType) -> None:
    def destroy(stream: int) -> int:
        acl.rt.set_device(0)
        return int(acl.rt.destroy_stream(stream))

    with ThreadPoolExecutor(2) as pool:
        for _ in range(50):
            stream = ok(acl.rt.create_stream())
            codes = sorted(pool.map(destroy, [stream, stream], timeout=20))
            assert codes == [0, 107000]


def test_acl_reset_device_during_submission_returns_documented_codes(acl: ModuleType) -> None:
    for _ in range(10):
        stream, target = ok(acl.rt.create_stream()), filled(acl, 64, 0)
        busy = threading.Event()

        def submit(stream: int = stream, target: int = target, busy: threading.Event = busy) -> set[int]:
            acl.rt.set_device(0)
            acl.rt.reset_device(0)  # the other thread's reference keeps the context
            codes = set()
            while not codes & {107000, 107002}:
                codes.add(acl.rt.memset_async(target, 64, 1, 64, stream))
                busy.set()
            return codes

        with ThreadPoolExecutor(1) as pool:
            submitting = pool.submit(submit)
            assert busy.wait(20)
            ok(acl.rt.reset_device(0))
            assert submitting.result(timeout=20) <= {0, 107000, 107002}
        ok(acl.rt.set_device(0))
    acl.get_recent_err_msg()


def test_acl_create_stream_3000_streams_start_no_threads(acl: ModuleType) -> None:
    before = threading.active_count()
    streams = [ok(acl.rt.create_stream()) for _ in range(3000)]
    target = filled(acl, 3000, 0)
    for number, stream in enumerate(streams):
        ok(acl.rt.memset_async(target + number, 1, number % 251, 1, stream))
    ok(acl.rt.synchronize_device())
    assert content(acl, target, 3000) == bytes(number % 251 for number in range(3000))
    assert threading.active_count() <= before
    for stream in streams:
        ok(acl.rt.destroy_stream(stream))


def test_acl_device_task_abort_cancels_only_work_of_that_device(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    streams = [ok(acl.rt.create_stream()) for _ in range(2)]
    ok(acl.rt.set_device(1))
    other = ok(acl.rt.create_stream())
    kept, target = Held(acl, other), filled(acl, 64, 1)
    ok(acl.rt.memset_async(target, 64, 2, 64, other))
    ok(acl.rt.set_device(0))
    for stream in streams:
        Held(acl, stream)
    ok(in_thread(acl.rt.device_task_abort, 0, 10_000))  # the calling thread has no device
    for stream in streams:
        assert acl.rt.synchronize_stream(stream) == 107023
        assert message()
    ok(acl.rt.device_task_abort(0, 0))
    near = filled(acl, 64, 0)
    ok(acl.rt.memset_async(near, 64, 5, 64, streams[0]))
    ok(acl.rt.synchronize_stream(streams[0]))
    assert content(acl, near, 64) == bytes([5]) * 64
    ok(acl.rt.set_device(1))
    kept.release()
    ok(acl.rt.synchronize_stream(other))
    assert content(acl, target, 64) == bytes([2]) * 64


def test_acl_device_task_abort_bad_arguments_return_codes(
    acl: ModuleType, enter: Callable[[str], ModuleType]
) -> None:
    for device in (-1, 2):
        assert acl.rt.device_task_abort(device, 0) == 107001
    assert acl.rt.device_task_abort(0, 36 * 60 * 1000 + 1) == 107000
    assert "36 minutes" in acl.get_recent_err_msg()
    older = enter("profile=ascend-310p,memory=64MiB")
    assert older.rt.device_task_abort(0, 0) == 207000


def test_acl_device_get_stream_priority_range_returns_7_and_0(acl: ModuleType) -> None:
    least, greatest, ret = acl.rt.device_get_stream_priority_range()
    assert (least, greatest, ret) == (7, 0, 0)
    for priority in (least, greatest):
        ok(acl.rt.create_stream_with_config(priority, 0))


def test_acl_get_primary_ctx_state_is_active_only_after_set_device(acl: ModuleType) -> None:
    assert acl.rt.get_primary_ctx_state(0) == (1, 0, 0)
    assert acl.rt.get_primary_ctx_state(1) == (0, 0, 0)
    ok(acl.rt.create_context(1))
    assert acl.rt.get_primary_ctx_state(1) == (0, 0, 0)
    ok(acl.rt.set_device(1))
    assert acl.rt.get_primary_ctx_state(1) == (1, 0, 0)
    ok(acl.rt.reset_device(1))
    assert acl.rt.get_primary_ctx_state(1) == (0, 0, 0)
    for device in (-1, 2):
        assert acl.rt.get_primary_ctx_state(device) == (0, 0, 107001)
