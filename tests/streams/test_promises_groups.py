"""The promises of docs/errors.md on groups of streams."""

from __future__ import annotations

import gc
import threading

import pytest

import peerlane as pl
from helpers.promises import Node, fails, filled, parked, untouched

pytestmark = pytest.mark.timeout(60)


def test_group_with_bad_arguments_raises(node: Node) -> None:
    d0, _ = node()
    with pytest.raises(pl.InvalidValue, match="valid are"):
        pl.StreamGroup(d0, on_error="no")
    with pytest.raises(TypeError, match="must be a Device, not str"):
        pl.StreamGroup("virtual:0")  # type: ignore[arg-type]
    pl.leave_node()
    with pytest.raises(pl.Closed, match="left node"):
        pl.StreamGroup(d0)


def test_group_create_stream_bad_or_closed_raises(node: Node) -> None:
    d0, _ = node()
    group = pl.StreamGroup(d0)
    with pytest.raises(pl.InvalidValue, match="valid are"):
        group.create_stream(on_error="no")
    closed = pl.StreamGroup(d0)
    closed.close()
    with pytest.raises(
        pl.Closed, match=r"StreamGroup\.create_stream: <StreamGroup on virtual:0: closed> was closed"
    ):
        closed.create_stream()
    pl.leave_node()
    with pytest.raises(pl.Closed, match="left node"):
        group.create_stream()


def test_stream_group_enter_closed_raises_closed(node: Node) -> None:
    d0, _ = node()
    with pl.StreamGroup(d0) as group:
        assert not group.is_closed
    assert group.is_closed
    with pytest.raises(pl.Closed), group:
        pass
    other = pl.StreamGroup(d0)
    pl.leave_node()
    assert other.is_closed
    with pytest.raises(pl.Closed, match="left node"), other:
        pass
    other.close()


def test_group_left_by_exception_aborts_its_streams(node: Node) -> None:
    d0, _ = node()
    a = filled(d0, 8, 1)
    with pytest.raises(ZeroDivisionError), pl.StreamGroup(d0) as group:
        stream = group.create_stream()
        parked(stream)
        a.fill(2, stream=group.default)
        raise ZeroDivisionError
    assert group.is_closed and group.default.is_closed and stream.is_closed
    assert untouched(a, 1)


def test_group_close_waits_for_and_closes_its_streams(node: Node) -> None:
    d0, _ = node()
    group, other = pl.StreamGroup(d0), d0.create_stream()
    assert repr(group) == "<StreamGroup on virtual:0: 1 stream, 0 queued>"
    first, second = group.create_stream(), group.create_stream()
    a, b = filled(d0, 2 << 20, 1), filled(d0, 2 << 20, 2)
    gate = parked(second)
    b.copy_to(a, stream=second)
    assert repr(group) == "<StreamGroup on virtual:0: 3 streams, 2 queued>"
    a.fill(7, stream=group.default)  # behind all queued work of the group
    b.copy_from(a, stream=first)  # behind the default stream's fill
    gate.promise()
    closing = threading.Thread(target=group.close)
    closing.start()
    gate.record()
    closing.join(20)
    assert not closing.is_alive()
    assert untouched(a, 7) and untouched(b, 7)
    for stream in (group.default, first, second):
        assert stream.is_closed
        with pytest.raises(pl.Closed, match="takes no more"):
            a.fill(1, stream=stream)
    group.close()
    group.close(wait=False)
    assert repr(group) == "<StreamGroup on virtual:0: closed>"
    a.fill(9, stream=other)
    other.sync(timeout=20)
    assert untouched(a, 9)


def test_group_is_idle_only_when_all_its_streams_are(node: Node) -> None:
    d0, _ = node()
    with pl.StreamGroup(d0) as group:
        stream, beside, a = group.create_stream(), d0.create_stream(), filled(d0, 8, 1)
        assert group.is_idle
        for held in (stream, group.default):
            gate = parked(held)
            a.fill(2, stream=held)
            assert not group.is_idle
            gate.record()
            held.sync(timeout=20)
            assert group.is_idle
        gate = parked(beside)
        assert group.is_idle  # this stream is not in the group
        gate.record()
        beside.sync(timeout=20)
        assert untouched(a, 2)


def test_group_close_raises_failures_of_its_streams(node: Node) -> None:
    d0, _ = node()
    group = pl.StreamGroup(d0)
    first, second = group.create_stream(), group.create_stream()
    fails(first)
    fails(second)
    with pytest.raises(pl.BadAddress, match=f"of stream {first.id}:"):
        group.close()
    assert group.is_closed and all(each.is_closed for each in (group.default, first, second))
    with pytest.raises(pl.BadAddress, match=f"of stream {second.id}:"):
        group.close()
    group.close()


def test_group_close_without_wait_raises_failure_at_next_close(node: Node) -> None:
    d0, _ = node()
    group = pl.StreamGroup(d0)
    stream, a = group.create_stream(), filled(d0, 8, 1)
    gate = parked(stream)
    gate.promise()
    a.fill(2, stream=stream)
    fails(stream)
    group.close(wait=False)
    assert group.is_closed and stream.is_closed
    gate.record()
    with pytest.raises(pl.BadAddress):
        group.close()
    assert untouched(a, 2)


def test_group_close_in_own_callback_raises_deadlock_and_closes(node: Node) -> None:
    d0, _ = node()
    group, a, raised = pl.StreamGroup(d0), filled(d0, 8, 1), list[BaseException]()
    stream, is_queued = group.create_stream(), threading.Event()

    def close() -> None:
        assert is_queued.wait(20)  # else it may close the group before all is queued
        try:
            group.close()
        except pl.Error as error:
            raised.append(error)

    stream.launch_callback(close)
    a.fill(2, stream=group.default)  # the group's barrier: behind the callback
    is_queued.set()
    group.default.sync(timeout=20)
    stream.sync(timeout=20)
    assert [type(error) for error in raised] == [pl.Deadlock]  # it would have waited for its own callback
    assert group.default.is_closed and stream.is_closed
    assert untouched(a, 2)


def test_group_stream_that_is_dropped_leaves_the_group(node: Node) -> None:
    d0, _ = node()
    group, a = pl.StreamGroup(d0), filled(d0, 8, 1)
    a.fill(3, stream=group.create_stream())
    gc.collect()
    assert repr(group).startswith("<StreamGroup on virtual:0: 1 stream, ")
    group.default.wait(group.default)
    group.close()
    assert untouched(a, 3)


def test_group_create_stream_racing_close_leaves_none_open(node: Node) -> None:
    d0, _ = node()
    for _ in range(20):
        group, start, created = pl.StreamGroup(d0), threading.Barrier(2), list[pl.Stream]()

        def create(
            group: pl.StreamGroup = group,
            start: threading.Barrier = start,
            created: list[pl.Stream] = created,
        ) -> None:
            start.wait(20)
            try:
                while True:
                    created.append(group.create_stream())
            except pl.Closed:
                pass

        thread = threading.Thread(target=create)
        thread.start()
        start.wait(20)
        group.close()
        thread.join(20)
        assert not thread.is_alive()
        assert all(stream.is_closed for stream in created)
