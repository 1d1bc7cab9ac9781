"""The promises of docs/errors.md on streams and groups."""

from __future__ import annotations

import gc
import pickle
import re
import time
import weakref

import pytest

import peerlane as pl
from helpers.promised import overdue
from helpers.promises import WILD, Node, fails, filled, parked, timed_out, untouched
from peerlane.errors import Fault

pytestmark = pytest.mark.timeout(60)


def test_create_stream_bad_or_after_leaving_raises(node: Node) -> None:
    d0, _ = node()
    for bad in ("ignore", "", "STOP", [], None):
        with pytest.raises(pl.InvalidValue, match="valid are 'stop' and 'continue'"):
            d0.create_stream(on_error=bad)  # type: ignore[arg-type]
    pl.leave_node()
    with pytest.raises(pl.Closed, match="left node"):
        d0.create_stream()


def test_stream_class_called_raises_type_error() -> None:
    with pytest.raises(TypeError, match=r"made by Device\.create_stream"):
        pl.Stream()


def test_wait_for_event_not_recorded_raises_invalid_value(node: Node) -> None:
    d0, _ = node()
    s = d0.create_stream()
    with pytest.raises(pl.InvalidValue, match=r"never recorded.*stream\.record") as refused:
        s.wait(d0.create_event())
    assert refused.value.fault is Fault.NOT_RECORDED
    assert s.submitted == 0


def test_wait_on_closed_end_raises_closed(node: Node) -> None:
    d0, _ = node()
    s, t = d0.create_stream(), d0.create_stream()
    event, signal = t.record(), d0.create_notify()
    other = t.record()
    for closed in (event, signal, t):
        closed.close()
        with pytest.raises(pl.Closed):
            s.wait(closed)
    for wrong in (None, 5, d0):
        with pytest.raises(TypeError, match="wait for an Event, a Stream or a Notify"):
            s.wait(wrong)  # type: ignore[arg-type]
    assert s.submitted == 0
    s.close()
    for never in (other, d0.create_notify()):
        with pytest.raises(pl.Closed, match="takes no more operations"):
            s.wait(never)


def test_wait_with_bad_timeout_raises(node: Node) -> None:
    d0, _ = node()
    s = d0.create_stream()
    for bad in (-1, float("nan"), -1e-9, -(10**400)):
        with pytest.raises(pl.InvalidValue, match="seconds from 0 on"):
            s.wait(d0.create_notify(), timeout=bad)
    for wrong in ("1", True):
        with pytest.raises(TypeError, match="timeout must be seconds or None"):
            s.wait(d0.create_notify(), timeout=wrong)  # type: ignore[arg-type]
    assert s.submitted == 0
    s.sync(10**400)  # more than a float holds: no limit


def test_wait_past_its_deadline_raises_wait_timeout_at_sync(node: Node) -> None:
    d0, _ = node()
    s, a = d0.create_stream(), filled(d0, 8, 1)
    signal = d0.create_notify()
    start = time.monotonic()
    s.wait(signal, timeout=0.05)
    a.fill(2, stream=s)
    with pytest.raises(
        pl.WaitTimeout, match=rf"operation 1 \(wait for a notify\) of stream {s.id}.* within 0.05 s"
    ):
        s.sync()
    assert 0.05 <= time.monotonic() - start < overdue(0.05)
    assert untouched(a, 1)
    signal.record()
    assert (signal.recorded, signal.consumed) == (1, 0)


def test_wait_for_failed_stream_is_cancelled_with_first_cause(node: Node) -> None:
    d0, d1 = node()
    s, t, a = d0.create_stream(), d1.create_stream(), filled(d1, 8, 1)
    fails(s)
    t.wait(s.record())
    a.fill(2, stream=t)
    with pytest.raises(pl.Cancelled, match=r"operation 1 \(wait\).*because.*cannot be touched"):
        t.sync()
    assert untouched(a, 1)
    with pytest.raises(pl.BadAddress):
        s.sync()


def test_notify_on_closed_end_raises_closed(node: Node) -> None:
    d0, _ = node()
    s, signal = d0.create_stream(), d0.create_notify()
    with pytest.raises(TypeError, match="needs a Notify, not Event"):
        s.notify(d0.create_event())  # type: ignore[arg-type]
    signal.close()
    with pytest.raises(pl.Closed):
        s.notify(signal)
    assert s.submitted == 0
    s.close()
    fresh = d0.create_notify()
    with pytest.raises(pl.Closed, match="takes no more operations"):
        s.notify(fresh)
    assert fresh.recorded == 0


