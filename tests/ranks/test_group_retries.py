"""Ranks that make their group at different times, and retry after a time-out."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

import peerlane as pl
from helpers.peers import peer
from helpers.rank_peers import ask_all
from peerlane.rendezvous import Rendezvous, RendezvousServer

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]

SECONDS = 60.0
_TRIES = """
tries = 0
while True:
    try:
        grp = pl.Group(timeout={seconds}, name="late")
        break
    except pl.WaitTimeout:
        tries += 1
        if tries == {most}:
            break
result = tries
"""
_MEET = "ch = grp.channel(1 - grp.rank); ch.notify(0); ch.wait(0, timeout=30)"


@pytest.mark.parametrize("early", [0, 1])
def test_group_retried_after_timeouts_meets_late_rank_of_launcher(early: int) -> None:
    words = {"WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": f"late-{os.getpid()}-{early}"}
    node = f"name=late-{os.getpid()}-{early},devices=2"
    with peer(node, RANK="0", **words) as first, peer(node, RANK="1", **words) as second:
        ranks = [first, second]
        assert ranks[early].run(_TRIES.format(seconds=0.3, most=2)) == 2
        ask_all(ranks, _TRIES.format(seconds=20, most=1))
        ask_all(ranks, _MEET)


@pytest.mark.parametrize("early", [0, 1])
def test_group_retried_after_timeouts_meets_late_rank_at_rendezvous(early: int) -> None:
    with RendezvousServer(2) as server:
        lines = [Rendezvous(server.address, rank, 2) for rank in range(2)]
        for _ in range(2):
            with pytest.raises(pl.WaitTimeout):
                pl.Group(early, 2, rendezvous=lines[early], timeout=0.3, name="late")
        groups: list[pl.Group] = []

        def rank(number: int) -> Callable[[], None]:
            return lambda: groups.append(
                pl.Group(number, 2, rendezvous=lines[number], timeout=30, name="late")
            )

        threads = [threading.Thread(target=rank(number), daemon=True) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        assert sorted(group.rank for group in groups) == [0, 1]
        for closing in [*groups, *lines]:
            closing.close()
