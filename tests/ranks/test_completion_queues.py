"""``notifies="fifo"``: records of a channel's end form a queue, as those of a RoCE card do (facts/hcomm 3.9)."""

from __future__ import annotations

import random
import threading
from collections import deque

import pytest

import peerlane as pl
from helpers.promises import Node
from helpers.rank_peers import ask_all, ranks
from helpers.threads_as_ranks import run_ranks
from peerlane import Fault, _core

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]
_MOST = 1024


def queueing(**options: int) -> pl.Group:
    return pl.Group(0, 1, rendezvous=lambda source: [source], notifies="fifo", **options)


@pytest.mark.parametrize("streamed", [False, True])
def test_fifo_wait_next_record_of_other_notify_raises_busy_and_consumes_it(
    node: Node, streamed: bool
) -> None:
    node()
    with queueing() as group, group.channel(0, notifies=3) as channel:
        for index in (2, 0, 2):
            channel.notify(index)

        def wait(index: int) -> None:
            with group.device.create_stream() as stream:
                channel.wait(index, timeout=20, stream=stream if streamed else None)
                stream.sync()

        wait(2)
        with pytest.raises(
            pl.Busy, match=r"notify 1 from rank 0 to rank 0.*is of notify 0 of that end"
        ) as refused:
            wait(1)
        assert refused.value.fault is Fault.NOTIFY_ORDER
        wait(2)
        with pytest.raises(pl.WaitTimeout):
            channel.wait(2, timeout=0.01)


def test_fifo_wait_queued_then_other_notify_recorded_raises_busy(node: Node) -> None:
    node()
    with queueing() as group, group.channel(0, notifies=2) as channel, group.device.create_stream() as stream:
        channel.wait(0, stream=stream)
        assert not stream.is_done
        channel.notify(1)
        with pytest.raises(pl.Busy) as refused:
            stream.sync(20)
        assert refused.value.fault is Fault.NOTIFY_ORDER


def test_fifo_queue_full_refuses_records_and_wraps_when_drained(node: Node) -> None:
    node()
    with queueing() as group, group.channel(0, notifies=2) as channel, group.device.create_stream() as stream:
        for number in range(_MOST):
            channel.notify(number % 2)
        with pytest.raises(pl.Busy, match=r"the queue of its end is full, with 1,024 records") as refused:
            channel.notify(0)
        assert refused.value.fault is Fault.BUSY
        channel.notify(0, stream=stream)
        with pytest.raises(pl.Busy, match=r"1,024 records"):
            stream.sync(20)
        for number in range(3 * _MOST):
            channel.wait(number % 2, timeout=20)
            channel.notify(number % 2)
        for number in range(_MOST):
            channel.wait(number % 2, timeout=20)
        with pytest.raises(pl.WaitTimeout):
            channel.wait(0, timeout=0.01)


def test_fifo_random_records_and_waits_behave_as_a_deque(node: Node) -> None:
    seed = 20261122
    print(f"seed {seed}")
    draw = random.Random(seed)
    node()
    with (
        queueing() as group,
        group.channel(0, notifies=4) as channel,
        group.device.create_stream(on_error="continue") as stream,
    ):
        model: deque[int] = deque()
        for _ in range(3000):
            where = draw.choice([None, stream])
            if not model or (draw.random() < 0.5 and len(model) < _MOST):
                model.append(draw.randrange(4))
                channel.notify(model[-1], stream=where)
            else:
                awaited = draw.choice([model[0], draw.randrange(4)])
                is_next = model.popleft() == awaited
                channel.wait(awaited, stream=stream, timeout=20)
                if is_next:
                    stream.sync(20)
                else:
                    with pytest.raises(pl.Busy):
                        stream.sync(20)
            stream.sync(20)


def test_fifo_records_of_four_threads_at_once_are_all_received(node: Node) -> None:
    node("devices=2")
    counts = [0, 0, 0, 0]

    def rank(group: pl.Group) -> None:
        with group.channel(1 - group.rank, notifies=5) as channel:
            if group.rank == 0:
                threads = [
                    threading.Thread(target=lambda index=index: [channel.notify(index) for _ in range(200)])
                    for index in range(4)
                ]
                for each in threads:
                    each.start()
                for each in threads:
                    each.join(30)
                channel.notify(4)
                return
            left = [200] * 4
            while any(left):
                guess = next(index for index, count in enumerate(left) if count)
                try:
                    channel.wait(guess, timeout=30)
                    left[guess] -= 1
                except pl.Busy as error:
                    left[int(str(error).split("is of notify ")[1].split()[0])] -= 1
            channel.wait(4, timeout=30)
            counts[:] = left

    run_ranks(2, rank, notifies="fifo")
    assert counts == [0, 0, 0, 0]


def test_fifo_between_processes_keeps_order_and_refuses_another() -> None:
    with ranks(2, options="notifies='fifo'") as peers:
        code = """
me, other = grp.rank, 1 - grp.rank
if me == 0:
    for number in range(3000):
        ch[1].notify(number % 3)
        if number % 500 == 499: ch[1].wait(3, timeout=30)
    ch[1].notify(2)
    with grp.device.create_stream() as s:
        ch[1].wait(0, timeout=30, stream=s)
        try:
            s.sync()
            result = "nothing"
        except pl.Busy as error:
            result = error.fault.name
else:
    for number in range(3000):
        ch[0].wait(number % 3, timeout=30)
        if number % 500 == 499: ch[0].notify(3)
    ch[0].notify(1)
    try:
        ch[0].wait(1, timeout=30)
        result = "nothing"
    except pl.Busy as error:
        result = error.fault.name
"""
        assert ask_all(peers, code) == ["NOTIFY_ORDER"] * 2


def test_all_reduce_in_fifo_group_gives_sum(node: Node) -> None:
    node("devices=3")

    def rank(group: pl.Group) -> list[int]:
        source = group.device.allocate(4 << 20)
        source.fill(group.rank + 1)
        group.all_reduce(source, dtype="uint8")
        return list(source.view()[::1_000_000])

    assert run_ranks(3, rank, notifies="fifo", workspace=1 << 16) == [[6] * 5] * 3


def test_fifo_wait_peer_closed_its_end_raises_peer_lost(node: Node) -> None:
    node("devices=2")

    def rank(group: pl.Group) -> None:
        channel = group.channel(1 - group.rank, notifies=2)
        if group.rank == 0:
            channel.notify(1)
            channel.close()
            return
        channel.wait(1, timeout=30)
        with pytest.raises(pl.PeerLost):
            channel.wait(0, timeout=30)
        channel.close()

    run_ranks(2, rank, notifies="fifo", ends_together=False)


def test_completions_wrong_line_count_or_index_raises(node: Node) -> None:
    node()
    backend = pl.devices()[0].backend
    with pytest.raises(ValueError, match="so many lines"):
        _core.Completions(_core.Signal(backend.ledger, 3))
    with pytest.raises(IndexError):
        _core.ChannelLines(_core.Completions(None), (1 << 16) + 1, 0)
    with pytest.raises(IndexError):
        _core.Notify(_core.ChannelLines(_core.Completions(None), 2, 0), 2)
    with pytest.raises(IndexError):
        _core.ChannelLines(0, 4, 0, _core.Signal(backend.ledger, 3))
