"""What collectives refuse, and when they end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import peerlane as pl
from helpers.peers import PeerError
from helpers.promises import Node
from helpers.rank_peers import ask_all, ranks
from helpers.threads_as_ranks import run_ranks
from peerlane.errors import Fault

Call = Callable[[pl.Group], None]


def refused(node: Node, call: Call, why: str) -> None:
    """Both ranks are told, and the next collective finds nothing of it."""
    node()

    def work(group: pl.Group) -> None:
        with pytest.raises(pl.InvalidValue, match=why):
            call(group)
        word = np.full(1, group.rank + 1.0)
        group.all_reduce(word, dtype="float64")
        assert word[0] == 3.0

    run_ranks(2, work)


def test_barrier_peer_left() -> None:
    with ranks(3) as peers:
        assert ask_all(peers, "grp.barrier(); result = True") == [True] * 3
        peers[2].run("grp.close()")
        for each in peers[:2]:
            each.send("grp.barrier()")
        for each in peers[:2]:
            with pytest.raises(PeerError) as told:
                each.receive()
            assert told.value.kind == "PeerLost", str(told.value)
            with pytest.raises(PeerError, match="the collectives of this group ended with a failure") as told:
                each.run("grp.barrier()")
            assert told.value.kind == "Closed"


def test_barrier_other_workspace(node: Node) -> None:
    node()

    def work(group: pl.Group) -> pl.Error:
        with pytest.raises(pl.Error) as told:
            group.barrier()
        return told.value

    told = run_ranks(2, work, ends_together=False, each=[{"workspace": 1 << 20}, {"workspace": 2 << 20}])
    # The slower one may find that the other has gone.
    assert any(each.fault is Fault.BAD_CONFIG and "workspace" in str(each) for each in told)


def test_broadcast_refused(node: Node) -> None:
    refused(node, lambda group: group.broadcast(np.zeros(5), 2), "2 is no rank of 2")


def test_broadcast_read_only(node: Node) -> None:
    node()

    def work(group: pl.Group) -> None:
        with pytest.raises(pl.AccessDenied) as denied:
            group.broadcast(bytes(8), 1 - group.rank)
        assert denied.value.fault is Fault.READ_ONLY
        group.barrier()

    run_ranks(2, work)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda group: group.all_gather(np.zeros(5, np.uint8)), "no 2 equal parts; 1"),
        (lambda group: group.all_gather(np.zeros(4, np.uint8), np.zeros(3, np.uint8)), "src has 3"),
    ],
)
def test_all_gather_refused(node: Node, call: Call, why: str) -> None:
    refused(node, call, why)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda group: group.all_reduce(np.zeros(4), np.zeros(5), dtype="float64"), "32 bytes, src has 40"),
        (
            lambda group: group.all_reduce(np.zeros(5, np.uint8), dtype="float32"),
            "5 bytes at 0x.* no whole number",
        ),
        (
            lambda group: group.all_reduce(np.zeros(5), dtype="float32", algorithm="tree"),
            "valid are one-shot",
        ),
        (lambda group: group.all_reduce(np.zeros(5), dtype="float31"), "dtype is 'float31'"),
        (lambda group: group.all_reduce(np.zeros(5), dtype="float32", op="mean"), "op is 'mean'"),
    ],
)
def test_all_reduce_refused(node: Node, call: Call, why: str) -> None:
    refused(node, call, why)


def test_all_reduce_overlap(node: Node) -> None:
    node()

    def work(group: pl.Group) -> None:
        memory = np.zeros(100, np.float32)
        for call in (
            lambda: group.all_reduce(memory[:50], memory[10:60], dtype="float32"),
            lambda: group.all_gather(memory, memory[1 - group.rank :][:50]),
            lambda: group.all_to_all(memory[:50], memory[49:99]),
            lambda: group.reduce_scatter(memory[1:51], memory, dtype="float32"),
        ):
            with pytest.raises(pl.InvalidValue, match="overlap"):
                call()

    run_ranks(2, work)


def test_reduce_scatter_refused(node: Node) -> None:
    call = lambda group: group.reduce_scatter(np.zeros(1), np.zeros(4), dtype="float64")  # noqa: E731
    refused(node, call, "dst has 8 bytes, a part of src has 16")


def test_reduce_refused(node: Node) -> None:
    refused(node, lambda group: group.reduce(np.zeros(1), root=-1, dtype="float64"), "-1 is no rank")


def test_scatter_refused(node: Node) -> None:
    call = lambda group: group.scatter(np.zeros(1), np.zeros(1), group.rank)  # noqa: E731
    refused(node, call, "dst has 8 bytes, a part of src has 4")


def test_all_to_all_refused(node: Node) -> None:
    refused(node, lambda group: group.all_to_all(np.zeros(2), np.zeros(4)), "dst has 16 bytes, src has 32")


@pytest.mark.parametrize(("receives", "sends"), [([1], [1, 1]), ([1, -1], [1, 1]), ([1, 2], [2, 1])])
def test_all_to_all_v_refused(node: Node, receives: list[int], sends: list[int]) -> None:
    def call(group: pl.Group) -> None:
        group.all_to_all_v(np.zeros(9), np.zeros(9), receives=receives, sends=sends)

    refused(node, call, "2 numbers of bytes|sends itself")


def test_send_to_itself(node: Node) -> None:
    refused(node, lambda group: group.send(np.zeros(5), group.rank), "is this one")


def test_recv_from_itself(node: Node) -> None:
    refused(node, lambda group: group.recv(np.zeros(5), group.rank), "is this one")
