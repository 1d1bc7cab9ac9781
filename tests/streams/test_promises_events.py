"""The promises of docs/errors.md on events, notifies and observers."""

from __future__ import annotations

import re
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

import peerlane as pl
from helpers.promised import overdue
from helpers.promises import Node, fails, filled, parked, timed_out, untouched
from peerlane.errors import Fault

pytestmark = pytest.mark.timeout(60)


def test_create_event_after_leave_node_raises_closed(node: Node) -> None:
    d0, _ = node()
    pl.leave_node()
    with pytest.raises(pl.Closed, match="left node"):
        d0.create_event()


def test_create_notify_of_bad_kind_raises_invalid_value(node: Node) -> None:
    d0, _ = node()
    for bad in ("Binary", "", "counter", [], None, 1, True):
        with pytest.raises(pl.InvalidValue, match="valid are binary, fifo, strict"):
            d0.create_notify(bad)  # type: ignore[arg-type]
    for kind in pl.NotifyKind:
        named = d0.create_notify(kind.name.lower())
        assert named.kind is d0.create_notify(named.kind).kind is kind
    assert d0.create_notify().kind is pl.NotifyKind.BINARY
    pl.leave_node()
    with pytest.raises(pl.Closed, match="left node"):
        d0.create_notify()


def test_record_event_of_wrong_device_raises(node: Node) -> None:
    d0, d1 = node()
    s = d0.create_stream()
    with pytest.raises(pl.InvalidValue, match="belongs to virtual:1, the stream to virtual:0") as refused:
        s.record(d1.create_event())
    assert refused.value.fault is Fault.WRONG_DEVICE
    with pytest.raises(TypeError, match="must be an Event, not Notify"):
        s.record(d0.create_notify())  # type: ignore[arg-type]
    assert s.submitted == 0
    old = d0.create_event()
    pl.leave_node()
    with pytest.raises(pl.InvalidValue, match="of the node that was entered later"):
        pl.devices()[0].create_stream().record(old)


def test_record_on_closed_stream_or_event_raises_closed(node: Node) -> None:
    d0, _ = node()
    s, t, event = d0.create_stream(), d0.create_stream(), d0.create_event()
    gone = d0.create_event()
    gone.close()
    with pytest.raises(pl.Closed, match="record another"):
        s.record(gone)
    s.record(event)
    event.sync()
    t.close()
    for call in (t.record, lambda: t.record(event)):
        with pytest.raises(pl.Closed, match="takes no more operations"):
            call()
    assert event.is_done


def test_event_class_called_raises_type_error() -> None:
    with pytest.raises(TypeError, match=r"made by Stream\.record"):
        pl.Event()


def test_event_sync_not_recorded_raises_invalid_value(node: Node) -> None:
    d0, _ = node()
    event = d0.create_event()
    uses = [event.sync, lambda: event.is_done, lambda: event.time_ns, event.fileno]
    for use in uses:
        with pytest.raises(pl.InvalidValue, match="never recorded") as refused:
            use()
        assert refused.value.fault is Fault.NOT_RECORDED
    event.close()
    for use in uses:
        with pytest.raises(pl.Closed, match="was closed"):
            use()


def test_event_sync_timeout_raises_naming_the_wait(node: Node) -> None:
    d0, _ = node()
    s = d0.create_stream()
    gate = parked(s)
    event = s.record()
    start = time.monotonic()
    text = timed_out(lambda: event.sync(timeout=0.1))
    assert 0.1 <= time.monotonic() - start < overdue(0.1)
    assert re.search(rf"operation 2 of stream {s.id}, pending.*0.1 s: .*waits for notify {gate.id}", text), (
        text
    )
    gate.record()
    event.sync(timeout=20)
    for bad in (-1, "1"):
        with pytest.raises((pl.InvalidValue, TypeError), match=r"Event\.sync: timeout"):
            event.sync(bad)  # type: ignore[arg-type]


