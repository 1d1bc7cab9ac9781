"""An observer sees each operation, submitted and started, with its spans, and notices of the rest."""

from __future__ import annotations

import gc
import inspect
import sys
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

import peerlane as pl
from helpers.own_logs import own_logs
from helpers.promises import Node, fails, parked
from peerlane.diagnostics.log.observers import Operation, Recorder, Span

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    buffers = Recorder()
    assert pl.set_observer(buffers) is None
    yield buffers
    assert pl.set_observer(None) is buffers


def _span(recorder: Recorder, buffer: pl.Buffer, written: bool) -> Span:
    """Return the span of a whole buffer, which a fill of it shows."""
    buffer.fill(0)
    (span,) = recorder.operations("submitted", "fill")[-1].spans
    return Span(span.block, span.offset, span.size, written)


def _both(recorder: Recorder, kind: str) -> tuple[Operation, Operation]:
    """Return the last operation of a kind, as submitted and as started."""
    submitted, started = (recorder.operations(moment, kind)[-1] for moment in ("submitted", "started"))
    assert (submitted.stream, submitted.sequence) == (started.stream, started.sequence)
    assert submitted.order < started.order
    assert started.site == ""
    return submitted, started


def test_observer_sees_each_kind_of_operation_submitted_and_started(node: Node, recorder: Recorder) -> None:
    d0, d1 = node()
    a, b = d0.allocate(4096), d1.allocate(4096)
    (read, wrote), (b_wrote, _) = (
        [_span(recorder, a, w) for w in (False, True)],
        (_span(recorder, b, True), 0),
    )
    b_read = Span(b_wrote.block, b_wrote.offset, b_wrote.size, False)
    table = pl.CopyDescriptor.build(d0.allocate(64), [(b, a)])
    listed = _span(recorder, d0.allocate(64), False)
    s, signal = d0.create_stream(), d0.create_notify()
    owned = d0.allocate(64, stream=s)
    line = inspect.currentframe().f_lineno  # type: ignore[union-attr]
    a.copy_from(b, stream=s)
    pl.copy_2d(a, 64, b, 64, 32, 8, stream=s)
    a.fill(1, stream=s)
    pl.reduce(a, b, dtype="int8", stream=s)
    pl.copy_batch([a[:8], b[8:16]], [b[:8], a[8:16]], stream=s)
    table.launch(s)
    event = s.record()
    s.wait(event)
    s.notify(signal)
    s.wait(signal)
    s.launch_callback(int)
    owned.close()
    s.sync(timeout=20)
    kinds = [
        "copy",
        "copy_2d",
        "fill",
        "reduce",
        "batch",
        "descriptor",
        "record",
        "wait",
        "notify",
        "wait_notify",
        "callback",
    ]
    for sequence, kind in enumerate(kinds, 1):
        submitted, started = _both(recorder, kind)
        assert (submitted.stream, submitted.sequence) == (s.id, sequence)
        assert submitted.site == f"test_observers.py:{line + sequence}"
        if kind != "descriptor":
            assert submitted.spans == started.spans
    assert _both(recorder, "copy")[0].spans == (wrote, b_read)
    span_2d = 7 * 64 + 32
    assert _both(recorder, "copy_2d")[0].spans == (
        Span(wrote.block, wrote.offset, span_2d, True),
        Span(b_read.block, b_read.offset, span_2d, False),
    )
    assert _both(recorder, "fill")[0].spans == (wrote,)
    assert _both(recorder, "reduce")[0].spans == (wrote, read, b_read)
    assert _both(recorder, "batch")[0].spans == (
        Span(wrote.block, wrote.offset, 8, True),
        Span(b_read.block, b_read.offset, 8, False),
        Span(b_wrote.block, b_wrote.offset + 8, 8, True),
        Span(read.block, read.offset + 8, 8, False),
    )
    submitted, started = _both(recorder, "descriptor")
    (seen_table,) = submitted.spans
    assert (seen_table.block, seen_table.size, seen_table.written) == (listed.block, 64, False)
    assert started.spans == (seen_table, b_wrote, read)
    for kind in ("record", "wait"):
        assert {(each.signal, each.record) for each in _both(recorder, kind)} == {(s.id, 7)}
    for kind in ("notify", "wait_notify"):
        assert [(each.signal, each.record) for each in _both(recorder, kind)] == [
            (signal.id, 0),
            (signal.id, 1),
        ]


def test_observer_sees_free_in_stream_order_as_operation(node: Node, recorder: Recorder) -> None:
    d0, _ = node()
    s = d0.create_stream()
    owned = d0.allocate(4096, stream=s)
    span = _span(recorder, owned, True)
    owned.fill(1, stream=s)
    owned.close()
    s.sync(timeout=20)
    submitted, started = _both(recorder, "free")
    assert submitted.spans == started.spans == (span,)
    assert submitted.sequence == 2


