"""Faults on streams, with deadlines: circles, drops with work queued, failures, two threads at once."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import sys
import threading
import time
import weakref
from collections.abc import Callable

import numpy as np
import pytest

import peerlane as pl
from helpers.promised import overdue
from helpers.promises import WILD, Node, filled, parked, untouched
from peerlane.errors import Fault

pytestmark = pytest.mark.timeout(60)

NAMED_WITHIN = overdue(0.25)
LARGE = 3 << 20


def _deadlock(wait: Callable[[], None]) -> tuple[pl.Busy, float]:
    start = time.monotonic()
    with pytest.raises(pl.Busy) as refused:
        wait()
    assert refused.value.fault is Fault.DEADLOCK
    return refused.value, time.monotonic() - start


def test_sync_of_stream_waiting_for_itself_raises_deadlock_soon(node: Node) -> None:
    d0, _ = node()
    s, signal = d0.create_stream(), d0.create_notify()
    s.wait(signal)
    s.notify(signal)
    error, seconds = _deadlock(s.sync)
    assert f"stream {s.id} waits for itself" in str(error)
    assert seconds < NAMED_WITHIN
    s.wait(s.record())  # waits for earlier operations: not a circle
    signal.record()
    s.sync(timeout=20)


def test_sync_in_circle_of_three_streams_names_all(node: Node) -> None:
    d0, d1 = node()
    s, t, u = d0.create_stream(), d1.create_stream(), d0.create_stream()
    signal = d1.create_notify()
    s.wait(signal)
    t.wait(s.record())
    u.wait(t)
    last = u.record()
    u.notify(signal)
    for wait in (s.sync, t.sync, u.sync, last.sync):
        error, seconds = _deadlock(wait)
        assert all(f"stream {each.id} at operation 1" in str(error) for each in (s, t, u)), error
        assert seconds < NAMED_WITHIN
    u.abort()
    with pytest.raises(pl.Cancelled):
        u.sync(timeout=20)
    signal.record()
    t.sync(timeout=20)


def test_waits_submitted_before_their_notifies_end(node: Node) -> None:
    d0, d1 = node()
    s, t, a = d0.create_stream(), d1.create_stream(), filled(d0, 8, 1)
    there, back = d0.create_notify(), d1.create_notify()
    for value in range(20):
        s.wait(there)
        a.fill(value, stream=s)
        s.notify(back)
    for _ in range(20):
        t.notify(there)
        t.wait(back)
    t.sync(timeout=20)
    s.sync(timeout=20)
    assert untouched(a, 19)


@pytest.mark.parametrize("nbytes", [8, LARGE])
def test_dropped_stream_runs_its_queue(node: Node, nbytes: int) -> None:
    d0, _ = node()
    s, a = d0.create_stream(), filled(d0, nbytes, 1)
    for value in range(2, 12):
        a.fill(value, stream=s)
    event = s.record()
    del s
    gc.collect()
    event.sync(timeout=20)
    assert untouched(a, 11)


def test_dropped_stream_with_endless_wait_is_cancelled(node: Node) -> None:
    d0, _ = node()
    s, t, a = d0.create_stream(), d0.create_stream(), filled(d0, 8, 1)
    parked(s)
    a.fill(2, stream=s)
    event = s.record()
    t.wait(event)
    with pytest.warns(ResourceWarning, match=r"operation 1 \(wait for a notify\).*cancelled"):
        del s
        gc.collect()
        with pytest.raises(pl.Cancelled):
            event.sync(timeout=20)
        with pytest.raises(pl.Cancelled):
            t.sync(timeout=20)
    assert untouched(a, 1)


def test_dropped_stream_with_wait_another_ends_runs(node: Node) -> None:
    d0, _ = node()
    s, t, a = d0.create_stream(), d0.create_stream(), filled(d0, 8, 1)
    gate, signal = threading.Event(), d0.create_notify()
    t.launch_callback(gate.wait, 20)
    t.notify(signal)
    s.wait(signal)
    a.fill(2, stream=s)
    event = s.record()
    del s
    gc.collect()
    gate.set()
    event.sync(timeout=20)
    assert untouched(a, 2)


def test_dropped_stream_in_own_callback_runs_its_queue(node: Node) -> None:
    d0, _ = node()
    holder, a = [d0.create_stream()], filled(d0, 8, 1)
    freed = weakref.ref(holder[0])
    entered = threading.Event()

    def drop() -> None:
        entered.wait(20)
        holder.clear()
        gc.collect()

    s = holder[0]
    s.launch_callback(drop)
    a.fill(2, stream=s)
    event = s.record()
    del s
    entered.set()
    event.sync(timeout=20)
    assert freed() is None
    assert untouched(a, 2)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, ValueError])
def test_callback_after_one_that_raised_is_called(node: Node, error: type[BaseException]) -> None:
    d0, _ = node()
    s, t, called = d0.create_stream(), d0.create_stream(), []

    def raises() -> None:
        raise error("by hand")

    s.launch_callback(raises)
    with pytest.raises(pl.DeviceFault, match=f"{error.__name__}: by hand") as failed:
        s.sync(timeout=20)
    assert isinstance(failed.value.__cause__, error)
    t.launch_callback(called.append, 1)
    t.sync(timeout=20)
    assert called == [1]


@pytest.mark.parametrize("nbytes", [8, LARGE])
@pytest.mark.parametrize("mode", ["stop", "continue"])
def test_failure_within_queue_stops_or_continues_by_mode(node: Node, mode: str, nbytes: int) -> None:
    d0, d1 = node()
    s, t = d0.create_stream(on_error=mode), d1.create_stream()
    signal, called = d0.create_notify(), []
    before, hit, behind = (filled(d0, nbytes, 1) for _ in range(3))
    gate = parked(s)
    before.fill(2, stream=s)
    reached = s.record()
    pl.raw.copy(hit.address, WILD, nbytes, stream=s)
    behind.fill(2, stream=s)
    s.notify(signal)
    s.launch_callback(called.append, 1)
    owned = d0.allocate(2 << 20, stream=s)
    free = d0.free_bytes
    owned.close()
    last = s.record()
    t.wait(last)
    gate.record()
    with pytest.raises(pl.BadAddress, match=rf"operation 4 \(copy\) of stream {s.id}"):
        s.sync(timeout=20)
    reached.sync(timeout=20)
    goes_on = mode == "continue"
    assert untouched(before, 2)
    assert untouched(behind, 2 if goes_on else 1)
    assert (signal.recorded, called) == ((1, [1]) if goes_on else (0, []))
    assert d0.free_bytes == free + (2 << 20)  # memory goes back either way
    if goes_on:
        last.sync(timeout=20)
        t.sync(timeout=20)
    else:
        for cancelled in (last, t):
            with pytest.raises(pl.Cancelled, match="operation 4"):
                cancelled.sync(timeout=20)
    behind.fill(3, stream=s)
    s.sync(timeout=20)
    assert untouched(behind, 3)


@pytest.mark.parametrize("nbytes", [100, 70_000, LARGE])
def test_closed_source_of_queued_copies_keeps_bytes_and_loses_address(node: Node, nbytes: int) -> None:
    d0, d1 = node("devices=2,poison=true")
    s, out = d0.create_stream(), [filled(d1, nbytes, 0) for _ in range(4)]
    gate = parked(s)
    source = filled(d0, nbytes, 7)
    table = pl.CopyDescriptor.build(d0.allocate(64), [(out[1], out[0])])
    source.copy_to(out[0], stream=s)
    pl.copy_batch([out[2]], [source], stream=s)
    pl.copy_2d(out[3], nbytes, source, nbytes, nbytes, 1, stream=s)
    table.launch(s)
    address = source.address
    source.close()
    table.table.close()
    with pytest.raises(pl.BadAddress) as refused:
        pl.raw.copy(out[0].address, address, 8)
    assert refused.value.fault is Fault.FREED_ADDRESS
    others = [filled(d0, nbytes, 9) for _ in range(8)]
    gate.record()
    s.sync(timeout=20)
    assert all(untouched(each, 7) for each in out)
    assert all(untouched(each, 9) for each in others)


def _together(*bodies: Callable[[], None]) -> list[BaseException]:
    """Run functions at the same time; return what they raised, except Closed and Cancelled."""
    start, unexpected = threading.Barrier(len(bodies)), []

    def run(body: Callable[[], None]) -> None:
        start.wait(20)
        try:
            with contextlib.suppress(pl.Closed, pl.Cancelled):
                body()
        except Exception as error:  # noqa: BLE001 - the thread that asked fails with it
            unexpected.append(error)

    threads = [threading.Thread(target=run, args=(body,), daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    return unexpected


def _until_closed(use: Callable[[], object]) -> Callable[[], None]:
    def body() -> None:
        for _ in range(2000):
            use()

    return body


@pytest.mark.parametrize("what", ["stream", "buffer", "owned buffer", "event", "notify"])
def test_object_closed_and_used_by_threads_raises_closed_or_cancelled(node: Node, what: str) -> None:
    d0, _ = node()
    before = d0.free_bytes
    other = d0.create_stream()
    for _ in range(20):
        s, a, signal = d0.create_stream(), d0.allocate(4096), d0.create_notify()
        owned, event = d0.allocate(4096, stream=s), s.record()
        uses: dict[str, tuple[object, Callable[[], object]]] = {
            "stream": (s, lambda s=s, a=a: a.fill(1, stream=s) or (s.record() and s.is_done)),
            "buffer": (a, lambda s=s, a=a: a.fill(1, stream=s)),
            "owned buffer": (owned, lambda s=s, a=owned: a.fill(1, stream=s)),
            "event": (event, lambda s=s, e=event: (s.record(e) and e.is_done) or other.wait(e) or e.sync(20)),
            "notify": (signal, lambda s=s, n=signal: n.record() or s.wait(n) or n.reset()),
        }
        used, use = uses[what]
        bodies = [_until_closed(use), _until_closed(use), used.close, used.close]  # type: ignore[attr-defined]
        assert _together(*bodies) == []
        if what == "notify":
            s.abort()
        for stream in (s, other):
            try:
                stream.sync(timeout=20)
            except pl.Cancelled:
                assert what in ("stream", "notify")
        for buffer in (a, owned):
            buffer.close()
        s.close()
    other.close()
    assert d0.free_bytes == before


def test_host_objects_of_queued_copies_live_until_these_ran(node: Node) -> None:
    d0, _ = node()
    s, a, out = d0.create_stream(), filled(d0, 4096, 0), filled(d0, 4096, 0)
    gate = parked(s)
    array, target = np.full(4096, 3, np.uint8), np.zeros((2, 4096), np.uint8)
    content, pattern = bytes(range(256)) * 16, bytearray(b"\5" * 4096)
    pl.copy(a, array, stream=s)
    pl.copy(target[0], a, stream=s)
    pl.copy(a, content, stream=s)
    pl.copy_batch([target[1], out], [a, a], stream=s)
    pl.copy_2d(a, 64, pattern, 64, 64, 64, stream=s)
    kept = [weakref.ref(array), weakref.ref(target)]
    counts = sys.getrefcount(content), sys.getrefcount(pattern)
    seen, numbers = target[:], target.ctypes.data
    del array, target, seen
    gc.collect()
    assert numbers
    assert all(ref() is not None for ref in kept)
    gate.record()
    s.sync(timeout=20)
    assert untouched(a, 5)
    assert bytes(out.view()) == content
    gc.collect()
    assert [ref() for ref in kept] == [None, None]
    after = sys.getrefcount(content), sys.getrefcount(pattern)
    assert all(now < before for now, before in zip(after, counts, strict=True))


def test_host_objects_of_cancelled_copies_are_released(node: Node) -> None:
    d0, _ = node()
    s, a, array = d0.create_stream(), filled(d0, 64, 1), np.full(64, 3, np.uint8)
    parked(s)
    pl.copy(a, array, stream=s)
    pl.copy_batch([a], [array], stream=s)
    kept = weakref.ref(array)
    del array
    s.abort()
    with pytest.raises(pl.Cancelled):
        s.sync(timeout=20)
    gc.collect()
    assert kept() is None
    assert untouched(a, 1)


@pytest.mark.parametrize("seconds", [0.05, 0.3])
def test_timeout_of_each_wait_ends_it_in_time(node: Node, seconds: float) -> None:
    d0, _ = node()
    s, t = d0.create_stream(), d0.create_stream()
    parked(s)
    event = s.record()
    t.wait(event, timeout=seconds)
    waits = [lambda: s.sync(timeout=seconds), lambda: event.sync(timeout=seconds), lambda: t.sync(timeout=20)]
    for wait in waits:
        start = time.monotonic()
        with pytest.raises(pl.WaitTimeout):
            wait()
        took = time.monotonic() - start
        assert took < overdue(seconds)
        if wait is not waits[-1]:  # its time runs from when the stream reached it
            assert took >= seconds
    start = time.monotonic()
    for none_left in (s, event):
        with pytest.raises(pl.WaitTimeout):
            none_left.sync(timeout=0)
    assert time.monotonic() - start < overdue(0.1)
    s.abort()
    with pytest.raises(pl.Cancelled):
        s.sync()


def _waits_in_vain(event: pl.Event) -> None:
    with contextlib.suppress(pl.WaitTimeout):
        event.sync(timeout=1.2)


def test_waiting_threads_use_less_than_one_percent_of_a_core(node: Node) -> None:
    d0, _ = node()
    s, t = d0.create_stream(), d0.create_stream()
    parked(s)
    event = s.record()
    t.wait(event, timeout=30)
    best = 1.0
    for _ in range(3):
        waiter = threading.Thread(target=_waits_in_vain, args=(event,), daemon=True)
        waiter.start()
        time.sleep(0.1)  # the waiter's start is not measured
        start, used = time.monotonic(), time.process_time()
        with pytest.raises(pl.WaitTimeout):
            s.sync(timeout=1)
        best = min(best, (time.process_time() - used) / (time.monotonic() - start))
        waiter.join(20)
        if best < 0.01:
            break
    print(f"two waiting threads use {best:.2%} of a core")
    assert best < 0.01
    for stream in (s, t):
        s.abort()
        with pytest.raises(pl.Cancelled):
            stream.sync(timeout=20)


def test_streams_under_busy_main_thread_finish(node: Node) -> None:
    devices = node("devices=3,schedule=eager")
    streams = [device.create_stream() for device in devices]
    nbytes = 8 << 20
    buffers = [filled(device, nbytes, number) for number, device in enumerate(devices)]
    # The threads of streams need no GIL; on a loaded machine they may get no processor during one loop.
    assert any(_done_before_a_loop_ends(streams, buffers) for _ in range(3))
    assert all(untouched(buffer, 0) for buffer in buffers)


def _done_before_a_loop_ends(streams: list[pl.Stream], buffers: list[pl.Buffer]) -> bool:
    """Tell whether copies end while this thread keeps the GIL; the first buffer's bytes are in all at the end."""
    gate, rounds = parked(streams[0]), 5
    for _ in range(rounds):
        for number, stream in enumerate(streams):
            buffers[(number + 1) % 3].copy_from(buffers[number], stream=stream)
            streams[(number + 1) % 3].wait(stream)
    done = streams[0].record()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(10)
    try:
        begun = time.monotonic_ns()
        gate.record()
        until, steps = time.monotonic() + 1.5, itertools.count()
        while time.monotonic() < until:
            next(steps)
        ended = time.monotonic_ns()
    finally:
        sys.setswitchinterval(interval)
    done.sync(timeout=20)
    print(
        f"done {(done.time_ns - begun) / 1e6:.1f} ms after the start of a loop of {(ended - begun) / 1e6:.0f} ms"
    )
    return done.time_ns < ended


def test_event_fileno_wakes_asyncio(node: Node) -> None:
    d0, d1 = node()

    async def reached(event: pl.Event) -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(event.fileno(), done.set)
        try:
            await asyncio.wait_for(done.wait(), 20)
        finally:
            loop.remove_reader(event.fileno())

    async def main() -> list[int]:
        order: list[int] = []
        s, t = d0.create_stream(), d1.create_stream()
        a, b = filled(d0, LARGE, 1), filled(d1, LARGE, 2)
        gate = parked(s)
        b.copy_from(a, stream=s)
        first = s.record()
        t.wait(first)
        a.fill(5, stream=t)
        second = t.record()

        async def note(number: int, event: pl.Event) -> None:
            await reached(event)
            assert event.is_done
            order.append(number)

        waits = [asyncio.create_task(note(2, second)), asyncio.create_task(note(1, first))]
        await asyncio.sleep(0)
        assert order == []
        gate.record()
        await asyncio.gather(*waits)
        await reached(first)  # a second time, for an event that is over
        assert untouched(b, 1)
        assert untouched(a, 5)
        return sorted(order)

    assert asyncio.run(main()) == [1, 2]
