"""The promises of docs/errors.md on memory that a rank offered and took back; ranks are threads here."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import peerlane as pl
from helpers.threads_as_ranks import run_ranks


def _uses(channel: pl.Channel, own: pl.Buffer, stream: pl.Stream | None) -> None:
    """Check that every operation on the memory ``kv`` is refused."""
    blocks = [[0, 0, 8]]
    for use in (
        lambda: channel.write(own, memory="kv", stream=stream),
        lambda: channel.write(np.zeros(8, np.uint8), memory="kv", stream=stream),
        lambda: channel.read(own, memory="kv", stream=stream),
        lambda: channel.write_reduce(own, dtype="int32", memory="kv", stream=stream),
        lambda: channel.read_reduce(own, dtype="int32", memory="kv", stream=stream),
        lambda: channel.write_blocks(own, blocks, memory="kv", stream=stream),
        lambda: channel.read_blocks(own, blocks, memory="kv", stream=stream),
    ):
        with pytest.raises(pl.Closed) as refused:
            use()
            if stream is not None:
                stream.sync(20)
        assert refused.value.fault is pl.Fault.CLOSED
        assert "rank 0" in str(refused.value) and "'kv'" in str(refused.value)


@pytest.mark.parametrize("how", ["deregister", "close", "group"])
@pytest.mark.timeout(90)
def test_channel_write_to_memory_taken_back_raises_closed(how: str) -> None:
    is_closed = threading.Event()

    def work(group: pl.Group) -> None:
        memory = group.device.allocate(4096)
        group.register(memory, "kv")
        channel = group.channel(1 - group.rank)
        own = group.device.allocate(64)
        own.fill(7)
        channel.write(own, memory="kv")
        kept = channel.memories["kv"][:8]
        channel.notify(0)
        channel.wait(0, timeout=30)
        if group.rank == 0:
            if how == "deregister":
                group.deregister("kv")
                memory.fill(9)  # the owner may go on using it
                assert bytes(memory.view()[:8]) == bytes([9]) * 8
            elif how == "close":
                memory.close()
            channel.notify(1)
            if how == "group":
                group.close()
                is_closed.set()
            return
        channel.wait(1, timeout=30)
        if how == "group":
            with pytest.raises(pl.PeerLost):
                channel.wait(2, timeout=30)
            assert is_closed.wait(30)  # the channel ends before the memory is taken back
        _uses(channel, own, None)
        with group.device.create_stream() as stream:
            _uses(channel, own, stream)
        with pytest.raises(pl.Closed):
            pl.copy(kept, own[:8])
        assert bytes(own.view()) == bytes([7]) * 64
        if how != "group":
            channel.write(own)

    run_ranks(2, work, ends_together=how != "group")


@pytest.mark.timeout(90)
def test_group_register_tag_again_serves_new_channels_only() -> None:
    def work(group: pl.Group) -> None:
        memory = group.device.allocate(4096)
        old = None
        for turn in range(3):
            group.register(memory, "kv")
            channel = group.channel(1 - group.rank)
            channel.write(bytes([turn]) * 8, memory="kv", notify=0)
            channel.wait(0, timeout=30)
            assert bytes(memory.view()[:8]) == bytes([turn]) * 8
            if old is not None:
                with pytest.raises(pl.Closed):
                    old.write(b"12345678", memory="kv")
            channel.notify(1)
            channel.wait(1, timeout=30)
            group.deregister("kv")
            channel.notify(2)
            channel.wait(2, timeout=30)
            old = channel

    run_ranks(2, work)