def test_event_sync_after_failure_raises_cancelled_with_cause(node: Node) -> None:
    d0, _ = node()
    s = d0.create_stream()
    fails(s)
    event = s.record()
    for _ in range(2):
        with pytest.raises(
            pl.Cancelled, match=r"operation 2 \(record\).*because.*operation 1 \(copy\).*touched"
        ) as failed:
            event.sync(timeout=20)
        assert isinstance(failed.value.__cause__, pl.BadAddress)
    with pytest.raises(pl.BadAddress):
        s.sync()
    with pytest.raises(pl.Cancelled):
        event.sync()
    s.record(event)
    event.sync(timeout=20)


def test_event_sync_in_deadlock_raises_naming_the_stream(node: Node) -> None:
    d0, _ = node()
    s, signal = d0.create_stream(), d0.create_notify()
    s.wait(signal)
    event = s.record()
    s.notify(signal)
    start = time.monotonic()
    with pytest.raises(pl.Busy, match=rf"stream {s.id} waits for itself") as refused:
        event.sync(timeout=30)
    assert refused.value.fault is Fault.DEADLOCK
    assert time.monotonic() - start < 10
    signal.record()
    event.sync(timeout=20)


def test_event_is_done_not_recorded_raises_invalid_value(node: Node) -> None:
    d0, _ = node()
    with pytest.raises(pl.InvalidValue):
        d0.create_event().is_done  # noqa: B018
    s = d0.create_stream()
    fails(s)
    event = s.record()
    with pytest.raises(pl.BadAddress):
        s.sync()
    assert event.is_done


def test_event_time_before_it_is_over_raises_not_ready(node: Node) -> None:
    d0, _ = node()
    s = d0.create_stream()
    gate = parked(s)
    event = s.record()
    with pytest.raises(pl.Busy, match=r"no time yet; wait with sync\(\)") as refused:
        event.time_ns  # noqa: B018
    assert refused.value.fault is Fault.NOT_READY
    before = time.monotonic_ns()
    gate.record()
    s.sync(timeout=20)
    assert before <= event.time_ns <= time.monotonic_ns()
    fails(s)
    s.record(event)
    with pytest.raises(pl.BadAddress):
        s.sync()
    with pytest.raises(pl.Cancelled):
        event.time_ns  # noqa: B018


@pytest.fixture
def no_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_event_fileno_without_descriptor_raises_out_of_resources(
    node: Node, request: pytest.FixtureRequest
) -> None:
    d0, _ = node()
    s = d0.create_stream()
    event = s.record()
    request.getfixturevalue("no_descriptors")
    with pytest.raises(pl.OutOfMemory, match="no file descriptor is left for an event") as refused:
        event.fileno()
    assert refused.value.fault is Fault.OUT_OF_RESOURCES
    event.sync(timeout=20)


def test_event_close_keeps_queued_waits(node: Node) -> None:
    d0, _ = node()
    s, t, a = d0.create_stream(), d0.create_stream(), filled(d0, 8, 1)
    gate = parked(s)
    a.fill(2, stream=s)
    event = s.record()
    t.wait(event)
    copied = filled(d0, 8, 0)
    copied.copy_from(a, stream=t)
    event.close()
    event.close()
    gate.record()
    t.sync(timeout=20)
    assert untouched(copied, 2)


def test_event_difference_not_ready_raises_busy(node: Node) -> None:
    d0, _ = node()
    s = d0.create_stream()
    first = s.record()
    first.sync(timeout=20)
    gate = parked(s)
    second = s.record()
    with pytest.raises(pl.Busy) as refused:
        second - first
    assert refused.value.fault is Fault.NOT_READY
    with pytest.raises(pl.InvalidValue):
        first - d0.create_event()
    with pytest.raises(TypeError):
        first - 5  # type: ignore[operator]
    gate.record()
    s.sync(timeout=20)
    assert second - first >= 0
    assert first - second == -(second - first)