def test_observer_sees_call_without_stream_as_stream_0(node: Node, recorder: Recorder) -> None:
    d0, d1 = node()
    a, b = d0.allocate(4096), d1.allocate(4096)
    table = pl.CopyDescriptor.build(d0.allocate(64), [(b, a)])
    calls = {
        "copy": [lambda: pl.copy(a, b), lambda: pl.raw.copy(a.address, b.address, 4096)],
        "copy_2d": [
            lambda: pl.copy_2d(a, 64, b, 64, 32, 8),
            lambda: pl.raw.copy_2d(a.address, 64, b.address, 64, 32, 8),
        ],
        "fill": [lambda: a.fill(1), lambda: pl.raw.fill(a.address, 1, count=4096)],
        "reduce": [
            lambda: pl.reduce(a, b, dtype="int8"),
            lambda: pl.raw.reduce(a.address, b.address, 512, dtype="int64"),
        ],
        "batch": [lambda: pl.copy_batch([a], [b])],
        "descriptor": [table.launch, lambda: pl.raw.launch_descriptor(table.table.address, 64)],
    }
    for kind, same in calls.items():
        for call in same:
            before = len(recorder.operations("submitted", kind))
            call()
            assert len(recorder.operations("submitted", kind)) == before + 1
            submitted, started = _both(recorder, kind)
            assert (submitted.stream, submitted.spans[0].written) == (0, kind != "descriptor")
            assert submitted.site.startswith("test_observers.py:")
            assert started.spans == submitted.spans


def test_observer_sees_spans_by_block_and_offset(node: Node, recorder: Recorder) -> None:
    d0, _ = node()
    large, small, neighbour = d0.allocate(4 << 20), d0.allocate(1000), d0.allocate(1000)
    whole = _span(recorder, large, True)
    assert (whole.offset, whole.size) == (0, 4 << 20)
    first, second = _span(recorder, small, True), _span(recorder, neighbour, True)
    assert first.block == second.block != whole.block
    assert abs(first.offset - second.offset) >= 1000
    s = d0.create_stream()
    large[100:300][50:60].fill(1, stream=s)
    s.sync(timeout=20)
    assert _both(recorder, "fill")[0].spans == (Span(whole.block, 150, 10, True),)
    host = np.zeros(64, np.uint8)
    pl.copy(host, large[:64], stream=s)
    s.sync(timeout=20)
    assert _both(recorder, "copy")[0].spans == (
        Span(0, host.ctypes.data, 64, True),
        Span(whole.block, 0, 64, False),
    )
    with memoryview(large[8:16]), memoryview(large[8:16]):
        pass
    views = recorder.notices("view", "Buffer")[-2:]
    assert [view.spans for view in views] == [(Span(whole.block, 8, 8, True),)] * 2
    assert len(recorder.notices("unview")) == len(recorder.notices("view"))


def test_observer_sees_rewritten_copy_list_as_it_starts(node: Node, recorder: Recorder) -> None:
    d0, d1 = node()
    a, b, c = d0.allocate(64), d1.allocate(64), d1.allocate(64)
    b.fill(2)
    of = {name: _span(recorder, each, False) for name, each in (("a", a), ("c", c))}
    c.fill(3)
    table = pl.CopyDescriptor.build(d0.allocate(64), [(a, b)])
    other = d1.allocate(64)
    other.copy_from(pl.CopyDescriptor.encode([(a, c)]))
    s = d0.create_stream()
    gate = parked(s)
    table.table.copy_from(other, stream=s)
    table.launch(s)
    assert recorder.operations("started", "descriptor") == []
    gate.record()
    s.sync(timeout=20)
    assert bytes(a.view()) == bytes([3] * 64)
    submitted, started = _both(recorder, "descriptor")
    assert len(submitted.spans) == 1
    assert started.spans[1:] == (Span(of["a"].block, of["a"].offset, 64, True), of["c"])