def test_notify_strict_doubled_raises_busy_at_sync(node: Node) -> None:
    d0, _ = node()
    s, signal = d0.create_stream(), d0.create_notify("strict")
    s.notify(signal)
    s.notify(signal)
    with pytest.raises(pl.Busy, match=rf"operation 2 \(notify\).*notify {signal.id} is strict") as refused:
        s.sync()
    assert refused.value.fault is Fault.NOTIFY_DOUBLED
    assert signal.recorded == 1


def test_notify_behind_failure_is_not_recorded(node: Node) -> None:
    d0, _ = node()
    s, signal = d0.create_stream(), d0.create_notify()
    fails(s)
    s.notify(signal)
    with pytest.raises(pl.BadAddress):
        s.sync()
    assert signal.recorded == 0


class _Kept:
    """A callable that takes a weak reference."""

    def __call__(self, *_: object) -> None: ...


def test_callback_not_callable_raises_type_error(node: Node) -> None:
    d0, _ = node()
    s, function = d0.create_stream(), _Kept()
    with pytest.raises(TypeError, match="int cannot be called"):
        s.launch_callback(5)  # type: ignore[arg-type]
    s.close()
    with pytest.raises(pl.Closed):
        s.launch_callback(function)
    alive = weakref.ref(function)
    del function
    gc.collect()
    assert alive() is None


def test_failure_has_number_of_its_operation(node: Node) -> None:
    d0, _ = node()
    s, buffer = d0.create_stream(), d0.allocate(8)

    def raises() -> None:
        raise ZeroDivisionError

    buffer.fill(1, stream=s)
    s.launch_callback(raises)
    with pytest.raises(pl.DeviceFault) as failed:
        s.sync()
    assert failed.value.operation == 2
    assert pickle.loads(pickle.dumps(failed.value)).operation == 2
    with pytest.raises(pl.Closed) as closed:
        buffer.close()
        buffer.fill(1)
    assert closed.value.operation is None


def test_callback_that_raises_is_device_fault_with_cause(node: Node) -> None:
    d0, _ = node()
    s, t, called = d0.create_stream(), d0.create_stream(), []
    error = ZeroDivisionError("by hand")

    def raises() -> None:
        raise error

    s.launch_callback(raises)
    s.launch_callback(called.append, 1)
    t.launch_callback(called.append, 2)
    with pytest.raises(
        pl.DeviceFault, match=r"operation 1 \(callback\).*raises raised ZeroDivisionError: by hand"
    ) as failed:
        s.sync()
    assert failed.value.fault is Fault.CALLBACK_FAILED
    assert failed.value.__cause__ is error
    t.sync()
    s.launch_callback(called.append, 3)
    s.sync()
    assert called == [2, 3]


def test_callback_that_waits_for_itself_raises_deadlock(node: Node) -> None:
    d0, _ = node()
    s, t = d0.create_stream(), d0.create_stream()
    seen = []

    def waits() -> None:
        behind = s.record()
        t.wait(behind)
        for wait in (s.sync, behind.sync, t.sync):
            try:
                wait()
            except pl.Busy as refused:
                seen.append(refused.fault)

    s.launch_callback(waits)
    s.sync()
    t.sync()
    assert seen == [Fault.DEADLOCK] * 3


def test_callback_that_waits_for_another_raises_deadlock(node: Node) -> None:
    d0, _ = node()
    s, t = d0.create_stream(), d0.create_stream()
    seen, called = [], []

    def waits() -> None:
        t.launch_callback(called.append, 1)
        behind = t.record()
        for wait in (t.sync, behind.sync):
            try:
                wait(timeout=20)
            except pl.Busy as refused:
                seen.append(refused.fault)

    s.launch_callback(waits)
    s.sync(timeout=20)
    t.sync(timeout=20)
    assert seen == [Fault.DEADLOCK] * 2
    assert called == [1]
    # A callback that has returned is not in the way.
    t.launch_callback(called.append, 2)
    t.sync(timeout=20)
    s.launch_callback(lambda: (t.sync(timeout=20), called.append(3)))
    s.sync(timeout=20)
    assert called == [1, 2, 3]


