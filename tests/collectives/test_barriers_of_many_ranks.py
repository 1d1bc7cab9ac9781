"""Barriers of more ranks than announce themselves to each other: they go by a tree, and need few channels."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Callable, Sequence
from os import kill

import numpy as np
import pytest

import peerlane as pl
from helpers.peers import Peer, PeerError
from helpers.prepared import run_python
from helpers.promised import overdue
from helpers.promises import Node
from helpers.rank_peers import ask_all, ranks
from helpers.threads_as_ranks import Exchange, run_ranks
from peerlane.collectives.call_order import _OrderLock
from peerlane.diagnostics.ranks.collective_calls import Kind

MOST_CHANNELS = 9  # a parent, and eight children
LOST_SECONDS = 1.0
FAILURES = (pl.InvalidValue, pl.PeerLost, pl.Closed, pl.Cancelled)

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(240)]


@pytest.fixture(autouse=True)
def entered_node(node: Node) -> None:
    node("devices=2")


def channels_of(group: pl.Group) -> int:
    work = group._order.workspace
    return 0 if work is None else len(work.channels)


@pytest.mark.parametrize("size", [*range(1, 18), 33, 64])
def test_barriers_of_each_group_size_hold_each_rank_until_last_comes(size: int) -> None:
    came = [0] * size

    def work(group: pl.Group) -> int:
        with group.device.create_stream() as stream:
            for turn in range(1, 6):
                came[group.rank] = turn
                group.barrier(stream=stream if turn % 2 == 0 else None)
                stream.sync()
                assert min(came) >= turn, (group.rank, came)
                group.barrier()
        return channels_of(group)

    counts = run_ranks(size, work)
    assert max(counts) <= min(size - 1, MOST_CHANNELS), counts
    assert sum(counts) in (size * (size - 1), 2 * (size - 1)), counts


@pytest.mark.parametrize("size", [9, 17])
def test_barriers_between_other_collectives_of_many_ranks_keep_the_order(size: int) -> None:
    def work(group: pl.Group) -> None:
        rank = group.rank
        number, word = np.zeros(1, np.int64), np.zeros(1, np.int64)
        group.barrier()
        for turn in range(20):
            number[0] = rank + turn
            group.all_reduce(number, dtype="int64")
            assert number[0] == size * (size - 1) // 2 + size * turn
            group.barrier()
            word[0] = turn if rank == turn % size else -1
            group.broadcast(word, turn % size)
            assert word[0] == turn
            if turn % 3 == 0:
                group.barrier()
        assert channels_of(group) == size - 1

    run_ranks(size, work)


def test_short_message_to_a_rank_in_its_first_barrier_waits_for_no_third_rank() -> None:
    size, sent = 12, threading.Event()

    def work(group: pl.Group) -> None:
        if group.rank == 11:
            group.send(b"12345678", 5)  # which is in the barrier, and no neighbour
            sent.set()
        elif group.rank == 3:
            assert sent.wait(60)
        group.barrier()
        if group.rank == 5:
            received = bytearray(8)
            group.recv(received, 11)
            assert received == b"12345678"

    run_ranks(size, work)


def failures(size: int, work: Callable[[pl.Group], None]) -> list[pl.Error]:
    """Return what each rank gets, which must be one of the errors of a group that ends."""

    def caught(group: pl.Group) -> pl.Error:
        with pytest.raises(FAILURES) as failed:
            work(group)
        group._leave()
        return failed.value

    return run_ranks(size, caught, ends_together=False, wait_timeout=60.0)


@pytest.mark.parametrize("other", ["all_reduce", "broadcast"])
@pytest.mark.parametrize("odd", [0, 1, 2, 16])
def test_barrier_of_many_ranks_with_another_call_of_one_fails_everywhere(odd: int, other: str) -> None:
    """Ranks 0 and 1 have children in the tree, 2 and 16 have none; a broadcast's root does not wait."""

    def work(group: pl.Group) -> None:
        if group.rank == odd and other == "broadcast":
            group.broadcast(np.zeros(2, np.int32), odd)
        elif group.rank == odd:
            group.all_reduce(np.zeros(2, np.int32), dtype="int32")
        group.barrier()

    errors = failures(17, work)
    texts = [str(each) for each in errors if isinstance(each, pl.InvalidValue)]
    assert any(other in text and "barrier" in text for text in texts), [str(each) for each in errors]


@pytest.mark.parametrize("gone", [0, 1, 16])
def test_barrier_of_many_ranks_of_which_one_closes_its_group_fails_everywhere(gone: int) -> None:
    def work(group: pl.Group) -> None:
        if group.rank == gone:
            group._leave()
        group.barrier()

    errors = failures(17, work)
    assert isinstance(errors.pop(gone), pl.Closed)
    assert {type(each) for each in errors} <= {pl.PeerLost, pl.Cancelled}, errors


@pytest.mark.any_schedule
@pytest.mark.parametrize("killed", [0, 1, 9])
def test_barrier_of_many_processes_names_the_one_that_was_killed(killed: int) -> None:
    size = 10  # rank 9 is below rank 1, and that below rank 0
    with ranks(size) as peers:
        pids = [each.pid for each in peers]
        for number, each in enumerate(peers):
            each.send("grp.barrier()" if number != killed else "grp.barrier(); import time; time.sleep(100)")
        for number, each in enumerate(peers):
            if number != killed:
                each.receive()
                each.send("grp.barrier()")
        began = time.monotonic()
        kill(pids[killed], signal.SIGKILL)
        texts = []
        for number, each in enumerate(peers):
            if number != killed:
                with pytest.raises(PeerError) as refused:
                    each.receive()
                assert refused.value.kind == "PeerLost", str(refused.value)
                texts.append(str(refused.value))
        assert time.monotonic() - began < overdue(LOST_SECONDS)
        assert any(f"rank {killed} (process {pids[killed]})" in text for text in texts), texts


