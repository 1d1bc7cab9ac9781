"""Notifies that one end of a channel has not used yet: what the other end did to them counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import peerlane as pl
from helpers.rank_peers import ask_all, ranks
from helpers.threads_as_ranks import run_ranks

pytestmark = pytest.mark.timeout(120)

_LEFT = """
if grp.rank == 1:
    ch[0].notify(1)
    ch[0].notify(3)
grp.barrier()
result = None
if grp.rank == 0:
    try:
        ch[1].close()
    except pl.Busy as left:
        result = left.fault.name, left.detail.notifies
"""

_KEPT = """
if grp.rank == 1:
    for _ in range(3):
        ch[0].notify(2)
grp.barrier()
consumed = 0
if grp.rank == 0:
    for _ in range(3):
        ch[1].wait(2, timeout=30)
        consumed += 1
grp.barrier()
result = consumed
"""


@pytest.mark.any_schedule
def test_channel_close_counts_strict_records_of_notifies_that_this_process_never_used() -> None:
    with ranks(2, options='notifies="strict"') as peers:
        assert ask_all(peers, _LEFT) == [["NOTIFY_LEFT", [1, 3]], None]


@pytest.mark.any_schedule
def test_wait_for_a_notify_consumes_records_that_came_before_its_first_use() -> None:
    with ranks(2, options='notifies="fifo"') as peers:
        assert ask_all(peers, _KEPT) == [3, 0]


@pytest.mark.parametrize("kind", ["binary", "strict", "fifo"])
def test_wait_for_an_unused_notify_of_a_closed_channel_raises_peer_lost(
    node: Callable[..., Any], kind: str
) -> None:
    node()

    def body(group: pl.Group) -> None:
        channel = group.channel(1 - group.rank, notifies=5)
        if group.rank == 1:
            channel.wait(4, timeout=30)
            channel.close()
        else:
            channel.notify(4)
        group.barrier()
        if group.rank == 0:
            with pytest.raises(pl.PeerLost, match="notify 3 from rank 1 to rank 0"):
                channel.wait(3, timeout=30)

    run_ranks(2, body, notifies=kind)
