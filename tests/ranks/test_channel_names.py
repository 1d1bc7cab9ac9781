"""Channels made together by ``Group.channels``: their notifies, their names, and buffers as ``memory``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import peerlane as pl
from helpers.rank_peers import ask_all, ranks
from helpers.threads_as_ranks import run_ranks

pytestmark = pytest.mark.timeout(120)


def test_group_channels_named_in_other_orders_meet_by_name(node: Callable[..., Any]) -> None:
    node()

    def body(group: pl.Group) -> None:
        names = ["b", "a"] if group.rank else ["a", "b"]
        channels = group.channels([1 - group.rank] * 2, notifies=[len(group.members), 5], names=names)
        by_name = dict(zip(names, channels, strict=True))
        assert [each.notifies for each in channels] == [2, 5]
        assert by_name["a"].peer_notifies == (2 if group.rank else 5)
        by_name["a"].write(bytes([group.rank + 1]) * 8, at=8, notify=0)
        by_name["a"].wait(0, timeout=30)
        assert bytes(memoryview(group.window[8:16])) == bytes([2 - group.rank]) * 8
        again = group.channels([1 - group.rank], names=["a"])[0]
        again.notify(0)
        again.wait(0, timeout=30)

    run_ranks(2, body)


def test_group_channels_bad_notifies_or_names_raises_invalid_value(node: Callable[..., Any]) -> None:
    node()

    def body(group: pl.Group) -> None:
        for options in ({"notifies": [1]}, {"notifies": [1, -1]}, {"names": ["a"]}, {"names": ["a", "\n"]}):
            with pytest.raises(pl.InvalidValue):
                group.channels([0, 0], **options)

    run_ranks(1, body)


def test_channel_transfer_with_buffer_as_memory_moves_its_bytes(node: Callable[..., Any]) -> None:
    node()

    def body(group: pl.Group) -> None:
        with group.device.allocate(64) as other:
            channel = group.channel(0)
            channel.write(b"abcdefgh", at=8, memory=other)
            taken = bytearray(8)
            channel.read(taken, at=8, memory=other)
            assert taken == b"abcdefgh"
            with pytest.raises(pl.BadAddress):
                channel.write(b"abcdefgh", at=60, memory=other)

    run_ranks(1, body)


_CLOSED = """
from peerlane.diagnostics.waits import stream_waits
grp.barrier()
before = set(stream_waits.notify_names)
channel = grp.channel(1 - grp.rank, notifies=2)
firsts = set(stream_waits.notify_names) - before
names = sorted(stream_waits.notify_name(first + index) for first in firsts for index in range(2))
grp.barrier()
channel.close()
result = names, set(stream_waits.notify_names) == before
"""


def test_channel_closed_leaves_no_names_of_its_notifies() -> None:
    names = [f"notify {index} from rank {peer} to rank {1 - peer}" for index in range(2) for peer in range(2)]
    with ranks(2) as peers:
        assert ask_all(peers, _CLOSED) == [[names, True]] * 2