def ends_of_wait(peers: Sequence[Peer], waits: str, ends: str) -> tuple[str, float]:
    """Return the error with which rank 2's wait for the last rank ends after that one's ``ends``, and the seconds."""
    peers[2].send(waits)
    assert not peers[2].has_answered(0.3)
    began = time.monotonic()
    peers[-1].send(ends)
    with pytest.raises(PeerError) as refused:
        peers[2].receive()
    peers[-1].receive()
    return refused.value.kind, time.monotonic() - began


@pytest.mark.any_schedule
def test_end_of_collectives_in_one_process_ends_the_wait_of_one_that_is_no_neighbour() -> None:
    with ranks(10) as peers:
        ask_all(peers, "grp.barrier()")
        kind, seconds = ends_of_wait(
            peers,
            "grp.recv(bytearray(8), 9)",
            "stream = grp.device.create_stream(); grp.barrier(stream=stream); stream.abort(close=True)\n"
            "try: stream.sync()\nexcept pl.Cancelled: pass\n"
            "try: grp.barrier()\nexcept pl.Closed: pass",
        )
    assert kind == "PeerLost"
    assert seconds < overdue(LOST_SECONDS)


@pytest.mark.any_schedule
@pytest.mark.parametrize("first", ["pass", "more.barrier()"])
@pytest.mark.parametrize("size", [4, 10])
@pytest.mark.parametrize(
    "more",
    [
        "from peerlane.collectives.duplicate import Duplicate; more = Duplicate(grp, wait_timeout=60)",
        "from peerlane.collectives.part import Part\n"
        "more = Part(grp, range(grp.size), name='whole', number=1, wait_timeout=60, timeout=60)",
    ],
    ids=["duplicate", "part"],
)
def test_end_of_a_duplicate_or_part_ends_the_wait_for_a_message_there(
    more: str, size: int, first: str
) -> None:
    with ranks(size) as peers:
        ask_all(peers, f"{more}\n{first}")
        kind, seconds = ends_of_wait(peers, "more.recv(bytearray(8), grp.size - 1)", "more._leave()")
    assert kind == "PeerLost"
    assert seconds < overdue(LOST_SECONDS)


@pytest.mark.any_schedule
def test_failing_rank_of_many_does_not_wait_for_a_stopped_one() -> None:
    with ranks(10, options="wait_timeout=1.0") as peers:
        ask_all(peers, "grp.barrier()")
        kill(peers[5].pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            peers[3].send("grp.barrier()")
            with pytest.raises(PeerError) as refused:
                peers[3].receive()
            assert refused.value.kind == "WaitTimeout"
            assert time.monotonic() - began < overdue(1.0 + 0.1)
        finally:
            kill(peers[5].pid, signal.SIGCONT)


def test_lock_of_an_order_is_free_while_its_workspace_is_closed() -> None:
    lock, closed = _OrderLock(), threading.Event()

    def close() -> None:
        with lock:
            pass
        closed.set()

    def end() -> None:
        with lock:
            lock.at_release(close)
            assert not closed.is_set()
        lock.await_close()

    thread = threading.Thread(target=end, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert closed.is_set()


def test_neighbours_of_a_barrier_that_connect_after_all_ranks_leave_these_connected() -> None:
    def work(group: pl.Group) -> None:
        group.barrier()
        work = group._order.workspace
        assert work is not None
        for kind in (Kind.ALL_REDUCE, Kind.BARRIER):
            work.connect_rounds(kind)
            assert work.connected == sorted(work.others)
        number = np.ones(1, np.int64)
        with group.device.create_stream() as stream:
            group.all_reduce(number, dtype="int64", stream=stream)
            stream.sync()
        assert number[0] == group.size

    run_ranks(9, work)


@pytest.mark.any_schedule
def test_rank_that_waits_in_vain_for_one_in_a_barrier_of_many_is_in_a_deadlock_with_it() -> None:
    size, met, names = 10, Exchange(10), itertools.repeat("in vain")
    texts: list[str] = []

    def rank(number: int) -> None:
        group = pl.Group(number, size, rendezvous=met.of(number), name=next(names))
        try:
            channel = group.channel(1 if number == 9 else 9) if number in (1, 9) else None
            if number == 9 and channel is not None:
                channel.wait(0, timeout=60)  # rank 1 never records it, because it is in the barrier
            group.barrier()
        except (pl.Deadlock, *FAILURES) as error:
            texts.append(f"{type(error).__name__}: {error}")
        finally:
            group._leave()

    threads = [threading.Thread(target=rank, args=(each,)) for each in range(size)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    assert not any(each.is_alive() for each in threads)
    deadlocks = [text for text in texts if text.startswith("Deadlock")]
    assert len(texts) == size and deadlocks, texts
    assert "barrier" in deadlocks[0], deadlocks


@pytest.mark.any_schedule
def test_group_of_more_processes_than_share_an_event_meets_and_has_a_barrier() -> None:
    program = "import peerlane as pl\nwith pl.Group() as group:\n    group.barrier()\n    print(group.size)"
    done = run_python(["-m", "peerlane", "launch", "-n", "66", "-c", program], timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split().count("66") == 66
