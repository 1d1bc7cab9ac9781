"""The promises of docs/errors.md on streams that are dropped instead of closed."""

from __future__ import annotations

import os
import time
import weakref

import pytest

import peerlane as pl
from helpers.promises import Node, fails, filled, parked
from peerlane import _core
from peerlane.backends.virtual.node import schedule

pytestmark = pytest.mark.timeout(60)


def _core_park(stream: int) -> str | None:
    """Return what a stream waits for: "" if it can run, None if nothing is queued."""
    return next((entry[3] for entry in _core.waiting() if entry[0] == stream), None)


def test_stream_dropped_with_failure_warns_with_first_line(node: Node) -> None:
    d0, _ = node()
    s = d0.create_stream()
    fails(s)
    while not s.is_done:
        pass
    number = s.id
    with pytest.warns(
        ResourceWarning, match=rf"stream {number} .*dropped.*operation 1 \(copy\).*0x1000"
    ) as refused:
        del s
    assert len(refused) == 1
    assert "\n" not in str(refused[0].message)
    assert refused[0].filename == __file__
    s = d0.create_stream()
    parked(s)
    s.is_done  # noqa: B018 - under each schedule it comes to the wait
    while _core_park(s.id) != "notify":
        s.is_done  # noqa: B018
    with pytest.warns(ResourceWarning, match=r"operation 1 \(wait for a notify\).*cancelled"):
        del s
    for ended in (pl.Stream.sync, pl.Stream.close):  # a failure that was raised is not warned about
        s = d0.create_stream()
        fails(s)
        with pytest.raises(pl.BadAddress):
            ended(s)
        del s
    with pytest.raises(ZeroDivisionError), d0.create_stream() as s:
        parked(s)
        raise ZeroDivisionError
    del s


def test_stream_dropped_before_it_failed_warns_at_later_call(node: Node) -> None:
    d0, _ = node()
    s, t, a = d0.create_stream(), d0.create_stream(), filled(d0, 8, 1)
    gate = parked(t)
    s.wait(t.record())
    fails(s)
    number = s.id
    t.notify(d0.create_notify())
    gate.promise()  # so that dropping does not cancel the wait
    del s
    gate.record()
    with pytest.warns(ResourceWarning, match=rf"stream {number} .*operation 2 \(copy\)"):
        deadline = time.monotonic() + 20
        while _core_park(number) is not None and time.monotonic() < deadline:
            t.sync(timeout=20)
            a.fill(2, stream=t)
        t.sync(timeout=20)
        a.fill(2, stream=t)
        t.sync(timeout=20)


def test_stream_dropped_keeps_memory_until_its_queue_ran(node: Node) -> None:
    d0, _ = node()
    size = 4 << 20
    s, other, target = d0.create_stream(), d0.create_stream(), d0.allocate(64)
    before = d0.free_bytes
    owned = d0.allocate(size, stream=s)
    for _ in range(20):
        owned.fill(1, stream=s)
    owned.close()
    if os.environ[schedule.VARIABLE].startswith("seeded"):
        del s
        assert d0.free_bytes == before - size
        while d0.free_bytes != before:
            target.fill(2, stream=other)
            other.sync(timeout=20)
        return
    del s
    deadline = time.monotonic() + 20
    while d0.free_bytes != before:
        assert time.monotonic() < deadline


def test_notify_dropped_is_freed_without_the_garbage_collector(node: Node) -> None:
    d0, _ = node()
    notify = d0.create_notify()
    dropped = weakref.ref(notify)
    del notify
    assert dropped() is None