def test_callback_cancelled_is_not_called_and_released(node: Node) -> None:
    d0, _ = node()
    s, called, kept = d0.create_stream(), [], _Kept()
    alive = weakref.ref(kept)
    parked(s)
    s.launch_callback(called.append, kept)
    del kept
    s.abort()
    with pytest.raises(pl.Cancelled):
        s.sync()
    gc.collect()
    assert called == []
    assert alive() is None


def test_sync_reports_first_failure_once(node: Node) -> None:
    d0, _ = node()
    s, a = d0.create_stream(on_error="continue"), filled(d0, 8, 1)
    a.fill(1, stream=s)
    fails(s)
    pl.raw.copy(a.address, WILD + 4096, 8, stream=s)
    with pytest.raises(pl.BadAddress, match=rf"operation 2 \(copy\) of stream {s.id}: .*0x1000") as failed:
        s.sync()
    assert failed.value.fault is Fault.HOST_FAULT
    s.sync()
    a.fill(4, stream=s)
    s.sync()
    assert untouched(a, 4)


def test_sync_mode_stop_cancels_and_continue_runs_what_follows(node: Node) -> None:
    d0, _ = node()
    for mode, behind in (("stop", 1), ("continue", 2)):
        s, a = d0.create_stream(on_error=mode), filled(d0, 8, 0)
        a.fill(1, stream=s)
        fails(s)
        a.fill(2, stream=s)
        with pytest.raises(pl.BadAddress, match="operation 2"):
            s.sync()
        assert untouched(a, behind)
        a.fill(3, stream=s)
        s.sync()
        assert untouched(a, 3)


def test_sync_timeout_raises_naming_the_wait(node: Node) -> None:
    d0, _ = node()
    s, a = d0.create_stream(), filled(d0, 8, 1)
    gate = parked(s)
    a.fill(2, stream=s)
    start = time.monotonic()
    text = timed_out(lambda: s.sync(timeout=0.1))
    assert 0.1 <= time.monotonic() - start < overdue(0.1)
    assert re.search(rf"not done after 0.1 s: stream {s.id} .*waits for notify {gate.id} \(2 queued", text), (
        text
    )
    gate.record()
    s.sync(timeout=20)
    assert untouched(a, 2)


def test_sync_waiting_for_unrecorded_notify_raises_deadlock(node: Node) -> None:
    d0, _ = node()
    s, signal = d0.create_stream(), d0.create_notify()
    s.wait(signal)
    start = time.monotonic()
    with pytest.raises(pl.Deadlock, match=rf"no submitted operation records notify {signal.id}") as refused:
        s.sync()
    assert time.monotonic() - start < 5 * 2.0
    state = refused.value.detail
    (waits,) = state.streams
    assert (state.why, state.notify_in_the_way(), waits.what) == ("never", signal.id, "notify")
    assert waits.submitted_at.startswith("test_promises_streams.py:") and waits.submitted_at in str(
        refused.value
    )
    (thread,) = state.threads
    assert thread.thread == "MainThread" and thread.place.startswith("test_promises_streams.py:")
    signal.record()
    s.sync(timeout=20)


def test_sync_deadlock_names_earlier_failure(node: Node) -> None:
    d0, _ = node()
    s, t, doubled, signal = (
        d0.create_stream(),
        d0.create_stream(),
        d0.create_notify("strict"),
        d0.create_notify(),
    )
    for _ in range(2):
        s.notify(doubled)
    s.notify(signal)
    t.wait(signal)
    with pytest.raises(pl.Deadlock) as refused:
        t.sync()
    (failed,) = refused.value.detail.failed
    assert (failed.stream, failed.operation) == (s.id, 2)
    assert f"stream {s.id} failed before" in str(refused.value) and failed.submitted_at in str(refused.value)
    with pytest.raises(pl.Busy, match="is strict and was recorded again"):
        s.sync(timeout=20)
    signal.record()
    t.sync(timeout=20)


def test_sync_in_circle_raises_deadlock_naming_streams(node: Node) -> None:
    d0, d1 = node()
    s, t, signal = d0.create_stream(), d1.create_stream(), d0.create_notify()
    s.wait(signal)
    t.wait(s.record())
    t.notify(signal)
    start = time.monotonic()
    for stream in (s, t):
        with pytest.raises(
            pl.Busy, match=rf"stream {stream.id} waits for itself.*notify {signal.id}"
        ) as refused:
            stream.sync(timeout=30)
        assert refused.value.fault is Fault.DEADLOCK
    assert time.monotonic() - start < 10
    signal.record()
    s.sync(timeout=20)
    t.sync(timeout=20)


