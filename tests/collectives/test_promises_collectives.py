"""The promises of docs/errors.md on collectives."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import peerlane as pl
from helpers.peers import PeerError
from helpers.promised import overdue
from helpers.promises import Node
from helpers.rank_peers import ask_all, ranks
from helpers.threads_as_ranks import run_ranks
from peerlane.collectives.call_order import CallOrder
from peerlane.errors import Fault

pytestmark = pytest.mark.schedules_in_turn

Call = Callable[[pl.Group], None]

LOST_SECONDS = 0.5


def refused(node: Node, call: Call, why: str) -> None:
    """Check that both ranks are refused, and that their next collective works."""
    node()

    def work(group: pl.Group) -> None:
        with pytest.raises(pl.InvalidValue, match=why):
            call(group)
        word = np.full(1, group.rank + 1.0)
        group.all_reduce(word, dtype="float64")
        assert word[0] == 3.0

    run_ranks(2, work)


def test_barrier_peer_left_raises_peer_lost() -> None:
    with ranks(3) as peers:
        assert ask_all(peers, "grp.barrier(); result = True") == [True] * 3
        peers[2].run("grp.close()")
        for each in peers[:2]:
            each.send("grp.barrier()")
        for each in peers[:2]:
            with pytest.raises(PeerError) as refusals:
                each.receive()
            assert refusals.value.kind == "PeerLost", str(refusals.value)
            with pytest.raises(
                PeerError, match="the collectives of this group ended with a failure"
            ) as refusals:
                each.run("grp.barrier()")
            assert refusals.value.kind == "Closed"


def test_barrier_workspaces_differ_raises_invalid_value(node: Node) -> None:
    node()

    def work(group: pl.Group) -> pl.Error:
        with pytest.raises(pl.Error) as refusals:
            group.barrier()
        return refusals.value

    refusals = run_ranks(2, work, ends_together=False, each=[{"workspace": 1 << 20}, {"workspace": 2 << 20}])
    # The slower rank may find that the other has gone.
    assert any(each.fault is Fault.BAD_CONFIG and "workspace" in str(each) for each in refusals)


def test_recv_peer_left_before_first_call_raises_peer_lost(node: Node) -> None:
    """Rank 0 closed its group before this rank looked: that is ``PeerLost``, not a false claim."""
    node()
    has_closed, have_groups = threading.Event(), threading.Barrier(2)

    def work(group: pl.Group) -> None:
        have_groups.wait(30)  # only then does the first call prepare the other rank
        if group.rank == 0:
            with pytest.raises(KeyError), group, group.device.create_stream() as stream:
                group.send(np.zeros(8, np.uint8), 1, stream=stream)
                stream.sync(30)
                raise KeyError  # without it, the close would wait for the receiver
            has_closed.set()
            return
        assert has_closed.wait(30)
        with pytest.raises(pl.PeerLost, match="rank 0"):
            group.recv(np.zeros(8, np.uint8), 0)

    run_ranks(2, work, ends_together=False)


Both = tuple[Call, Call]


@pytest.mark.parametrize(
    ("calls", "why"),
    [
        (
            (lambda group: group.barrier(), lambda group: group.broadcast(np.zeros(5, np.uint8))),
            "as collective 2, rank . calls (barrier|broadcast of 5 bytes from rank 0), and rank . calls",
        ),
        (
            (
                lambda group: group.all_reduce(np.zeros(4), dtype="float64"),
                lambda group: group.all_reduce(np.zeros(5), dtype="float64"),
            ),
            "all_reduce of (32|40) bytes, sum of float64",
        ),
        (
            (
                lambda group: group.all_gather_v(np.zeros(9, np.uint8), receives=[4, 5]),
                lambda group: group.all_gather_v(np.zeros(9, np.uint8), receives=[5, 4]),
            ),
            r"all_gather_v of \[., .\] bytes",
        ),
        (
            (
                lambda group: group.send(np.zeros(8), 1),
                lambda group: group.recv(np.zeros(9), 0),
            ),
            "rank (0 sends 64|1 receives 72) bytes as a message, and rank (1 receives 72|0 sends 64) as a message",
        ),
        (
            (
                lambda group: group.send(np.zeros(1), 1),
                lambda group: group.all_reduce(np.zeros(1), dtype="float64", algorithm="ring"),
            ),
            "as a part, and rank . .* as a message|as a message, and rank . .* as a part",
        ),
    ],
)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_collective_calls_differ_raises_invalid_value(
    node: Node, calls: Both, why: str, order: tuple[int, int]
) -> None:
    """The second rank to call gets ``InvalidValue``; the first gets ``PeerLost``, unless its message had left."""
    node()
    has_called = threading.Event()

    def work(group: pl.Group) -> pl.Error | None:
        group.barrier()
        with group.device.create_stream() as stream:
            call = calls[group.rank]
            if group.rank == order[0]:
                try:
                    call(Queued(group, stream))
                finally:
                    has_called.set()
                try:
                    stream.sync(30)
                except pl.Error as error:
                    return error
                return None  # its message had left before
            assert has_called.wait(30)
            with pytest.raises(pl.InvalidValue, match=why):
                call(Queued(group, stream))
            with pytest.raises(pl.Closed, match="ended with a failure"):
                group.barrier()
        return None

    refusals = run_ranks(2, work, ends_together=False)[order[0]]
    assert refusals is None or isinstance(refusals, pl.PeerLost)


@pytest.mark.parametrize("on_stream", [False, True])
@pytest.mark.parametrize("late", [0, 1])
def test_collective_calls_differ_raises_invalid_value_in_who_expects_other_parts(
    late: int, on_stream: bool
) -> None:
    """Only rank 1 sees that: it expects 16 bytes of rank 0, which sends 8, and may be through by then."""

    def work(group: pl.Group) -> pl.Error:
        group.barrier()
        receives = [16, 8] if group.rank == 1 else [8, 8]
        into, whole = np.zeros(9), np.ones(9)
        with group.device.create_stream() as stream:
            if group.rank == late:
                assert has_called.wait(30)
            call = functools.partial(group.all_to_all_v, into, whole, receives=receives, sends=[8, 8])
            with pytest.raises((pl.InvalidValue, pl.PeerLost)) as refusals:
                if on_stream:
                    call(stream=stream)
                    has_called.set()
                    stream.sync(30)
                else:
                    has_called.set()
                    call()
                group.barrier()
            with pytest.raises(pl.Closed, match="ended with a failure"):
                group.barrier()
        assert group.rank == 0 or not into.any()
        return refusals.value

    has_called = threading.Event()
    sender, receiver = run_ranks(2, work, ends_together=False)
    assert isinstance(sender, pl.PeerLost) and isinstance(receiver, pl.InvalidValue)
    assert "as collective 2, rank 0 sends 8 bytes as a part, and rank 1 receives 16 bytes as a part" in str(
        receiver
    )


class Queued:
    """A group whose collectives are all queued on one stream."""

    def __init__(self, group: pl.Group, stream: pl.Stream) -> None:
        self._group, self._stream = group, stream

    def __getattr__(self, name: str) -> Any:
        return functools.partial(getattr(self._group, name), stream=self._stream)


def test_barrier_peer_missing_raises_wait_timeout(node: Node) -> None:
    node()
    over = threading.Event()

    def work(group: pl.Group) -> None:
        group.barrier()
        if group.rank:
            assert over.wait(30)
            return
        try:
            with group.device.create_stream() as stream:
                group.barrier(stream=stream)
                with pytest.raises(pl.WaitTimeout):
                    stream.sync()
        finally:
            over.set()

    run_ranks(2, work, ends_together=False, wait_timeout=5)


def test_broadcast_unknown_root_raises_invalid_value(node: Node) -> None:
    refused(node, lambda group: group.broadcast(np.zeros(5), 2), "2 is not a rank of 2")


def test_broadcast_into_read_only_raises_access_denied(node: Node) -> None:
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
        (lambda group: group.all_gather(np.zeros(5, np.uint8)), "do not divide into 2 equal parts; 1"),
        (lambda group: group.all_gather(np.zeros(4, np.uint8), np.zeros(3, np.uint8)), "src has 3"),
    ],
)
def test_all_gather_bad_sizes_raises_invalid_value(node: Node, call: Call, why: str) -> None:
    refused(node, call, why)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda group: group.all_reduce(np.zeros(4), np.zeros(5), dtype="float64"), "32 bytes, src has 40"),
        (
            lambda group: group.all_reduce(np.zeros(5, np.uint8), dtype="float32"),
            "5 bytes at 0x.* not a whole number",
        ),
        (
            lambda group: group.all_reduce(np.zeros(5), dtype="float32", algorithm="tree"),
            "valid are one-shot",
        ),
        (lambda group: group.all_reduce(np.zeros(5), dtype="float31"), "dtype is 'float31'"),
        (lambda group: group.all_reduce(np.zeros(5), dtype="float32", op="mean"), "op is 'mean'"),
    ],
)
def test_all_reduce_bad_argument_raises_invalid_value(node: Node, call: Call, why: str) -> None:
    refused(node, call, why)


def test_all_reduce_ends_overlap_raises_invalid_value(node: Node) -> None:
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


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda group: group.all_gather_v(np.zeros(5, np.uint8), receives=[5]), "2 numbers of bytes"),
        (
            lambda group: group.all_gather_v(np.zeros(5, np.uint8), bytes(2), receives=[4, 1]),
            "part of dst has",
        ),
    ],
)
def test_all_gather_v_bad_sizes_raises_invalid_value(node: Node, call: Call, why: str) -> None:
    refused(node, call, why)


def test_all_gather_v_part_outside_raises_bad_address(node: Node) -> None:
    outside(node, lambda group: group.all_gather_v(np.zeros(5, np.uint8), receives=[3, 3]))


@pytest.mark.parametrize(
    "call",
    [
        lambda group: group.all_gather_v(
            np.zeros(9, np.uint8), np.zeros(4, np.uint8), receives=[4, 4], receives_at=[5, 2]
        ),
        lambda group: group.all_to_all_v(
            np.zeros(9), np.zeros(4), receives=[16, 16], sends=[16, 16], receives_at=[0, 8]
        ),
        lambda group: group.reduce_scatter_v(
            *[np.zeros(8, np.uint8)] * 2, sends=[8, 8], sends_at=[0, 0], dtype="uint8"
        ),
    ],
)
def test_all_gather_v_parts_overlap_raises_invalid_value(node: Node, call: Call) -> None:
    refused(
        node,
        call,
        "(receives|sends)_at puts the bytes of rank . at .* and those of rank .*; such parts must not overlap",
    )


_ABANDONED = """
import numpy as np
me, n = grp.rank, grp.size
size = 1 << 20

