"""The promises of docs/errors.md on collectives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import peerlane as pl
from helpers.promises import Node
from helpers.threads_as_ranks import run_ranks

pytestmark = pytest.mark.timeout(120)

FOUR, FIVE = np.zeros(4, np.uint8), np.zeros(5, np.uint8)


def refused(*calls: Callable[[pl.Group], None]) -> None:
    """Each is refused by both ranks, and the next collective goes on."""

    def rank(group: pl.Group) -> None:
        for call in calls:
            with pytest.raises((pl.InvalidValue, TypeError)):
                call(group)
        word = np.full(1, group.rank + 1.0)
        group.all_reduce(word, dtype="float64")
        assert word[0] == 3.0

    run_ranks(2, rank)


def test_collective_bad_ends(node: Node) -> None:
    node()
    refused(
        lambda g: g.all_reduce(FOUR, FIVE, dtype="uint8"),
        lambda g: g.all_reduce(FIVE, dtype="float32"),
        lambda g: g.all_reduce(FOUR, dtype="float31"),
        lambda g: g.all_reduce(FOUR, dtype="uint8", op="mean"),
        lambda g: g.all_reduce(FOUR, dtype="uint8", algorithm="tree"),
        lambda g: g.all_reduce(np.zeros(8, np.uint8)[:5], np.zeros(8, np.uint8)[3:7], dtype="uint8"),
        lambda g: g.all_reduce(5, dtype="uint8"),
    )


def test_broadcast_bad_ends(node: Node) -> None:
    node()
    refused(lambda g: g.broadcast(FIVE, 2), lambda g: g.broadcast(5))


def test_all_gather_bad_ends(node: Node) -> None:
    node()
    refused(lambda g: g.all_gather(FIVE), lambda g: g.all_gather(FOUR, FIVE))


def test_reduce_scatter_bad_ends(node: Node) -> None:
    node()
    refused(
        lambda g: g.reduce_scatter(FOUR, FIVE, dtype="uint8"),
        lambda g: g.reduce_scatter(FOUR, np.zeros(8, np.uint8), dtype="float31"),
    )


def test_reduce_bad_ends(node: Node) -> None:
    node()
    refused(lambda g: g.reduce(FIVE, dtype="float32"), lambda g: g.reduce(FOUR, root=7, dtype="uint8"))


def test_scatter_bad_ends(node: Node) -> None:
    node()
    refused(lambda g: g.scatter(FOUR, FIVE, g.rank), lambda g: g.scatter(FOUR, FOUR, 9))


def test_all_to_all_bad_ends(node: Node) -> None:
    node()
    refused(lambda g: g.all_to_all(FOUR, FIVE), lambda g: g.all_to_all(FIVE, FIVE))


def test_all_to_all_v_bad_ends(node: Node) -> None:
    node()
    refused(
        lambda g: g.all_to_all_v(FOUR, FIVE, receives=[1], sends=[1, 1]),
        lambda g: g.all_to_all_v(FOUR, FIVE, receives=[2, 3], sends=[1, 1]),
        lambda g: g.all_to_all_v(FOUR, FIVE, receives=[1, 1], sends=[-1, 1]),
    )


def test_send_bad_ends(node: Node) -> None:
    node()
    refused(lambda g: g.send(FOUR, g.rank), lambda g: g.send(FOUR, 2), lambda g: g.send(5, 1 - g.rank))


def test_recv_bad_ends(node: Node) -> None:
    node()
    refused(lambda g: g.recv(FOUR, g.rank), lambda g: g.recv(FOUR, 2), lambda g: g.recv(5, 1 - g.rank))


def test_collective_read_only(node: Node) -> None:
    node()

    def rank(group: pl.Group) -> None:
        with pytest.raises(pl.AccessDenied):
            group.all_reduce(bytes(8), dtype="float32")
        with pytest.raises(pl.AccessDenied):
            group.recv(bytes(8), 1 - group.rank)
        group.barrier()

    run_ranks(2, rank)


@pytest.fixture
def closed(node: Node) -> pl.Group:
    node()
    group = pl.Group(0, 1, rendezvous=lambda value: [value])
    group.close()
    return group


def test_collective_closed(closed: pl.Group) -> None:
    for call in (
        lambda: closed.all_reduce(FOUR, dtype="uint8"),
        lambda: closed.broadcast(FOUR),
        lambda: closed.all_gather(FOUR),
    ):
        with pytest.raises(pl.Closed):
            call()


def test_barrier_closed(closed: pl.Group) -> None:
    with pytest.raises(pl.Closed):
        closed.barrier()


def test_collective_rank_left(node: Node) -> None:
    node()

    def rank(group: pl.Group) -> None:
        word = np.zeros(1, np.float32)
        channel = group.channel(1 - group.rank)
        group.all_reduce(word, dtype="float32")
        if group.rank == 1:
            channel.notify(0)
            return
        channel.wait(0, timeout=30)
        with pytest.raises((pl.PeerLost, pl.Closed)):
            group.all_reduce(word, dtype="float32")
        with pytest.raises(pl.Closed):
            group.barrier()
        assert not channel.is_closed

    run_ranks(2, rank, ends_together=False)