def test_sync_with_bad_timeout_raises(node: Node) -> None:
    d0, _ = node()
    s = d0.create_stream()
    with pytest.raises(pl.InvalidValue, match=r"Stream\.sync: timeout is -1"):
        s.sync(-1)
    with pytest.raises(TypeError, match=r"Stream\.sync: timeout must be seconds"):
        s.sync("1")  # type: ignore[arg-type]


def test_stream_is_done_keeps_failure_for_sync(node: Node) -> None:
    d0, _ = node()
    s = d0.create_stream()
    fails(s)
    deadline = time.monotonic() + 20
    while not s.is_done and time.monotonic() < deadline:
        pass
    assert s.is_done
    with pytest.raises(pl.BadAddress):
        s.sync()


def test_abort_cancels_queue_and_waits_for_it(node: Node) -> None:
    d0, _ = node()
    s, t, a = d0.create_stream(), d0.create_stream(), filled(d0, 8, 1)
    parked(s)
    a.fill(2, stream=s)
    event = s.record()
    t.wait(event)
    s.abort()
    s.abort()
    with pytest.raises(pl.Cancelled, match=r"operation 1 \(wait for a notify\).*the stream was aborted"):
        s.sync(timeout=20)
    for ended in (event.sync, t.sync):
        with pytest.raises(pl.Cancelled):
            ended(timeout=20)
    assert untouched(a, 1)
    a.fill(3, stream=s)
    s.sync()
    assert untouched(a, 3)
    s.close()
    s.abort()


def test_stream_close_twice_does_nothing_more(node: Node) -> None:
    d0, _ = node()
    s, a = d0.create_stream(), filled(d0, 8, 1)
    a.fill(2, stream=s)
    s.close()
    assert untouched(a, 2)
    s.close()
    assert s.is_closed
    assert s.is_done
    s.sync()


def test_stream_close_raises_failure_and_closes(node: Node) -> None:
    d0, _ = node()
    s = d0.create_stream()
    fails(s)
    with pytest.raises(pl.BadAddress, match="operation 1"):
        s.close()
    assert s.is_closed
    s.close()


def test_stream_close_cancels_wait_nothing_satisfies(node: Node) -> None:
    d0, _ = node()
    s, a = d0.create_stream(), filled(d0, 8, 1)
    a.fill(2, stream=s)
    parked(s)
    a.fill(3, stream=s)
    with pytest.raises(pl.Cancelled, match=r"operation 2 \(wait for a notify\)"):
        s.close()
    assert s.is_closed
    assert untouched(a, 2)


def test_stream_close_by_own_callback_does_not_wait(node: Node) -> None:
    d0, _ = node()
    s, a = d0.create_stream(), filled(d0, 8, 1)
    closed = []

    def closes() -> None:
        a.fill(2, stream=s)
        s.close()
        closed.append(s.is_closed)

    s.launch_callback(closes)
    s.sync(timeout=20)
    s.close()
    assert closed == [True]
    assert untouched(a, 2)


def test_on_error_bad_mode_raises_and_keeps_mode(node: Node) -> None:
    d0, _ = node()
    s = d0.create_stream()
    with pytest.raises(pl.InvalidValue, match="valid are 'stop' and 'continue'"):
        s.on_error = "wait"
    assert s.on_error == "stop"
    s.on_error = "continue"
    assert s.on_error == "continue"


def test_stream_enter_closed_raises_closed(node: Node) -> None:
    d0, _ = node()
    s = d0.create_stream()
    s.close()
    with pytest.raises(pl.Closed), s:
        pass


def test_stream_left_by_exception_is_aborted_and_closed(node: Node) -> None:
    d0, _ = node()
    a = filled(d0, 8, 1)
    with pytest.raises(ZeroDivisionError), d0.create_stream() as s:
        parked(s)
        a.fill(2, stream=s)
        raise ZeroDivisionError
    assert s.is_closed
    assert untouched(a, 1)


def test_abort_with_close_takes_no_more_operations(node: Node) -> None:
    d0, _ = node()
    a, s = filled(d0, 8, 1), d0.create_stream()
    parked(s)
    a.fill(2, stream=s)
    s.abort(close=True)
    assert s.is_closed
    with pytest.raises(pl.Closed, match="takes no more"):
        a.fill(3, stream=s)
    with pytest.raises(pl.Cancelled):
        s.sync(timeout=20)
    s.abort(close=True)
    assert untouched(a, 1)