def memory(value, times=1):
    array = np.full(times * size, value, np.uint8)
    if "{where}" == "host":
        return array, array
    made = grp.device.allocate(array.nbytes)
    made.copy_from(array)
    return made, made.view("uint8")

given, bytes_given = memory(1, n)
taken, bytes_taken = memory(9, n)
calls = dict(
    send=lambda: grp.send(given, n - 1) if me == 0 else me != n - 1 or grp.recv(taken, 0),
    broadcast=lambda: grp.broadcast(given if me == 0 else taken, 0),
    scatter=lambda: grp.scatter(taken[:size], given if me == 0 else None, 0),
    all_gather=lambda: grp.all_gather(taken, given[:size]),
    all_to_all=lambda: grp.all_to_all(taken, given),
    reduce=lambda: grp.reduce(taken if me == n - 1 else None, given, n - 1, dtype="uint8"),
)
call = calls["{call}"]
for _ in range(3):  # from then on ranks read memory where it lies
    call()
grp.barrier()
"""


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("call", ["send", "broadcast", "scatter", "all_gather", "all_to_all", "reduce"])
def test_collective_whose_giver_gave_up_raises_peer_lost_in_who_comes_late(
    call: str, where: str, size: int
) -> None:
    with ranks(size, options="wait_timeout=30") as peers:
        ask_all(peers, _ABANDONED.format(call=call, where=where))
        early, late = peers[:-1], peers[-1]
        for each in early:
            each.send(
                "work = grp._order._work; work.timeout, work.timeout_ns = 0.3, 300_000_000; result = call()"
            )
        kinds = set()
        for each in early:
            try:
                each.receive()
            except PeerError as error:
                kinds.add(error.kind)
        assert kinds <= {"WaitTimeout", "PeerLost"}
        ask_all(early, "bytes_given[:] = 77")
        try:
            late.run("call()")
        except PeerError as error:
            assert error.kind == "PeerLost", error
        else:  # what was given had left before
            assert late.run("result = 77 not in bytes_taken")


_FAILS = {
    "an operation that fails": "s.wait(grp.device.create_notify(), timeout=0.01)",
    "an abort": "s.wait(grp.device.create_notify())",
}
_QUEUED = {
    "all_reduce": "grp.all_reduce(word, dtype='float32', stream=s)",
    "two-shot": "grp.all_reduce(word, dtype='float32', algorithm='two-shot', stream=s)",
    "message": "grp.send(word, (grp.rank + 1) % 3, stream=s)",
}
_AWAITED = _QUEUED | {"message": "grp.recv(word, (grp.rank - 1) % 3, stream=s)"}


@pytest.mark.parametrize("why", _FAILS)
@pytest.mark.parametrize("call", _QUEUED)
@pytest.mark.parametrize("options", ["", "notifies='strict'"])
def test_collective_behind_a_failed_operation_raises_peer_lost_in_all_others(
    why: str, call: str, options: str
) -> None:
    ready = """
