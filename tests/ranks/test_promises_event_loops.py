"""Tasks of an event loop that wait for a channel's notifies."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import anyio
import pytest

import peerlane as pl
from helpers.promised import overdue
from helpers.rank_peers import ask_all, ranks
from helpers.threads_as_ranks import run_ranks

LOST_SECONDS = 0.5
SECONDS = 30.0

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest) -> Callable[..., None]:
    return lambda work: anyio.run(work, backend=request.param)


def test_notified_returns_when_the_peer_has_notified(alone: pl.Channel, run: Callable[..., None]) -> None:
    async def work() -> None:
        threads = threading.active_count()

        async def waits(index: int) -> None:
            for _ in range(20):
                await alone.notified(index, timeout=SECONDS)
                alone.notify((index + 1) % 4)

        async with anyio.create_task_group() as tasks:
            for index in range(4):
                tasks.start_soon(waits, index)
            await anyio.sleep(0)
            assert threading.active_count() <= threads
            alone.notify(0)
        await alone.notified(0, timeout=SECONDS)

    run(work)


def test_notified_twenty_at_once_sees_the_bytes_of_each(node: Callable[..., object]) -> None:
    node("devices=2")

    def rank(group: pl.Group) -> None:
        me, other = group.rank, 1 - group.rank
        channel = group.channel(other, notifies=40)

        async def work() -> None:
            async def one(index: int) -> None:
                for turn in range(10):
                    line = 2 * index + turn % 2  # the peer may be one turn ahead
                    first = 8 * line
                    channel.write(bytes([turn + me] * 8), at=first, notify=line)
                    await channel.notified(line, timeout=SECONDS)
                    assert bytes(group.window.view()[first : first + 8]) == bytes([turn + other] * 8)

            await asyncio.gather(*(one(index) for index in range(20)))

        asyncio.run(work())
        channel.close()

    run_ranks(2, rank, window=4096)


def test_notified_cancelled_consumes_nothing(alone: pl.Channel, run: Callable[..., None]) -> None:
    async def work() -> None:
        for _ in range(20):
            with anyio.move_on_after(0.001) as scope:
                await alone.notified(0)
            assert scope.cancelled_caught
            alone.notify(0)
            await alone.notified(0, timeout=SECONDS)
        with pytest.raises(pl.WaitTimeout):
            await alone.notified(0, timeout=0.01)

    run(work)


def test_notified_by_two_tasks_gives_a_record_to_each(
    node: Callable[..., object], run: Callable[..., None]
) -> None:
    node("devices=2")
    group = pl.Group(0, 1, rendezvous=lambda value: [value], window=4096, notifies="fifo")
    channel, ended = group.channel(0, notifies=1), []

    async def waits(number: int) -> None:
        await channel.notified(0, timeout=SECONDS)
        ended.append(number)

    async def work() -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(2):
                tasks.start_soon(waits, number)
            await anyio.wait_all_tasks_blocked()
            channel.notify(0)
            while not ended:
                await anyio.sleep(0)
            for _ in range(20):
                await anyio.sleep(0)
            assert len(ended) == 1
            channel.notify(0)
        assert sorted(ended) == [0, 1]

    run(work)


def test_channel_closed_meanwhile_ends_its_waits_as_closed(
    alone: pl.Channel, run: Callable[..., None]
) -> None:
    other = alone.group.channel(0, notifies=1)
    refused: list[str] = []

    def waits(call: Callable[[], object]) -> None:
        with pytest.raises(pl.Closed) as closed:
            call()
        refused.append(str(closed.value.call))

    thread = threading.Thread(target=waits, args=(lambda: other.wait(0),))
    thread.start()

    async def work() -> None:
        async with anyio.create_task_group() as tasks:

            async def waits_too() -> None:
                with pytest.raises(pl.Closed, match=r"Channel\.notified"):
                    await alone.notified(0)

            tasks.start_soon(waits_too)
            await anyio.wait_all_tasks_blocked()
            alone.close()

    run(work)
    deadline = time.monotonic() + SECONDS
    while not other._waiting:
        assert time.monotonic() < deadline
    other.close()
    thread.join(SECONDS)
    assert refused == ["Channel.wait"]


def test_notified_waiting_lets_a_strict_notify_be_recorded_once(alone: pl.Channel) -> None:
    group = pl.Group(0, 1, rendezvous=lambda value: [value], window=4096, notifies="strict", name="strict")
    channel = group.channel(0, notifies=1)

    async def work() -> None:
        task = asyncio.ensure_future(channel.notified(0))
        await asyncio.sleep(0)
        channel.notify(0)
        with pytest.raises(pl.Busy, match="strict"):
            channel.notify(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        channel.wait(0, timeout=SECONDS)

    asyncio.run(work())


@pytest.mark.parametrize("kind", ["binary", "strict", "fifo"])
def test_notified_cancelled_after_the_record_came_leaves_the_record(
    node: Callable[..., object], kind: str
) -> None:
    node("devices=2")
    group = pl.Group(0, 1, rendezvous=lambda value: [value], window=4096, notifies=kind)
    channel = group.channel(0, notifies=1)

    async def work() -> None:
        for _ in range(50):
            task = asyncio.ensure_future(channel.notified(0))
            await asyncio.sleep(0)
            (waiter,) = channel._waiting
            channel.notify(0)
            deadline = time.monotonic() + SECONDS
            while not waiter.is_done:  # the wait is over, and the loop has not heard of it
                assert time.monotonic() < deadline
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            channel.wait(0, timeout=SECONDS)

    asyncio.run(work())


def test_notified_in_vain_raises_in_the_name_of_the_call(alone: pl.Channel, run: Callable[..., None]) -> None:
    async def work() -> None:
        with pytest.raises(pl.WaitTimeout, match=r"Channel\.notified: .*notify 2 from rank 0 to rank 0"):
            await alone.notified(2, timeout=0.01)
        with pytest.raises(pl.InvalidValue, match=r"Channel\.notified: 4 is not a notify of this end"):
            await alone.notified(4)
        with pytest.raises(pl.InvalidValue, match=r"Channel\.notified: .*timeout"):
            await alone.notified(0, timeout=-1)

    run(work)


@pytest.mark.any_schedule
def test_notified_raises_peer_lost_when_the_peer_is_killed() -> None:
    with ranks(2) as (first, second):
        first.run("import asyncio")
        first.send(
            """
async def work():
    ready = asyncio.ensure_future(ch[1].notified(0))
    other = asyncio.ensure_future(ch[1].notified(1))
    ch[1].notify(0)
    done = await asyncio.gather(ready, other, return_exceptions=True)
    return [type(each).__name__ for each in done]
result = asyncio.run(work())
"""
        )
        second.run("ch[0].wait(0, timeout=30)")
        second.kill()
        start = time.monotonic()
        assert first.receive() == ["PeerLost", "PeerLost"]
        assert time.monotonic() - start < overdue(LOST_SECONDS)


@pytest.mark.any_schedule
def test_notified_of_two_processes_passes_bytes_to_and_fro() -> None:
    with ranks(2) as peers:
        code = """
import asyncio
import os
me, other = grp.rank, 1 - grp.rank
async def work():
    seen = []
    for turn in range(100):
        if turn % 2 == me:
            ch[other].write(bytes([turn]) * 64, notify=0)
        else:
            await ch[other].notified(0, timeout=30)
            seen.append(grp.window.view()[63])
    return [int(each) for each in seen]
result = asyncio.run(work())
"""
        assert ask_all(peers, code) == [list(range(1, 100, 2)), list(range(0, 100, 2))]
