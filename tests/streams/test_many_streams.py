"""Thousands of parked streams: ending one of them does not visit all the others."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator

import pytest

import peerlane as pl
from helpers.promises import Node

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]

MANY = 16_000
# A round takes 0.1 s; if each stream visited all the others, each round would take more than 5 s.
MOST_SECONDS = 2.0
ROUNDS = 3


def _on_notifies(device: pl.Device) -> list[pl.Stream]:
    streams = [device.create_stream() for _ in range(MANY)]
    for stream in streams:
        stream.wait(device.create_notify())
    return streams


def _on_one_event(device: pl.Device) -> list[pl.Stream]:
    first = device.create_stream()
    first.wait(device.create_notify())
    event = first.record()
    streams = [device.create_stream() for _ in range(MANY)]
    for stream in streams:
        stream.wait(event)
    return [*streams, first]


def _in_a_circle(device: pl.Device) -> list[pl.Stream]:
    # Closing a stream visits the k streams that it waits for in turn; so there are fewer of them here.
    signals = [device.create_notify() for _ in range(MANY // 8)]
    streams = [device.create_stream() for _ in signals]
    for i, stream in enumerate(streams):
        stream.wait(signals[i])
        stream.notify(signals[i - 1])
    return streams


def _behind_a_barrier(device: pl.Device) -> list[pl.Stream]:
    group = pl.StreamGroup(device)
    group.default.wait(device.create_notify())
    streams = [group.create_stream() for _ in range(MANY)]
    for stream in streams:
        stream.record()
    return [*streams, group.default]


PARKED = pytest.mark.parametrize("park", [_on_notifies, _on_one_event, _in_a_circle, _behind_a_barrier])
Park = Callable[[pl.Device], list[pl.Stream]]


def _is_quick(rounds: Iterator[None]) -> bool:
    """Tell whether a round takes little processor time; other threads of the process may slow one or two down."""
    start = time.process_time()
    for _ in rounds:
        if time.process_time() - start < MOST_SECONDS:
            return True
        start = time.process_time()
    return False


@PARKED
def test_closing_thousands_of_parked_streams_is_fast(node: Node, park: Park) -> None:
    d0, _ = node()

    def rounds() -> Iterator[None]:
        for _ in range(ROUNDS):
            streams = park(d0)
            for stream in streams:
                stream.close(wait=False)
            for stream in streams:
                # A stream behind a barrier runs what was not cancelled when the barrier opens.
                suppressed = contextlib.suppress(pl.Cancelled)
                with suppressed if park is _behind_a_barrier else pytest.raises(pl.Cancelled):
                    stream.sync(timeout=60)
            assert all(stream.is_closed for stream in streams)
            yield

    assert _is_quick(rounds())


@PARKED
@pytest.mark.filterwarnings("ignore:stream .* was dropped:ResourceWarning")
def test_dropping_thousands_of_parked_streams_is_fast(node: Node, park: Park) -> None:
    d0, _ = node()

    def rounds() -> Iterator[None]:
        for _ in range(ROUNDS):
            streams = park(d0)
            last = streams.pop()
            streams.clear()
            gc.collect()
            last.close(wait=False)
            with pytest.raises(pl.Cancelled):
                last.sync(timeout=60)
            yield

    assert _is_quick(rounds())


@PARKED
def test_stream_beside_thousands_of_parked_ones_runs_fast(node: Node, park: Park) -> None:
    d0, _ = node()
    streams = park(d0)
    busy, target = d0.create_stream(), d0.allocate(64)

    def rounds() -> Iterator[None]:
        for _ in range(ROUNDS):
            for i in range(2000):
                target.fill(i % 251, stream=busy)
                if i % 10 == 0:
                    busy.sync(timeout=60)
            busy.sync(timeout=60)
            yield

    is_quick = _is_quick(rounds())
    for stream in streams:
        stream.abort()
        stream.close(wait=False)
    assert is_quick
    assert bytes(target.view()) == bytes([1999 % 251]) * 64


def test_sync_in_circle_of_thousands_raises_deadlock_naming_some(node: Node) -> None:
    d0, _ = node()
    streams = _in_a_circle(d0)
    with pytest.raises(
        pl.Busy, match=rf"stream {streams[5].id} waits for itself.*and {MANY // 8 - 16:,} more"
    ) as refused:
        streams[5].sync(timeout=60)
    assert refused.value.fault is pl.Fault.DEADLOCK
    for stream in streams:
        stream.close(wait=False)