import numpy as np
word, s = np.ones(4, np.float32), grp.device.create_stream()
grp.barrier()
result = True
"""
    with ranks(3, options=options) as peers:
        assert ask_all(peers, ready) == [True] * 3
        waiting = peers[1:2] if call == "message" else peers[1:]
        for each in waiting:
            each.send(f"{_AWAITED[call]}; s.sync()")
        peers[0].run(f"{_FAILS[why]}\n{_QUEUED[call]}\n" + ("s.abort()" if why == "an abort" else ""))
        began = time.monotonic()
        for each in waiting:
            with pytest.raises(PeerError) as refusals:
                each.receive()
            assert refusals.value.kind == "PeerLost", str(refusals.value)
        assert time.monotonic() - began < overdue(LOST_SECONDS)
        with pytest.raises(PeerError) as refusals:
            peers[0].run("grp.barrier()")
        assert refusals.value.kind == "Closed"


def outside(node: Node, call: Call) -> None:
    node()

    def work(group: pl.Group) -> None:
        with pytest.raises(pl.BadAddress) as refusals:
            call(group)
        assert refusals.value.fault is Fault.OUT_OF_BOUNDS
        group.barrier()

    run_ranks(2, work)


@pytest.mark.parametrize(
    ("sends", "why"),
    [([8, 7], "not a whole number"), ([8, 8, 8], "2 numbers"), ([16, 16], "part of src has")],
)
def test_reduce_scatter_v_bad_sizes_raises_invalid_value(node: Node, sends: list[int], why: str) -> None:
    def call(group: pl.Group) -> None:
        group.reduce_scatter_v(
            np.zeros(sends[group.rank] if sends[0] == 8 else 9, np.uint8),
            np.zeros(9),
            sends=sends,
            dtype="float64",
        )

    refused(node, call, why)


def test_reduce_scatter_bad_size_raises_invalid_value(node: Node) -> None:
    call = lambda group: group.reduce_scatter(np.zeros(1), np.zeros(4), dtype="float64")  # noqa: E731
    refused(node, call, "dst has 8 bytes, a part of src has 16")


def test_reduce_unknown_root_raises_invalid_value(node: Node) -> None:
    refused(node, lambda group: group.reduce(np.zeros(1), root=-1, dtype="float64"), "-1 is not a rank")


def test_scatter_bad_size_raises_invalid_value(node: Node) -> None:
    call = lambda group: group.scatter(np.zeros(1), np.zeros(1), group.rank)  # noqa: E731
    refused(node, call, "dst has 8 bytes, a part of src has 4")


def test_all_to_all_bad_sizes_raises_invalid_value(node: Node) -> None:
    refused(node, lambda group: group.all_to_all(np.zeros(2), np.zeros(4)), "dst has 16 bytes, src has 32")


@pytest.mark.parametrize(("receives", "sends"), [([1], [1, 1]), ([1, -1], [1, 1]), ([1, 2], [2, 1])])
def test_all_to_all_v_bad_sizes_raises_invalid_value(
    node: Node, receives: list[int], sends: list[int]
) -> None:
    def call(group: pl.Group) -> None:
        group.all_to_all_v(np.zeros(9), np.zeros(9), receives=receives, sends=sends)

    refused(node, call, "2 numbers of bytes|sends itself")


def test_send_to_own_rank_raises_invalid_value(node: Node) -> None:
    refused(node, lambda group: group.send(np.zeros(5), group.rank), "is this one")


def test_recv_from_own_rank_raises_invalid_value(node: Node) -> None:
    refused(node, lambda group: group.recv(np.zeros(5), group.rank), "is this one")


def test_barrier_peer_without_memory_raises_at_once_in_all_ranks(node: Node) -> None:
    node("devices=3,memory=64MiB")
    is_taken = threading.Barrier(3)

    def work(group: pl.Group) -> str:
        taken = group.device.allocate(60 << 20) if group.rank == 1 else None
        is_taken.wait(60)
        before = time.monotonic()
        with pytest.raises(pl.Error) as refusals:
            group.barrier()
        assert time.monotonic() - before < overdue(LOST_SECONDS), refusals.value
        if taken is not None:
            taken.close()
        return type(refusals.value).__name__

    refusals = run_ranks(3, work, ends_together=False, workspace=16 << 20)
    assert refusals == ["PeerLost", "OutOfMemory", "PeerLost"]


@pytest.mark.parametrize("first", range(3))
def test_barrier_rank_that_comes_first_does_not_get_the_error_of_another(node: Node, first: int) -> None:
    node("devices=3,memory=64MiB")
    is_taken, has_raised = threading.Barrier(3), threading.Event()

    def work(group: pl.Group) -> str:
        taken = group.device.allocate(60 << 20) if group.rank == 1 else None
        is_taken.wait(60)
        if group.rank != first:
            assert has_raised.wait(60)
        try:
            with pytest.raises(pl.Error) as refusals:
                group.barrier()
        finally:
            has_raised.set()
        with pytest.raises(pl.Closed, match="ended with a failure"):
            group.barrier()
        if taken is not None:
            taken.close()
        return type(refusals.value).__name__

    assert run_ranks(3, work, ends_together=False, workspace=16 << 20) == [
        "PeerLost",
        "OutOfMemory",
        "PeerLost",
    ]


@pytest.mark.timeout(60)
def test_stream_close_waits_for_collective_that_another_rank_begins_later() -> None:
    is_queued = threading.Event()
    streams: list[pl.Stream] = []
    parts = [np.arange(5, dtype=np.int64), np.arange(5, dtype=np.int64)]

    def work(group: pl.Group) -> None:
        if group.rank == 0:
            streams.append(group.device.create_stream())
            group.all_reduce(parts[0], dtype="int64", stream=streams[0])
            is_queued.set()
            streams[0].close()
            assert np.array_equal(parts[0], 2 * np.arange(5))
            return
        assert is_queued.wait(30)
        while not _is_closing(streams[0]):
            pass
        group.all_reduce(parts[1], dtype="int64")

    run_ranks(2, work)
    assert np.array_equal(parts[1], 2 * np.arange(5))


@pytest.mark.any_schedule  # under seeded no rank leaves its group's making before all have come
@pytest.mark.timeout(60)
def test_call_is_queued_before_another_rank_of_the_process_has_created_its_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has_offered, is_queued = threading.Event(), threading.Event()
    make, prepare = CallOrder.__init__, CallOrder._prepare_neighbours

    def make_late(order: CallOrder, session: pl.Group, *rest: Any) -> None:
        if session.rank == 1:
            assert has_offered.wait(30)
        make(order, session, *rest)

    def prepare_and_report(order: CallOrder, call: str) -> None:
        prepare(order, call)
        has_offered.set()

    monkeypatch.setattr(CallOrder, "__init__", make_late)
    monkeypatch.setattr(CallOrder, "_prepare_neighbours", prepare_and_report)
    values = [np.full(5, 1 + rank) for rank in range(2)]

    def work(group: pl.Group) -> None:
        if group.rank == 0:
            with group.device.create_stream() as stream:
                group.all_reduce(values[0], dtype="int64", stream=stream)
                is_queued.set()
            return
        assert is_queued.wait(30)
        group.all_reduce(values[1], dtype="int64")

    run_ranks(2, work)
    assert all(np.array_equal(each, np.full(5, 3)) for each in values)


def _is_closing(stream: pl.Stream) -> bool:
    try:
        stream.record()
    except pl.Closed:
        return True
    return False
