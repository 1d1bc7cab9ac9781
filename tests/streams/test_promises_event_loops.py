"""Tasks of asyncio and trio that wait for streams and events: without a thread, and cancelled without a trace."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest

import peerlane as pl
from helpers.promises import Node, fails, parked
from peerlane.errors import Fault

pytestmark = pytest.mark.timeout(60)

SECONDS = 30.0
LOOK_SECONDS = 0.3


Work = Callable[[], Coroutine[Any, Any, None]]


def event_descriptors() -> int:
    """Return how many descriptors of event loops, and of what wakes them, this process has."""
    names = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            names.append(str(each.readlink()))
    return sum("anon_inode:[event" in name for name in names)


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest) -> Callable[[Work], None]:
    """Run a program in an event loop; nothing is left of it, no thread and no descriptor."""
    options = {"debug": True} if request.param == "asyncio" else {}

    def run(work: Work) -> None:
        threads, descriptors = set(threading.enumerate()), event_descriptors()
        anyio.run(work, backend=request.param, backend_options=options)
        assert set(threading.enumerate()) <= threads  # an earlier test's may have ended
        assert event_descriptors() <= descriptors

    return run


def of(waited: Awaitable[None]) -> Work:
    async def wait() -> None:
        await waited

    return wait


def test_await_stream_returns_when_its_copies_are_over(node: Node, run: Callable[[Work], None]) -> None:
    d0, d1 = node()
    d0.peers.add(d1)
    with d0.allocate(8 << 20) as a, d1.allocate(8 << 20) as b, d0.create_stream() as s:

        async def work() -> None:
            for value in range(1, 6):
                a.fill(value, stream=s)
                b.copy_from(a, stream=s)
                await s
                assert (b.view() == value).all()
                await s  # nothing is queued

        run(work)


def test_await_event_returns_before_what_was_queued_behind_it(
    node: Node, run: Callable[[Work], None]
) -> None:
    d0, _ = node()
    with d0.allocate(8) as a, d0.create_stream() as s:
        a.fill(0)

        async def work() -> None:
            a.fill(1, stream=s)
            event = s.record()
            gate = parked(s)
            a.fill(2, stream=s)
            await event
            assert (a.view() == 1).all()
            assert not s.is_done
            gate.record()
            await s
            assert (a.view() == 2).all()

        run(work)


def test_await_lets_other_tasks_run(node: Node, run: Callable[[Work], None]) -> None:
    d0, _ = node()
    with d0.create_stream() as s:

        async def work() -> None:
            gate = parked(s)

            async def opens() -> None:
                await anyio.sleep(0)
                gate.record()

            with anyio.fail_after(SECONDS):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(of(s))
                    tasks.start_soon(opens)

        run(work)


def test_await_of_a_thousand_streams_and_events_takes_one_descriptor(
    node: Node, run: Callable[[Work], None]
) -> None:
    d0, _ = node()
    streams = [d0.create_stream() for _ in range(1000)]

    async def work() -> None:
        gate = parked(*streams)
        events = [each.record() for each in streams]
        before = event_descriptors()
        with anyio.fail_after(3 * SECONDS):  # two thousand tasks, in debug mode
            async with anyio.create_task_group() as tasks:
                for each in (*streams, *events):
                    tasks.start_soon(of(each))
                await anyio.wait_all_tasks_blocked()
                assert event_descriptors() == before + 1
                for _ in streams:
                    gate.record()
        assert all(each.is_done for each in (*streams, *events))

    run(work)
    for each in streams:
        each.close()


def test_await_stream_raises_its_first_failure_once(node: Node, run: Callable[[Work], None]) -> None:
    d0, _ = node()
    with d0.create_stream() as s:

        async def work() -> None:
            gate = parked(s)
            fails(s)
            event = s.record()
            gate.record()
            with pytest.raises(pl.BadAddress, match="source host range of 8 bytes at 0x1000"):
                await s
            with pytest.raises(pl.Cancelled):
                await event
            await s

        run(work)


def test_await_event_raises_as_sync(node: Node, run: Callable[[Work], None]) -> None:
    d0, _ = node()
    with d0.create_stream() as s:

        async def work() -> None:
            with pytest.raises(pl.InvalidValue, match="was never recorded"):
                await d0.create_event()
            event = s.record()
            event.close()
            with pytest.raises(pl.Closed):
                await event
            gate = parked(s)
            fails(s)
            event = s.record()
            gate.record()
            for _ in range(2):
                with pytest.raises(pl.Cancelled, match="source host range of 8 bytes at 0x1000"):
                    await event
            with pytest.raises(pl.BadAddress):
                await s

        run(work)


def test_await_outside_of_an_event_loop_raises_runtime_error(node: Node) -> None:
    d0, _ = node()
    with d0.create_stream() as s:
        gate = parked(s)
        with pytest.raises(
            RuntimeError, match=r"no event loop runs in this thread; .* or wait with stream\.sync\(\)"
        ):
            next(s.__await__())
        with pytest.raises(RuntimeError, match=r"or wait with event\.sync\(\)"):
            next(s.record().__await__())
        gate.record()


def test_await_without_a_descriptor_raises_out_of_resources(node: Node) -> None:
    d0, _ = node()
    with d0.create_stream() as s:

        async def work() -> None:
            gate = parked(s)
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            with open(os.devnull) as last:  # noqa: PTH123 - the lowest number that is free
                resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno(), hard))
            try:
                with pytest.raises(pl.OutOfMemory, match="an event loop in which tasks wait") as refused:
                    await s
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert refused.value.fault is Fault.OUT_OF_RESOURCES
            gate.record()
            await s

        asyncio.run(work())


def test_await_of_streams_that_wait_for_one_another_raises_deadlock(
    node: Node, run: Callable[[Work], None]
) -> None:
    d0, _ = node()
    s, t = d0.create_stream(), d0.create_stream()

    async def work() -> None:
        gate = d0.create_notify()
        s.wait(gate)
        event = s.record()
        t.wait(event)
        t.notify(gate)
        with anyio.fail_after(SECONDS), pytest.raises(pl.Deadlock):
            await t

    run(work)
    for each in (s, t):
        each.abort(close=True)


def test_await_in_vain_raises_deadlock_as_soon_while_another_task_waits_for_long(
    node: Node, run: Callable[[Work], None]
) -> None:
    d0, _ = node()
    long = d0.create_stream()
    spent: list[float] = []

    async def in_vain() -> None:
        s, t, gate = d0.create_stream(), d0.create_stream(), d0.create_notify()
        s.wait(gate)
        t.wait(s.record())
        t.notify(gate)
        start = time.monotonic()
        with pytest.raises(pl.Deadlock):
            await t
        spent.append(time.monotonic() - start)
        for each in (s, t):
            each.abort(close=True)

    async def work() -> None:
        gate = parked(long)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(of(long))
            await anyio.sleep(1)  # the looks have become rare
            while len(spent) < 3 and min(spent, default=SECONDS) >= 5 * LOOK_SECONDS:
                await in_vain()  # again, where a loaded machine stopped the process
            gate.record()

    run(work)
    long.close()
    assert min(spent) < 5 * LOOK_SECONDS


def test_await_cancelled_in_the_turn_in_which_its_stream_ends_leaves_nothing(
    node: Node, run: Callable[[Work], None]
) -> None:
    d0, _ = node()
    with d0.create_stream() as s:

        async def work() -> None:
            for _ in range(50):
                gate = parked(s)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(of(s))
                    await anyio.wait_all_tasks_blocked()
                    gate.record()
                    deadline = time.monotonic() + SECONDS
                    while not s.is_done:  # the loop's descriptor is readable now
                        assert time.monotonic() < deadline
                    await anyio.sleep(0)
                    tasks.cancel_scope.cancel()
            await s

        run(work)


def test_await_under_seeded_does_not_wait_for_a_look(node: Node, run: Callable[[Work], None]) -> None:
    d0, _ = node()
    with d0.create_stream() as s, d0.allocate(8) as a:

        async def work() -> None:
            start = time.monotonic()
            for _ in range(80):
                a.fill(1, stream=s)
                await s
            assert time.monotonic() - start < 40 * LOOK_SECONDS

        run(work)


def test_await_cancelled_leaves_the_stream_as_it_was(node: Node, run: Callable[[Work], None]) -> None:
    d0, _ = node()
    with d0.allocate(8) as a, d0.create_stream() as s:

        async def work() -> None:
            gate = parked(s)
            a.fill(7, stream=s)
            event = s.record()
            for waited in (s, event) * 10:
                with anyio.move_on_after(0.001) as scope:
                    await waited
                assert scope.cancelled_caught
            assert not s.is_done
            gate.record()
            await s
            await event
            assert (a.view() == 7).all()

        run(work)


def test_await_cancelled_when_it_is_over_already_leaves_nothing(node: Node) -> None:
    d0, _ = node()
    with d0.create_stream() as s:

        async def work() -> None:
            for _ in range(50):
                gate = parked(s)
                task = asyncio.ensure_future(s)
                await asyncio.sleep(0)
                gate.record()
                deadline = time.monotonic() + SECONDS
                while not s.is_done:  # the loop has not heard of it
                    assert time.monotonic() < deadline
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

        asyncio.run(work())


def test_await_in_a_loop_that_is_closed_meanwhile_leaves_nothing(node: Node) -> None:
    d0, _ = node()
    with d0.create_stream() as s:
        gate = parked(s)
        before = event_descriptors()
        loop = asyncio.new_event_loop()
        task = asyncio.ensure_future(s, loop=loop)
        loop.run_until_complete(asyncio.sleep(0))
        task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        gate.record()
        s.sync(SECONDS)
        del loop, task
        assert event_descriptors() == before


def test_await_in_the_loops_of_two_threads_wakes_both(node: Node) -> None:
    d0, _ = node()
    with d0.create_stream() as s:
        gate = parked(s)
        reached = threading.Barrier(3)

        async def work() -> None:
            task = asyncio.ensure_future(s)
            await asyncio.sleep(0)
            await asyncio.to_thread(reached.wait, SECONDS)
            await asyncio.wait_for(task, SECONDS)

        threads = [threading.Thread(target=asyncio.run, args=(work(),)) for _ in range(2)]
        for each in threads:
            each.start()
        reached.wait(SECONDS)
        gate.record()
        for each in threads:
            each.join(SECONDS)
        assert not any(each.is_alive() for each in threads)


def test_await_wakes_for_what_another_stream_records_later(node: Node, run: Callable[[Work], None]) -> None:
    d0, d1 = node()
    there, near = d0.create_stream(), d1.create_stream()

    async def work() -> None:
        to, back = d0.create_notify(), d1.create_notify()

        async def passes(stream: pl.Stream, first: pl.Notify, then: pl.Notify) -> None:
            for _ in range(200):
                stream.wait(first)
                stream.notify(then)
                await stream

        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(passes, there, to, back)
                tasks.start_soon(passes, near, back, to)
                to.record()

    run(work)
    there.close()
    near.close()