def test_observer_notices_create_sync_query_and_destroy(node: Node, recorder: Recorder) -> None:
    d0, _ = node()
    s, signal, empty = d0.create_stream(), d0.create_notify(), d0.create_event()
    event = s.record()
    created = [(each.what, each.id) for each in recorder.notices("create")]
    assert created == [
        ("Stream", s.id),
        ("Notify", signal.id),
        ("Event", empty.id),
        ("Event", event.id),
    ]
    event.sync(timeout=20)
    s.sync(timeout=20)
    assert event.is_done
    assert s.is_done
    assert [each.what for each in recorder.notices("sync")] == ["Event", "Stream"]
    assert [(each.stream, each.sequence) for each in recorder.notices("sync")] == [(s.id, 1), (s.id, 1)]
    assert [each.what for each in recorder.notices("query")] == ["Event", "Stream"]
    gate = parked(s)
    assert not s.is_done
    with pytest.raises(pl.WaitTimeout):
        s.sync(timeout=0.01)
    assert len(recorder.notices("query")) == len(recorder.notices("sync")) == 2
    gate.record()
    s.sync(timeout=20)
    numbers = {
        ("Stream", s.id),
        ("Notify", signal.id),
        ("Notify", gate.id),
        ("Event", event.id),
        ("Event", empty.id),
    }
    del s, signal, event, empty, gate
    gc.collect()
    # Garbage of other tests may be collected, too.
    assert {(each.what, each.id) for each in recorder.notices("destroy")} >= numbers


def test_observer_sees_notify_recorded_by_host(node: Node, recorder: Recorder) -> None:
    d0, _ = node()
    s, signal = d0.create_stream(), d0.create_notify("strict")
    s.wait(signal)
    line = inspect.currentframe().f_lineno  # type: ignore[union-attr]
    signal.record()
    s.sync(timeout=20)
    submitted, started = (recorder.operations(moment, "notify") for moment in ("submitted", "started"))
    assert [(each.stream, each.signal, each.record) for each in submitted] == [(0, signal.id, 0)]
    assert [(each.stream, each.signal, each.record) for each in started] == [(0, signal.id, 1)]
    assert submitted[0].site == f"test_observers.py:{line + 1}"
    (waited,) = recorder.operations("started", "wait_notify")
    assert submitted[0].order < started[0].order < waited.order
    assert (waited.signal, waited.record) == (signal.id, 1)
    signal.record()
    with pytest.raises(pl.Busy):
        signal.record()
    signal.reset()
    assert [each.record for each in recorder.operations("started", "notify")] == [1, 2]
    assert [(each.what, each.id, each.sequence) for each in recorder.notices("reset")] == [
        ("Notify", signal.id, 2)
    ]


def test_observer_notices_abort_and_close_once(node: Node, recorder: Recorder) -> None:
    d0, _ = node()
    s, t, u, v = (d0.create_stream() for _ in range(4))
    event, signal = s.record(), d0.create_notify()
    gate = parked(s)
    s.abort()
    (aborted,) = recorder.notices("abort")
    assert (aborted.what, aborted.id, aborted.stream, aborted.sequence) == ("Stream", s.id, s.id, 2)
    with pytest.raises(pl.Cancelled):
        s.sync(timeout=20)
    a = d0.allocate(8)
    a.fill(1, stream=t)
    for each in (t, event, signal, gate):
        each.close()
        each.close()
    synced = recorder.notices("sync", "Stream")
    assert {(each.stream, each.sequence) for each in synced} == {(s.id, 2), (t.id, 1)}
    u.close(wait=False)
    with pytest.raises(ZeroDivisionError), v:
        raise ZeroDivisionError
    assert [each.id for each in recorder.notices("abort")] == [s.id, v.id]
    ended = [("Stream", t.id), ("Event", event.id), ("Notify", signal.id), ("Notify", gate.id)]
    ended += [("Stream", u.id), ("Stream", v.id)]
    mine = {*ended, ("Stream", s.id)}
    assert [key for each in recorder.notices("destroy") if (key := (each.what, each.id)) in mine] == ended
    (seen,) = (each for each in recorder.notices("destroy", "Stream") if each.id == t.id)
    assert min(each.order for each in synced if each.id == t.id) < seen.order
    del s, t, u, v, event, signal, gate, each
    gc.collect()
    destroyed = [key for each in recorder.notices("destroy") if (key := (each.what, each.id)) in mine]
    assert sorted(destroyed) == sorted(mine)


def test_observer_notices_buffer_create_and_destroy_once(node: Node, recorder: Recorder) -> None:
    d0, _ = node()
    a, b = d0.allocate(100), d0.allocate(3 << 20)
    buffers = [(each.id, each.spans) for each in recorder.notices("create", "Buffer")]
    assert [(number, span.size) for number, (span,) in buffers] == [(a.id, 100), (b.id, 3 << 20)]
    a.fill(1)
    (filled,) = recorder.operations("started", "fill")
    assert (filled.spans[0].block, filled.spans[0].offset) == (
        buffers[0][1][0].block,
        buffers[0][1][0].offset,
    )
    a[:10].close()  # closing a part does not end the buffer
    a.close()
    a.close()
    del b
    assert [(each.id, each.spans) for each in recorder.notices("destroy", "Buffer")] == buffers
    pl.leave_node()
    pl.leave_node()
    assert len(recorder.notices("destroy", "Node")) == 1


