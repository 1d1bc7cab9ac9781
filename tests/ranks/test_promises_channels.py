"""The promises of docs/errors.md on channels."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

import peerlane as pl
from helpers.peers import Peer
from helpers.promised import overdue
from helpers.promises import Node, fails
from peerlane.errors import Fault
from peerlane.rendezvous import Rendezvous, RendezvousServer

LOST_SECONDS = 0.5

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]

Shared = tuple[pl.Device, pl.Device, Peer]


def group_of(mode: str) -> pl.Group:
    return pl.Group(0, 1, rendezvous=lambda value: [value], notifies=mode)


def test_channel_write_blocks_outside_memory_raises_bad_address(alone: pl.Channel) -> None:
    source = alone.group.device.allocate(64)
    alone.group.window.fill(5)
    with pytest.raises(pl.BadAddress, match=r"entry 1\b") as outside:
        alone.write_blocks(source, [(0, 0, 64), (4090, 0, 8)])
    assert outside.value.fault is Fault.OUT_OF_BOUNDS
    with pytest.raises(pl.BadAddress):
        alone.write_blocks(source, np.array([(0, (1 << 64) - 8, 16)], np.uint64))
    assert (alone.group.window.view() == 5).all()


@pytest.mark.parametrize("bad", ["", "x" * 256, 5, None])
def test_group_register_bad_tag_is_refused(alone: pl.Channel, bad: object) -> None:
    with pytest.raises(pl.InvalidValue if isinstance(bad, str) else TypeError, match="tag"):
        alone.group.register(alone.group.device.allocate(8), bad)  # type: ignore[arg-type]


def test_group_register_bad_memory_is_refused(alone: pl.Channel) -> None:
    with pytest.raises(pl.InvalidValue, match="is host memory"):
        alone.group.register(pl.Host().allocate(8), "host")
    with pytest.raises(TypeError):
        alone.group.register(bytearray(8), "host")  # type: ignore[arg-type]
    gone = alone.group.device.allocate(8)
    gone.close()
    with pytest.raises(pl.Closed):
        alone.group.register(gone, "gone")


def test_channel_write_outside_memory_raises_bad_address(alone: pl.Channel) -> None:
    window = alone.group.window
    window.fill(5)
    with alone.group.device.create_stream() as stream:
        for where in (None, stream):
            for at, nbytes in ((4096, 1), (4090, 8), (0, 4097), (-1, 1), ((1 << 64) - 1, 8)):
                with pytest.raises(pl.BadAddress, match=f"{nbytes:,} bytes at byte {at:,}") as refused:
                    alone.write(bytes(nbytes), at=at, notify=0, stream=where)
                assert refused.value.fault is Fault.OUT_OF_BOUNDS
                with pytest.raises(pl.BadAddress):
                    alone.read(bytearray(nbytes), at=at, stream=where)
        assert stream.submitted == 0
    assert (window.view() == 5).all()
    with pytest.raises(pl.WaitTimeout):
        alone.wait(0, timeout=0.01)


@pytest.mark.parametrize("index", [4, -1, 1000])
def test_channel_write_unknown_notify_raises_invalid_value(alone: pl.Channel, index: int) -> None:
    calls: list[Callable[[], None]] = [
        lambda: alone.notify(index),
        lambda: alone.wait(index),
        lambda: alone.write(b"x", notify=index),
        lambda: alone.write_reduce(b"x", dtype="int8", notify=index),
        lambda: alone.write_blocks(b"x", [(0, 0, 1)], notify=index),
    ]
    alone.group.window.fill(5)
    for call in calls:
        with pytest.raises(pl.InvalidValue, match=f"{index} is not a notify of .*; valid are 0 to 3"):
            call()
    assert (alone.group.window.view() == 5).all()


def test_channel_write_wrong_type_raises_type_error(alone: pl.Channel) -> None:
    alone.group.window.fill(5)
    calls: list[Callable[[], None]] = [
        lambda: alone.notify("1"),  # type: ignore[arg-type]
        lambda: alone.wait(1.0, timeout=1),  # type: ignore[arg-type]
        lambda: alone.write(5),
        lambda: alone.write(b"x", at="1"),  # type: ignore[arg-type]
        lambda: alone.write(b"x", stream=5),  # type: ignore[arg-type]
        lambda: alone.read(b"x", stream=5),  # type: ignore[arg-type]
        lambda: alone.fence(stream=5),  # type: ignore[arg-type]
        lambda: alone.wait(0, timeout="1"),  # type: ignore[arg-type]
        lambda: alone.drain(timeout="1"),  # type: ignore[arg-type]
        lambda: alone.notify(0, stream=5),  # type: ignore[arg-type]
        lambda: alone.wait(0, stream=5),  # type: ignore[arg-type]
        lambda: alone.notify(True),
        lambda: alone.write(b"x", notify=1.0),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"must be|is an int|neither"):
            call()
    assert (alone.group.window.view() == 5).all()


def test_channel_write_numpy_integer_as_notify_is_accepted(alone: pl.Channel) -> None:
    alone.write(b"x", notify=np.int64(2))  # type: ignore[arg-type]
    alone.wait(np.uint8(2), timeout=20)  # type: ignore[arg-type]


def test_channel_read_into_read_only_raises_access_denied(alone: pl.Channel) -> None:
    with pytest.raises(pl.AccessDenied):
        alone.read(b"constant")


@pytest.mark.parametrize("streamed", [False, True])
def test_channel_notify_strict_recorded_twice_raises_busy(node: Node, streamed: bool) -> None:
    node()
    with group_of("strict") as group, group.channel(0) as channel, group.device.create_stream() as stream:
        channel.notify(1)
        with pytest.raises(pl.Busy, match=r"notify 1 from rank 0 to rank 0") as doubled:
            channel.notify(1, stream=stream if streamed else None)
            stream.sync()
        assert doubled.value.fault is Fault.NOTIFY_DOUBLED
        channel.wait(1, timeout=20)


@pytest.mark.parametrize("streamed", [False, True])
def test_channel_notify_fifo_queue_full_raises_busy(node: Node, streamed: bool) -> None:
    node()
    with group_of("fifo") as group, group.channel(0) as channel, group.device.create_stream() as stream:
        for _ in range(1024):
            channel.notify(1)
        with pytest.raises(pl.Busy, match=r"queue of its end is full, with 1,024 records") as full:
            channel.notify(1, stream=stream if streamed else None)
            stream.sync()
        assert full.value.fault is Fault.BUSY


@pytest.mark.parametrize("streamed", [False, True])
def test_channel_wait_fifo_out_of_order_raises_busy(node: Node, streamed: bool) -> None:
    node()
    with group_of("fifo") as group, group.channel(0) as channel, group.device.create_stream() as stream:
        channel.notify(1)
        channel.notify(0)
        with pytest.raises(pl.Busy, match=r"notify 0 from rank 0 to rank 0.*is of notify 1") as other:
            channel.wait(0, stream=stream if streamed else None)
            stream.sync()
        assert other.value.fault is Fault.NOTIFY_ORDER
        channel.wait(0, timeout=20)


def test_channel_close_with_unconsumed_notify_raises_busy(node: Node) -> None:
    node()
    group = group_of("strict")
    channel = group.channel(0)
    channel.notify(1)
    channel.notify(3)
    with pytest.raises(pl.Busy, match="notifies 1, 3 from rank 0 were recorded and nobody waited") as left:
        channel.close()
    assert left.value.fault is Fault.NOTIFY_LEFT
    assert channel.is_closed
    channel.close()
    second = group.channel(0)
    second.notify(0)
    with pytest.raises(pl.Busy, match="notify 0 from rank 0 was recorded"):
        group.close()
    assert group.is_closed
    assert second.is_closed


@pytest.mark.parametrize("streamed", [False, True])
def test_channel_wait_never_recorded_raises_wait_timeout(alone: pl.Channel, streamed: bool) -> None:
    with alone.group.device.create_stream() as stream:
        start = time.monotonic()
        with pytest.raises(pl.WaitTimeout, match=r"notify 2 from rank 0 to rank 0"):
            alone.wait(2, stream=stream if streamed else None, timeout=0.05)
            stream.sync()
        assert 0.05 <= time.monotonic() - start < overdue(0.05)


def test_channel_write_closed_raises_closed(alone: pl.Channel) -> None:
    group = alone.group
    stream = group.device.create_stream()
    other = group.channel(0)
    alone.close()
    assert alone.is_closed
    assert not other.is_closed
    calls: list[Callable[[], None]] = [
        lambda: alone.write(b"x"),
        lambda: alone.write(b"x", stream=stream),
        lambda: alone.read(bytearray(1)),
        lambda: alone.write_blocks(b"x", [(0, 0, 1)]),
        lambda: alone.write_reduce(b"x", dtype="int8"),
        lambda: alone.notify(0),
        lambda: alone.wait(0),
        alone.fence,
        alone.drain,
        lambda: alone.__enter__() and None,
    ]
    for call in calls:
        with pytest.raises(pl.Closed, match="closed"):
            call()
    group.close()
    with pytest.raises(pl.Closed):
        other.notify(0)
    with pytest.raises(pl.Closed):
        group.channel(0)
    with pytest.raises(pl.Closed):
        group.register(group.device.allocate(8), "more")
    group.close()


def test_channel_write_on_closed_stream_raises_closed(alone: pl.Channel) -> None:
    stream = alone.group.device.create_stream()
    stream.close()
    alone.group.window.fill(5)
    for call in (lambda: alone.write(b"x", stream=stream), lambda: alone.notify(0, stream=stream)):
        with pytest.raises(pl.Closed):
            call()
    with pytest.raises(pl.Closed):
        alone.wait(0, stream=stream)
    assert (alone.group.window.view() == 5).all()


def test_channel_class_called_raises_type_error() -> None:
    with pytest.raises(TypeError, match=r"Group\.channel"):
        pl.Channel()


def test_channel_write_blocks_bad_table_raises_invalid_value(alone: pl.Channel) -> None:
    alone.group.window.fill(5)
    source = alone.group.device.allocate(64)
    with pytest.raises(pl.InvalidValue, match=r"block 1 is \[0, -1, 8\]"):
        alone.write_blocks(source, [(0, 0, 8), (0, -1, 8)])
    for bad in ([(0, 1)], [0, 1, 2], [(0.5, 0, 1)], [(0, 0, 8), (0, 0)], [(0, 0, 1 << 70)]):
        with pytest.raises(pl.InvalidValue, match=r"\(n, 3\)"):
            alone.read_blocks(source, bad)
    alone.write_blocks(source, [])
    assert (alone.group.window.view() == 5).all()


def test_channel_read_blocks_outside_memory_raises_bad_address(alone: pl.Channel) -> None:
    target = alone.group.device.allocate(64)
    target.fill(5)
    for bad in ([(0, 4090, 8)], [(60, 0, 8)]):
        with pytest.raises(pl.BadAddress, match=r"entry 1\b"):
            alone.read_blocks(target, [(0, 0, 8), *bad])
    assert (target.view() == 5).all()


def test_channel_write_unknown_tag_raises_invalid_value(alone: pl.Channel) -> None:
    for call in (alone.write, alone.read):
        with pytest.raises(
            pl.InvalidValue, match="offered no memory with the tag 'nothing'; it offered 'window'"
        ):
            call(bytearray(1), memory="nothing")


def test_channel_write_nonblocking_on_stream_raises_invalid_value(alone: pl.Channel) -> None:
    with alone.group.device.create_stream() as stream:
        for call in (alone.write, alone.read):
            with pytest.raises(pl.InvalidValue, match="nonblocking operations are in no stream"):
                call(bytearray(1), nonblocking=True, stream=stream)
        assert stream.submitted == 0


@pytest.mark.parametrize(
    "options", [{"dtype": "complex64"}, {"dtype": "int8", "op": "mean"}, {"dtype": "int64"}]
)
def test_channel_write_reduce_bad_type_raises_invalid_value(
    alone: pl.Channel, options: dict[str, str]
) -> None:
    alone.group.window.fill(5)
    with pytest.raises(pl.InvalidValue):
        alone.write_reduce(bytearray(12), notify=0, **options)  # type: ignore[arg-type]
    assert (alone.group.window.view() == 5).all()
    with pytest.raises(pl.WaitTimeout):
        alone.wait(0, timeout=0.01)


def test_channel_read_reduce_bad_type_raises_invalid_value(alone: pl.Channel) -> None:
    target = bytearray(12)
    for options in ({"dtype": "complex64"}, {"dtype": "int8", "op": "mean"}, {"dtype": "int64"}):
        with pytest.raises(pl.InvalidValue):
            alone.read_reduce(target, **options)  # type: ignore[arg-type]
    assert target == bytes(12)


def test_channel_fence_after_failed_operation_raises_its_error(alone: pl.Channel) -> None:
    alone.write(b"x", nonblocking=True)
    for stream in alone._loose:
        fails(stream)
    with pytest.raises(pl.BadAddress):
        alone.fence()
    alone.fence()


def test_channel_drain_not_over_in_time_raises_wait_timeout(alone: pl.Channel) -> None:
    with alone.group.device.create_stream() as stream:
        alone.wait(0, stream=stream)
        with pytest.raises(pl.WaitTimeout):
            alone.drain(stream=stream, timeout=0.02)
        alone.notify(0)
        alone.drain(stream=stream, timeout=20)
        fails(stream)
        with pytest.raises(pl.BadAddress):
            alone.drain(stream=stream, timeout=20)


@pytest.mark.parametrize("what", ["channel", "group"])
def test_channel_route_closed_raises_closed(alone: pl.Channel, what: str) -> None:
    (alone if what == "channel" else alone.group).close()
    with pytest.raises(pl.Closed):
        alone.route  # noqa: B018 - it raises


def test_channel_enter_closed_raises_closed(alone: pl.Channel) -> None:
    alone.close()
    with pytest.raises(pl.Closed), alone:
        pass


def test_channel_wait_for_lost_rank_raises_peer_lost(shared: Shared) -> None:
    """The peer closes its end; tests/ranks/test_channels_lost.py has the deaths."""
    _, _, other = shared
    with RendezvousServer(2) as server:
        line = f"pl.rendezvous.Rendezvous({server.address!r}, 1, 2)"
        other.send(f"import peerlane.rendezvous; grp = pl.Group(rendezvous={line}); ch = grp.channel(0)")
        with pl.Group(rendezvous=Rendezvous(server.address, 0, 2)) as group, group.channel(1) as channel:
            other.receive()
            other.run("ch.notify(1); ch.close(); grp.close()")
            channel.wait(1, timeout=20)
            began = time.monotonic()
            with pytest.raises(pl.PeerLost, match=r"rank 1 \(process \d+\) has closed its end .*from rank 1"):
                channel.wait(1)
            assert time.monotonic() - began < overdue(LOST_SECONDS)
