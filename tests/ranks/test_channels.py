"""Operations of channels between ranks that are threads of one process: what they do, and what they refuse."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import peerlane as pl
from helpers.promises import Node, fails
from helpers.threads_as_ranks import run_ranks

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]

TYPES = ("int8", "int16", "int32", "float16", "float32", "int64", "uint8", "float64")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("nbytes", [0, 1, 8, 4096, 1 << 20, 5 << 20])
def test_channel_write_with_notify_bytes_are_there_after_wait(
    node: Node, nbytes: int, streamed: bool
) -> None:
    node("devices=4")
    pattern = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)

    def rank(group: pl.Group) -> None:
        with group.channel(1 - group.rank, notifies=2) as channel, group.device.create_stream() as stream:
            where = stream if streamed else None
            source = group.device.allocate(max(nbytes, 1))[:nbytes]
            for number in range(3):
                if group.rank == 0:
                    pl.copy(source, pattern + np.uint8(number), stream=where)
                    channel.write(source, at=8, notify=1, stream=where)
                    channel.wait(0, stream=where, timeout=30)
                    stream.sync()
                else:
                    channel.wait(1, timeout=30)
                    seen = bytes(group.window.view()[8 : 8 + nbytes])
                    assert seen == bytes(pattern + np.uint8(number))
                    channel.notify(0, stream=where)
                    stream.sync()

    run_ranks(2, rank, window=nbytes + 16)


@pytest.mark.parametrize("streamed", [False, True])
def test_channel_read_into_device_and_host_gives_peer_bytes(node: Node, streamed: bool) -> None:
    node("devices=2")

    def rank(group: pl.Group) -> None:
        group.window.fill(group.rank + 1)
        with group.channel(1 - group.rank) as channel, group.device.create_stream() as stream:
            channel.notify(0)
            channel.wait(0, timeout=30)
            target, host = group.device.allocate(100), bytearray(50)
            channel.read(target, at=28, stream=stream if streamed else None)
            channel.read(host, stream=stream if streamed else None)
            stream.sync()
            assert bytes(target.view()) == bytes([2 - group.rank]) * 100
            assert host == bytes([2 - group.rank]) * 50
            channel.notify(1)
            channel.wait(1, timeout=30)

    run_ranks(2, rank, window=128)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("op", ["sum", "max", "min"])
@pytest.mark.parametrize("dtype", TYPES)
def test_channel_reduce_of_each_type_and_op_equals_numpy(
    alone: pl.Channel, dtype: str, op: str, streamed: bool
) -> None:
    random = np.random.default_rng(7)
    there, mine = (random.integers(-50, 50, 64).astype(dtype) for _ in range(2))
    wanted = {"sum": np.add, "max": np.maximum, "min": np.minimum}[op](there, mine)
    device, window = alone.group.device, alone.group.window
    with device.create_stream() as s:
        stream = s if streamed else None
        pl.copy(window[: there.nbytes], there)
        alone.write_reduce(mine, dtype=dtype, op=op, notify=2, stream=stream)
        alone.wait(2, timeout=20)
        np.testing.assert_array_equal(window[: there.nbytes].view(dtype), wanted)
        target = device.allocate(mine.nbytes)
        pl.copy(target, mine)
        pl.copy(window[64 : 64 + there.nbytes], there)
        alone.read_reduce(target, dtype=dtype, op=op, at=64, stream=stream)
        s.sync()
        np.testing.assert_array_equal(
            target.view(dtype), {"sum": np.add, "max": np.maximum, "min": np.minimum}[op](mine, there)
        )


@pytest.mark.parametrize("streamed", [False, True])
def test_channel_blocks_written_and_read_lie_at_offsets_of_the_table(
    alone: pl.Channel, streamed: bool
) -> None:
    device, window = alone.group.device, alone.group.window
    content = np.arange(4096, dtype=np.uint32).view(np.uint8)[:4096]
    source = device.allocate(4096)
    pl.copy(source, content)
    blocks = [(16 * i, 16 * (255 - i), 16) for i in range(256)]
    with device.create_stream() as s:
        stream = s if streamed else None
        alone.write_blocks(source, blocks, notify=0, stream=stream)
        alone.wait(0, timeout=20)
        wanted = content.reshape(256, 16)[::-1].tobytes()
        assert bytes(window.view()) == wanted
        back = device.allocate(4096)
        alone.read_blocks(back, np.array(blocks, np.int64), stream=stream)
        s.sync()
        assert bytes(back.view()) == bytes(content)
        alone.write_blocks(source, np.empty((0, 3), int), stream=stream)
        s.sync()


def test_group_register_tagged_memory_is_written_and_bad_tags_are_refused(node: Node) -> None:
    node("devices=2")

    def rank(group: pl.Group) -> None:
        weights, table = group.device.allocate(256), group.device.allocate(64)
        group.register(weights, "weights")
        if group.rank == 1:
            group.register(table, "table")
        with group.channel(1 - group.rank) as channel:
            tags = {"window", "weights"} | ({"table"} if group.rank == 0 else set())
            assert set(channel.memories) == tags
            assert channel.memories["weights"].size == 256
            channel.write(bytes([group.rank + 9]) * 256, memory="weights", notify=0)
            channel.wait(0, timeout=30)
            assert bytes(weights.view()) == bytes([10 - group.rank]) * 256
            with pytest.raises(
                pl.InvalidValue, match="offered no memory with the tag 'nothing'; it offered 'window'"
            ):
                channel.write(b"x", memory="nothing")
            channel.notify(1)
            channel.wait(1, timeout=30)
        with pytest.raises(pl.InvalidValue, match="is taken by"):
            group.register(table, "weights")
        group.deregister("weights")
        group.register(table, "weights")
        with pytest.raises(pl.InvalidValue, match="no buffer has the tag 'other'"):
            group.deregister("other")
        with pytest.raises(pl.InvalidValue):
            group.deregister("window")

    run_ranks(2, rank)


def test_channel_write_source_changed_later_in_stream_sends_old_bytes(alone: pl.Channel) -> None:
    device, window = alone.group.device, alone.group.window
    source = device.allocate(1024)
    with device.create_stream() as stream:
        for number in range(1, 21):
            source.fill(number, stream=stream)
            alone.write(source, at=0, notify=0, stream=stream)
            source.fill(0xEE, stream=stream)
            alone.wait(0, timeout=20)
            assert bytes(window.view()[:1024]) == bytes([number]) * 1024
        stream.sync()


def test_channel_read_after_write_on_same_stream_gives_written_bytes(alone: pl.Channel) -> None:
    device = alone.group.device
    back = device.allocate(512)
    with device.create_stream() as stream:
        for number in range(1, 11):
            alone.write(bytes([number]) * 512, at=64, stream=stream)
            alone.read(back, at=64, stream=stream)
            stream.sync()
            assert bytes(back.view()) == bytes([number]) * 512


def test_channel_waits_queued_before_their_records_complete(node: Node) -> None:
    """This is the order of the vendor's sample (facts/hcomm 3.2): a thread queues the main stream's waits first."""
    node("devices=2")

    def rank(group: pl.Group) -> None:
        device = group.device
        channel = group.channel(1 - group.rank)
        with device.create_stream() as main, device.create_stream() as slave:
            start, end = device.create_notify(), device.create_notify()
            main.notify(start)
            main.wait(end, timeout=30)
            slave.wait(start, timeout=30)
            channel.notify(0, stream=slave)
            channel.wait(0, stream=slave, timeout=30)
            channel.write(bytes([group.rank + 1]) * 64, at=0, notify=1, stream=slave)
            channel.wait(1, stream=slave, timeout=30)
            slave.notify(end)
            main.sync(30)
            assert bytes(group.window.view()[:64]) == bytes([2 - group.rank]) * 64
            channel.notify(2)
            channel.wait(2, timeout=30)
        channel.close()

    run_ranks(2, rank, window=64)


def test_channel_fence_after_nonblocking_transfers_completes_them(alone: pl.Channel) -> None:
    device, window = alone.group.device, alone.group.window
    sources = [device.allocate(64) for _ in range(32)]
    for number, source in enumerate(sources):
        source.fill(number)
        alone.write(source, at=64 * number, nonblocking=True)
    alone.fence()
    for number, source in enumerate(sources):
        source.fill(0xEE)
        assert bytes(window.view()[64 * number : 64 * number + 64]) == bytes([number]) * 64
    targets = [device.allocate(64) for _ in range(32)]
    with device.create_stream() as stream:
        for number, target in enumerate(targets):
            alone.read(target, at=64 * number, nonblocking=True)
        alone.fence(stream=stream)
        copies = [device.allocate(64) for _ in targets]
        for copy, target in zip(copies, targets, strict=True):
            pl.copy(copy, target, stream=stream)
        stream.sync()
    for number, copy in enumerate(copies):
        assert bytes(copy.view()) == bytes([number]) * 64
    with pytest.raises(pl.InvalidValue, match="nonblocking operations are in no stream"):
        alone.write(b"x", nonblocking=True, stream=device.create_stream())


def test_channel_nonblocking_write_with_notify_bytes_are_there_after_wait(alone: pl.Channel) -> None:
    for number in range(1, 51):
        alone.write(bytes([number]) * 3000, at=0, notify=0, nonblocking=True)
        alone.wait(0, timeout=20)
        assert bytes(alone.group.window.view()[:3000]) == bytes([number]) * 3000


def test_channel_binary_notify_recorded_twice_satisfies_one_wait(alone: pl.Channel) -> None:
    alone.notify(0)
    alone.notify(0)
    alone.wait(0, timeout=20)
    with pytest.raises(pl.WaitTimeout):
        alone.wait(0, timeout=0.01)


def group_of(mode: str) -> pl.Group:
    return pl.Group(0, 1, rendezvous=lambda value: [value], notifies=mode)


def test_channel_fifo_notify_recorded_three_times_satisfies_three_waits(node: Node) -> None:
    node()
    with group_of("fifo") as group, group.channel(0) as channel:
        for _ in range(3):
            channel.notify(0)
        for _ in range(3):
            channel.wait(0, timeout=20)
        with pytest.raises(pl.WaitTimeout):
            channel.wait(0, timeout=0.01)


def test_channel_exit_with_unconsumed_notify_passes_on_body_exception(node: Node) -> None:
    node()
    with pytest.raises(ZeroDivisionError), group_of("strict") as group, group.channel(0) as channel:
        channel.notify(0)
        raise ZeroDivisionError


def test_channel_wait_in_one_thread_lets_another_thread_notify(alone: pl.Channel) -> None:
    waiter = threading.Thread(target=alone.wait, args=(0,), kwargs={"timeout": 30})
    waiter.start()
    alone.notify(0)
    waiter.join(20)
    assert not waiter.is_alive()


def test_channel_waits_of_four_threads_end_by_their_own_notifies(alone: pl.Channel) -> None:
    done: list[int] = []

    def wait(index: int) -> None:
        alone.wait(index, timeout=30)
        done.append(index)

    threads = [threading.Thread(target=wait, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for index in (3, 1, 2, 0):
        alone.notify(index)
    for thread in threads:
        thread.join(20)
    assert sorted(done) == [0, 1, 2, 3]


def test_channel_repr_and_route_open_and_closed_show_its_state(node: Node) -> None:
    node("devices=2,switch=1")
    with pl.Group(0, 1, rendezvous=lambda value: [value]) as group:
        with group.channel(0, notifies=2) as channel:
            assert repr(channel) == "<Channel of rank 0 to rank 0: 2 notifies in, 2 out>"
            assert channel.route.kind == "local"
            assert (channel.notifies, channel.peer_notifies) == (2, 2)
        assert repr(channel) == "<Channel of rank 0 to rank 0: closed>"


def test_channel_write_between_switches_is_staged_and_arrives(node: Node) -> None:
    node("devices=2,switch=1")

    def rank(group: pl.Group) -> None:
        with group.channel(1 - group.rank) as channel:
            assert channel.route.kind == "staged"
            channel.write(bytes([group.rank + 1]) * (3 << 20), notify=0)
            channel.wait(0, timeout=30)
            assert (group.window.view() == 2 - group.rank).all()
            channel.notify(1)
            channel.wait(1, timeout=30)

    run_ranks(2, rank, window=3 << 20)


def test_channel_wait_after_thread_peer_closed_its_end_raises_peer_lost(node: Node) -> None:
    node("devices=2")

    def rank(group: pl.Group) -> None:
        channel = group.channel(1 - group.rank)
        if group.rank == 1:
            with group.device.create_stream() as stream:
                channel.notify(0, stream=stream)
                channel.close()
            return
        channel.wait(0, timeout=30)
        for index in (1, 1):
            with pytest.raises(pl.PeerLost, match="has closed its end of the channel"):
                channel.wait(index)

    run_ranks(2, rank)


def test_channel_exit_with_failed_operation_passes_on_body_exception(node: Node) -> None:
    node()
    with pytest.raises(ZeroDivisionError), group_of("binary") as group, group.channel(0) as channel:
        channel.write(b"x", nonblocking=True)
        for stream in channel._loose:
            fails(stream)
        raise ZeroDivisionError


def test_channel_numpy_integers_are_accepted_and_other_types_refused(alone: pl.Channel) -> None:
    channel = alone.group.channel(np.int64(0), notifies=np.int32(2))  # type: ignore[arg-type]
    channel.write(b"12345678", at=np.int64(8), notify=np.int8(1))  # type: ignore[arg-type]
    channel.wait(np.uint8(1), timeout=20)  # type: ignore[arg-type]
    got = bytearray(8)
    channel.read(got, at=np.uint64(8))  # type: ignore[arg-type]
    assert got == b"12345678"
    for wrong in (True, np.bool_(False), 1.0, "1", None):
        with pytest.raises(TypeError, match=r"Channel\.read: at must be a byte, an int, not"):
            channel.read(got, at=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("index", [0, 3])
def test_channel_wait_timeout_without_stream_names_call_notify_and_ranks(index: int) -> None:
    def work(group: pl.Group) -> str:
        channel = group.channel(1 - group.rank)
        with pytest.raises(pl.WaitTimeout) as late:
            channel.wait(index, timeout=0.05)
        group.barrier()
        assert late.value.call == "Channel.wait"
        return str(late.value)

    for rank, text in enumerate(run_ranks(2, work)):
        assert text.startswith("Channel.wait: "), text
        assert f"[notify {index} from rank {1 - rank} to rank {rank}; called at " in text, text
        assert "0.05 s" in text
        assert "stream" not in text, "the program has none"