def test_observer_notices_sync_that_raises(node: Node, recorder: Recorder) -> None:
    d0, _ = node()
    s = d0.create_stream()
    fails(s)
    with pytest.raises(pl.BadAddress):
        s.sync(timeout=20)
    assert [each.id for each in recorder.notices("sync", "Stream")] == [s.id]


def test_observer_order_follows_dependences(node: Node, recorder: Recorder) -> None:
    d0, d1 = node()
    s, t = d0.create_stream(), d1.create_stream()
    a, b = d0.allocate(3 << 20), d1.allocate(64)
    for _ in range(10):
        a.fill(1, stream=s)
        t.wait(s.record())
        b.fill(2, stream=t)
    t.sync(timeout=20)
    started = recorder.operations("started")
    orders = [each.order for _, each in recorder.log]
    assert len(set(orders)) == len(orders)
    for stream in (s, t):
        sequences = [each.sequence for each in started if each.stream == stream.id]
        assert sequences == list(range(1, 21))
    begun = {(each.stream, each.sequence): each.order for each in started}
    for round in range(10):
        fill, record = begun[s.id, 2 * round + 1], begun[s.id, 2 * round + 2]
        assert fill < record < begun[t.id, 2 * round + 2]
    (end,) = recorder.notices("sync", "Stream")
    assert end.order > max(each.order for each in started if each.stream == t.id)


def test_observer_set_late_sees_start_of_queued_operations(node: Node) -> None:
    d0, _ = node()
    s, a = d0.create_stream(), d0.allocate(64)
    gate = parked(s)
    a.fill(1, stream=s)
    recorder = Recorder()
    pl.set_observer(recorder)
    try:
        gate.record()
        s.sync(timeout=20)
    finally:
        pl.set_observer(None)
    assert [each.kind for each in recorder.operations("submitted")] == ["notify"]
    assert [each.kind for each in recorder.operations("started")] == ["notify", "wait_notify", "fill"]


def test_observer_replaced_sees_nothing_more(node: Node) -> None:
    d0, _ = node()
    s, a = d0.create_stream(), d0.allocate(64)
    first, second = Recorder(), Recorder()
    assert pl.set_observer(first) is None
    gate = parked(s)
    a.fill(1, stream=s)
    assert pl.set_observer(second) is first
    gate.record()
    s.sync(timeout=20)
    assert pl.set_observer(None) is second
    a.fill(2)
    assert [each.kind for _, each in first.log if isinstance(each, Operation)][:1] == ["wait_notify"]
    assert [each.kind for each in first.operations("submitted")] == ["wait_notify", "fill"]
    assert [each.kind for each in second.operations("submitted")] == ["notify"]
    assert [each.kind for each in second.operations("started")][-1] == "fill"


class _RaisesOnce(Recorder):
    def submitted(self, operation: Operation) -> None:
        super().submitted(operation)
        if [when for when, _ in self.log].count("submitted") == 1:
            raise ZeroDivisionError


def test_observer_that_raised_is_called_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    d0, _ = node()
    reported: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: reported.append(what.exc_type))
    s, a, raising = d0.create_stream(), d0.allocate(64), _RaisesOnce()
    pl.set_observer(raising)
    try:
        a.fill(1, stream=s)
        a.fill(2, stream=s)
        s.sync(timeout=20)
    finally:
        pl.set_observer(None)
    assert reported == [ZeroDivisionError]
    assert len(raising.operations("submitted", "fill")) == len(raising.operations("started", "fill")) == 2
    assert bytes(a.view()) == bytes([2] * 64)


def test_operations_without_observer_keep_nothing(node: Node) -> None:
    d0, _ = node()
    s, a = d0.create_stream(), d0.allocate(64)

    def work() -> None:
        for _ in range(2000):
            a.fill(1, stream=s)
            s.record().sync(timeout=20)

    pl.set_observer(Recorder())
    work()
    assert own_logs() == 1
    pl.set_observer(None)
    work()
    assert own_logs() == 0
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert own_logs() == 0
    assert grown < 20_000


def test_observer_sees_channel_wait_after_its_notify(node: Node, recorder: Recorder) -> None:
    node()
    with pl.Group(0, 1, rendezvous=lambda value: [value]) as group, group.channel(0) as channel:
        for streamed in (False, True):
            with group.device.create_stream() as stream:
                channel.notify(1, stream=stream if streamed else None)
                channel.wait(1, timeout=20)
            recorded, waited = (_both(recorder, kind)[1] for kind in ("notify", "wait_notify"))
            assert waited.signal == recorded.signal
            assert waited.record == recorded.record
            assert recorded.order < waited.order