def test_event_enter_closed_raises_closed(node: Node) -> None:
    d0, _ = node()
    with d0.create_event() as event:
        pass
    with pytest.raises(pl.Closed), event:
        pass


def test_notify_class_called_raises_type_error() -> None:
    with pytest.raises(TypeError, match=r"made by Device\.create_notify"):
        pl.Notify()


def test_notify_promise_keeps_wait_and_closed_raises(node: Node) -> None:
    d0, _ = node()
    kept, gone = d0.create_notify(), d0.create_notify()
    gone.close()
    with pytest.raises(pl.Closed, match=r"Notify\.promise"):
        gone.promise()
    kept.promise()
    s = d0.create_stream()
    s.wait(kept)
    s.close(wait=False)
    assert s.is_closed
    with pytest.raises(pl.WaitTimeout):
        s.sync(timeout=0.05)
    kept.record()
    s.close()
    t, other = d0.create_stream(), d0.create_notify()
    t.wait(other)
    with pytest.raises(pl.Cancelled):
        t.close()


def test_notify_record_doubled_on_strict_raises_busy(node: Node) -> None:
    d0, _ = node()
    signal, loose = d0.create_notify("strict"), d0.create_notify()
    for each in (signal, loose, loose):
        each.record()
    with pytest.raises(pl.Busy, match="recorded again before") as refused:
        signal.record()
    assert refused.value.fault is Fault.NOTIFY_DOUBLED
    assert signal.recorded == 1
    signal.reset()
    signal.record()
    signal.close()
    with pytest.raises(pl.Closed, match=r"Notify\.record"):
        signal.record()


def test_notify_reset_after_leave_node_raises_closed(node: Node) -> None:
    d0, _ = node()
    signal = d0.create_notify()
    pl.leave_node()
    with pytest.raises(pl.Closed, match=r"Notify\.reset"):
        signal.reset()


def test_notify_close_keeps_queued_waits(node: Node) -> None:
    d0, _ = node()
    s, t, a, signal = d0.create_stream(), d0.create_stream(), filled(d0, 8, 1), d0.create_notify()
    s.wait(signal)
    a.fill(2, stream=s)
    t.notify(signal)
    signal.close()
    signal.close()
    assert signal.is_closed
    t.sync(timeout=20)
    s.sync(timeout=20)
    assert untouched(a, 2)


def test_notify_enter_closed_raises_closed(node: Node) -> None:
    d0, _ = node()
    with d0.create_notify() as signal:
        pass
    with pytest.raises(pl.Closed), signal:
        pass


class _Raises:
    """An observer that raises from each method."""

    def submitted(self, operation: object) -> None:
        raise ZeroDivisionError("submitted")

    def started(self, operation: object) -> None:
        raise ZeroDivisionError("started")

    def noticed(self, notice: object) -> None:
        raise ZeroDivisionError("noticed")


def test_observer_without_a_method_raises_type_error() -> None:
    present = pl.set_observer(None)
    assert pl.set_observer(present) is None
    for wrong in (5, print, object):
        with pytest.raises(TypeError, match="no method submitted, started, noticed; an observer takes"):
            pl.set_observer(wrong)  # type: ignore[arg-type]

    class Half:
        started = noticed = print

    with pytest.raises(TypeError, match=r"Half has no method submitted;"):
        pl.set_observer(Half())  # type: ignore[arg-type]
    assert pl.set_observer(None) is present


def test_observer_that_raises_is_reported_and_operation_happens(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    d0, _ = node()
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: reported.append(str(what.exc_value)))
    a = filled(d0, 8, 1)
    pl.set_observer(_Raises())
    try:
        s = d0.create_stream()
        a.fill(2, stream=s)
        assert s.submitted == 1
        s.sync(timeout=20)
        event = s.record()
        event.sync(timeout=20)
        pl.copy(a[:4], bytes(4))
        assert bytes(a.view()) == bytes(4) + bytes([2] * 4)
    finally:
        pl.set_observer(None)
    assert set(reported) == {"submitted", "started", "noticed"}
