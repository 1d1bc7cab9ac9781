"""Hccl* collectives against NumPy, byte for byte: every call, type and operation; one thread drives all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import peerlane as pl
from helpers.hcomm_ranks import code, in_threads, ok
from peerlane.dialects import acl
from peerlane.dialects.hcomm import explain
from peerlane.testing.collective_check import CollectiveCheck

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]

Array = np.ndarray[Any, Any]
SEND, RECV = 0, 1
REDUCED = {
    0: np.int8,
    1: np.int16,
    2: np.int32,
    3: np.float16,
    4: np.float32,
    5: np.int64,
    6: np.uint64,
    10: np.float64,
    11: "bfloat16",
}
MOVED = {**REDUCED, 7: np.uint8, 8: np.uint16, 9: np.uint32, **dict.fromkeys((14, 15, 16, 17), np.uint8)}
OPS = {0: np.add, 1: np.multiply, 2: np.maximum, 3: np.minimum}
COUNTS = (0, 1, 1003, 70_001)


class World:
    """Ranks of one communicator in this process (``HcclCommInitAll``), all driven by this thread.

    Each rank has its own stream; ``close`` frees the memory.
    """

    def __init__(self, hcomm: ModuleType, size: int) -> None:
        self.size, self.hcomm = size, hcomm
        ok(acl.rt.set_device(0))
        self.comms = ok(hcomm.HcclCommInitAll(size, list(range(size))))
        self.streams = [self.on(rank, acl.rt.create_stream) for rank in range(size)]
        self._memory: list[tuple[int, int]] = []

    def on(self, rank: int, call: Callable[..., Any], *args: Any) -> Any:
        """Return the result of a call of acl while the device of a rank is set."""
        ok(acl.rt.set_device(rank))
        try:
            return ok(call(*args))
        finally:
            ok(acl.rt.set_device(0))

    def put(self, rank: int, content: Array) -> int:
        """Return the address of a copy of these bytes on the device of a rank."""
        data = np.ascontiguousarray(content).view(np.uint8).reshape(-1)
        address: int = self.on(rank, acl.rt.malloc, max(64, data.size), 0)
        self._memory.append((rank, address))
        if data.size:
            self.on(rank, acl.rt.memcpy, address, data.size, data.ctypes.data, data.size, 1)
        return address

    def get(self, rank: int, address: int, like: Array) -> Array:
        """Return the bytes at an address as an array like ``like``."""
        content = np.zeros_like(like)
        if content.nbytes:
            self.on(rank, acl.rt.memcpy, content.ctypes.data, content.nbytes, address, content.nbytes, 2)
        return content

    def call(self, name: str, *args: Callable[[int], Any] | Any) -> None:
        """Call for each rank in turn and wait for all; a callable argument is called with the rank."""
        for rank in range(self.size):
            arguments = [each(rank) if callable(each) else each for each in args]
            ok(getattr(self.hcomm, name)(*arguments, self.comms[rank], self.streams[rank]))
        self.sync()

    def sync(self) -> None:
        """Wait for the streams of all ranks."""
        for rank in range(self.size):
            assert self.ended(rank) == 0, acl.get_recent_err_msg()

    def ended(self, rank: int) -> int:
        """Wait for a rank's stream, and return how it ended."""
        ok(acl.rt.set_device(rank))
        try:
            return code(acl.rt.synchronize_stream(self.streams[rank]))
        finally:
            ok(acl.rt.set_device(0))

    def close(self) -> None:
        """Destroy the communicators and streams, and free the memory."""
        for comm in self.comms:
            ok(self.hcomm.HcclCommDestroy(comm))
        for rank, stream in enumerate(self.streams):
            self.on(rank, acl.rt.destroy_stream, stream)
        for rank, address in self._memory:
            self.on(rank, acl.rt.free, address)


@pytest.fixture(params=[2, 3])
def world(
    request: pytest.FixtureRequest, hcomm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    monkeypatch.setenv("HCCL_EXEC_TIMEOUT", "30")
    pl.leave_node()
    pl.enter_node("devices=4,memory=256MiB")
    world = World(hcomm, request.param)
    yield world
    world.close()


def values(dtype: int, count: int, rank: int) -> Array:
    """Return random elements; for floats the order of sums and products changes the result."""
    kind, random = MOVED[dtype], np.random.default_rng((dtype, count, rank))
    if kind == "bfloat16":
        return (random.normal(1, 1, count).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if np.dtype(kind).kind == "f":
        return random.normal(1, 1, count).astype(kind)
    return random.integers(0, 256, count * np.dtype(kind).itemsize, np.uint8).view(kind)


def folded(parts: Sequence[Array], dtype: int, op: int) -> Array:
    """Combine in the order of ranks."""
    result = parts[0].copy()
    for part in parts[1:]:
        if MOVED[dtype] == "bfloat16":
            pl.reduce(result, part, dtype="bfloat16", op=("sum", "prod", "max", "min")[op])
        else:
            with np.errstate(all="ignore"):
                OPS[op](result, part, out=result)
    return result


def same(result: Array, wanted: Array) -> bool:
    return result.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("op", OPS)
def test_hcomm_all_reduce_every_type_and_size_equals_numpy(world: World, op: int) -> None:
    for dtype in REDUCED:
        if op == 1 and dtype in (1, 11):
            continue
        for count in COUNTS if dtype == 4 else (1003,):
            parts = [values(dtype, count, rank) for rank in range(world.size)]
            want = folded(parts, dtype, op)
            sources = [world.put(rank, part) for rank, part in enumerate(parts)]
            targets = [world.put(rank, np.zeros_like(part)) for rank, part in enumerate(parts)]
            world.call("HcclAllReduce", sources.__getitem__, targets.__getitem__, count, dtype, op)
            world.call("HcclAllReduce", sources.__getitem__, sources.__getitem__, count, dtype, op)
            for rank in range(world.size):
                assert same(world.get(rank, targets[rank], want), want), (dtype, count, rank)
                assert same(world.get(rank, sources[rank], want), want), (dtype, count, rank)


@pytest.mark.parametrize("op", OPS)
def test_hcomm_reduce_and_reduce_scatter_every_type_equal_numpy(world: World, op: int) -> None:
    size = world.size
    for dtype in REDUCED:
        if op == 1 and dtype in (1, 11):
            continue
        each = 501
        parts = [values(dtype, each * size, rank) for rank in range(size)]
        want, width = folded(parts, dtype, op), parts[0].itemsize
        sources = [world.put(rank, part) for rank, part in enumerate(parts)]
        targets = [world.put(rank, np.zeros_like(part)) for rank, part in enumerate(parts)]
        for root in (0, size - 1):
            to = [address if rank == root else 0 for rank, address in enumerate(targets)]
            world.call("HcclReduce", sources.__getitem__, to.__getitem__, each * size, dtype, op, root)
            assert same(world.get(root, targets[root], want), want), (dtype, root)
        counts = [each * size - 7 * (size - 1), *[7] * (size - 1)]
        starts = [sum(counts[:rank]) for rank in range(size)]
        world.call(
            *("HcclReduceScatterV", sources.__getitem__, counts, np.array(starts, np.uint64)),
            *(targets.__getitem__, counts.__getitem__, dtype, op),
        )
        for rank in range(size):
            mine = want[starts[rank] :][: counts[rank]]
            assert same(world.get(rank, targets[rank], mine), mine), (dtype, rank)
        own = [address + rank * each * width for rank, address in enumerate(sources)]
        world.call("HcclReduceScatter", sources.__getitem__, targets.__getitem__, each, dtype, op)
        world.call("HcclReduceScatter", sources.__getitem__, own.__getitem__, each, dtype, op)
        for rank in range(size):
            mine = want[rank * each :][:each]
            assert same(world.get(rank, targets[rank], mine), mine), (dtype, rank)
            assert same(world.get(rank, own[rank], mine), mine), (dtype, rank)


def test_hcomm_gather_scatter_broadcast_alltoall_every_type_move_bytes(world: World) -> None:
    size = world.size
    for dtype in MOVED:
        for count in (0, 1, 33_001) if dtype == 7 else (257,):
            parts = [values(dtype, count, rank) for rank in range(size)]
            width, whole = parts[0].itemsize, np.concatenate(parts)
            room = np.zeros_like(whole)
            sources = [world.put(rank, part) for rank, part in enumerate(parts)]
            targets = [world.put(rank, room) for rank in range(size)]
            world.call("HcclAllGather", sources.__getitem__, targets.__getitem__, count, dtype)
            for rank in range(size):
                assert same(world.get(rank, targets[rank], whole), whole), (dtype, rank)
            own = [address + rank * count * width for rank, address in enumerate(targets)]
            world.call("HcclAllGather", own.__getitem__, targets.__getitem__, count, dtype)
            root = size - 1
            source = [targets[rank] if rank == root else 0 for rank in range(size)]
            world.call(
                "HcclScatter", source.__getitem__, sources.__getitem__, count, dtype, 0 if size == 1 else root
            )
            for rank in range(size):
                assert same(world.get(rank, targets[rank], whole), whole), (dtype, rank)
                assert same(world.get(rank, sources[rank], parts[rank]), parts[rank]), (dtype, rank)
            world.call("HcclBroadcast", sources.__getitem__, count, dtype, root)
            for rank in range(size):
                assert same(world.get(rank, sources[rank], parts[root]), parts[root]), (dtype, rank)
            mixed = [world.put(rank, np.roll(whole, rank)) for rank in range(size)]
            world.call("HcclAlltoAll", mixed.__getitem__, count, dtype, targets.__getitem__, count, dtype)
            for rank in range(size):
                mine = slice(rank * count, (rank + 1) * count)
                want = np.concatenate([np.roll(whole, origin)[mine] for origin in range(size)])
                assert same(world.get(rank, targets[rank], want), want), (dtype, rank)


def test_hcomm_all_gather_v_and_alltoall_v_unequal_parts_move_bytes(world: World) -> None:
    size, dtype = world.size, 8
    sizes = [(5, 0, 20_001)[rank] for rank in range(size)]
    at = [sum(sizes[:rank]) + 3 * rank for rank in range(size)]
    end = at[-1] + sizes[-1]
    room = np.full(end, 7, np.uint16)
    sources = [world.put(rank, values(dtype, sizes[rank], rank)) for rank in range(size)]
    targets = [world.put(rank, room) for rank in range(size)]
    world.call(
        "HcclAllGatherV",
        sources.__getitem__,
        sizes.__getitem__,
        targets.__getitem__,
        sizes,
        np.array(at),
        dtype,
    )
    want = room.copy()
    for rank in range(size):
        want[at[rank] : at[rank] + sizes[rank]] = values(dtype, sizes[rank], rank)
    for rank in range(size):
        assert same(world.get(rank, targets[rank], want), want), rank

    matrix = [[(3 * row + column) % 4 * 111 for column in range(size)] for row in range(size)]
    sources = [values(dtype, sum(row), rank) for rank, row in enumerate(matrix)]
    sent = [world.put(rank, source) for rank, source in enumerate(sources)]
    wanted = [
        np.concatenate([sources[row][sum(matrix[row][:rank]) :][: matrix[row][rank]] for row in range(size)])
        for rank in range(size)
    ]
    for rows in (matrix, np.array(matrix, np.uint64), [each for row in matrix for each in row]):
        got = [world.put(rank, np.zeros_like(each)) for rank, each in enumerate(wanted)]
        world.call("HcclAlltoAllVC", sent.__getitem__, [rows][0], dtype, got.__getitem__, dtype)
        for rank in range(size):
            assert same(world.get(rank, got[rank], wanted[rank]), wanted[rank]), rank
    columns = [[row[rank] for row in matrix] for rank in range(size)]
    # Each part is received in the opposite order, with a gap after it.
    back = [[sum(column[k + 1 :]) + 2 * (size - 1 - k) for k in range(size)] for column in columns]
    got = [world.put(rank, np.zeros(each.size + 2 * size, np.uint16)) for rank, each in enumerate(wanted)]
    world.call(
        *("HcclAlltoAllV", sent.__getitem__, matrix.__getitem__),
        lambda rank: [sum(matrix[rank][:k]) for k in range(size)],
        *(dtype, got.__getitem__, columns.__getitem__, back.__getitem__, dtype),
    )
    for rank in range(size):
        content = world.get(rank, got[rank], np.zeros(wanted[rank].size + 2 * size, np.uint16))
        for k in range(size):
            start = sum(matrix[k][:rank])
            assert same(content[back[rank][k] :][: matrix[k][rank]], sources[k][start:][: matrix[k][rank]])


def items(hcomm: ModuleType, *rows: tuple[int, int, int, int, int]) -> list[Any]:
    return [hcomm.HcclSendRecvItem(*row) for row in rows]


def test_hcomm_send_recv_alone_batched_and_grouped_move_bytes(world: World, hcomm: ModuleType) -> None:
    """One way, then in a ring, longer than a lane; the streams are synchronized after all ranks have called."""
    size, count = world.size, 300_001
    contents = [values(4, count, rank) for rank in range(size)]
    sources = [world.put(rank, each) for rank, each in enumerate(contents)]
    targets = [world.put(rank, np.zeros_like(each)) for rank, each in enumerate(contents)]
    ok(hcomm.HcclSend(sources[0], count, 4, 1, world.comms[0], world.streams[0]))
    ok(hcomm.HcclRecv(targets[1], count, 4, 0, world.comms[1], world.streams[1]))
    world.sync()
    assert same(world.get(1, targets[1], contents[0]), contents[0])
    for grouped in (False, True):
        for rank in range(size):
            after, before = (rank + 1) % size, (rank - 1) % size
            comm, stream = world.comms[rank], world.streams[rank]
            if grouped:
                ok(hcomm.HcclGroupStart())
                for _ in range(2):
                    ok(hcomm.HcclSend(sources[rank], count, 4, after, comm, stream))
                    ok(hcomm.HcclRecv(targets[rank], count, 4, before, comm, stream))
                ok(hcomm.HcclGroupEnd())
            else:
                row = (RECV, targets[rank], count, 4, before)
                wanted = items(hcomm, (SEND, sources[rank], count, 4, after), row)
                ok(hcomm.HcclBatchSendRecv(wanted, 2, comm, stream))
        world.sync()
        for rank in range(size):
            want = contents[(rank - 1) % size]
            assert same(world.get(rank, targets[rank], want), want), (grouped, rank)
    # A message of a rank to itself is a copy.
    wanted = items(hcomm, (SEND, sources[0], count, 4, 0), (RECV, targets[0], count, 4, 0))
    ok(hcomm.HcclBatchSendRecv(wanted, 2, world.comms[0], world.streams[0]))
    world.sync()
    assert same(world.get(0, targets[0], contents[0]), contents[0])
    assert code(hcomm.HcclBatchSendRecv(wanted, 1, world.comms[0], world.streams[0])) == 1
    assert "sends itself" in explain()


def test_hcomm_collectives_run_in_stream_order(world: World, hcomm: ModuleType) -> None:
    """Collectives run after earlier work of their stream and before later work."""
    size, count = world.size, 1000
    for rank in range(size):
        source, target = (
            world.put(rank, np.zeros(count, np.int32)),
            world.put(rank, np.zeros(count, np.int32)),
        )
        stream, comm = world.streams[rank], world.comms[rank]
        world.on(rank, acl.rt.memset_async, source, 4 * count, rank + 1, 4 * count, stream)
        ok(hcomm.HcclAllReduce(source, target, count, 2, 0, comm, stream))
        world.on(rank, acl.rt.memset_async, source, 4 * count, 0, 4 * count, stream)
        ok(hcomm.HcclBarrier(comm, stream))
        ok(hcomm.HcclAllReduce(target, target, count, 2, 2, comm, stream))
    world.sync()
    want = np.full(count, sum(0x01010101 * (rank + 1) for rank in range(size)), np.int32)
    rank, target = world._memory[-1]
    assert same(world.get(rank, target, want), want)


def test_hcomm_group_calls_run_at_outermost_group_end(world: World, hcomm: ModuleType) -> None:
    count = 10
    sources = [world.put(rank, values(4, count, rank)) for rank in range(world.size)]
    want = folded([values(4, count, rank) for rank in range(world.size)], 4, 0)
    zero = np.zeros(count, np.float32)
    there = [world.put(rank, zero) for rank in range(world.size)]
    ok(hcomm.HcclGroupStart())
    ok(hcomm.HcclGroupStart())
    for rank in range(world.size):
        ok(
            hcomm.HcclAllReduce(
                sources[rank], there[rank], count, 4, 0, world.comms[rank], world.streams[rank]
            )
        )
    assert code(hcomm.HcclAllReduce(0, there[0], count, 4, 0, world.comms[0], world.streams[0])) == 2
    assert code(hcomm.HcclSend(sources[0], count, 4, 1, world.comms[0], world.streams[0])) == 1
    assert "begun with collectives" in explain()
    ok(hcomm.HcclGroupEnd())
    world.sync()
    assert same(world.get(0, there[0], zero), zero)  # nothing was issued so far
    ok(hcomm.HcclGroupEnd())
    world.sync()
    for rank in range(world.size):
        assert same(world.get(rank, there[rank], want), want)
    assert code(hcomm.HcclGroupEnd()) == 5
    ok(hcomm.HcclGroupStart())
    row = items(hcomm, (SEND, sources[0], count, 4, 1))
    assert code(hcomm.HcclBatchSendRecv(row, 1, world.comms[0], world.streams[0])) == 5
    ok(hcomm.HcclSend(sources[0], count, 4, 0, world.comms[0], world.streams[0]))
    assert code(hcomm.HcclGroupEnd()) == 1  # a group that sends to its own rank must also receive
    ok(hcomm.HcclGroupStart())
    ok(hcomm.HcclGroupEnd())


def test_hcomm_group_makes_and_destroys_communicators_of_all_ranks(
    hcomm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", "20")
    ok(acl.rt.set_device(0))
    info = ok(hcomm.HcclGetRootInfo())
    ok(hcomm.HcclGroupStart())
    comms = []
    for rank in range(2):
        ok(acl.rt.set_device(rank))
        comms.append(ok(hcomm.HcclCommInitRootInfo(2, info, rank)))
    assert code(hcomm.HcclGetRankId(comms[1])) == 6
    assert "that HcclGroupEnd makes" in explain()
    ok(hcomm.HcclGroupEnd())
    assert [ok(hcomm.HcclGetRankId(comm)) for comm in comms] == [0, 1]
    ok(hcomm.HcclGroupStart())
    for comm in comms:
        ok(hcomm.HcclCommDestroy(comm))
    assert ok(hcomm.HcclGetRankSize(comms[0])) == 2
    ok(hcomm.HcclGroupEnd())
    assert code(hcomm.HcclGetRankSize(comms[0])) == 6
    # When one communicator of a group fails, the group makes none.
    monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", "1")
    whole, half = ok(hcomm.HcclGetRootInfo()), ok(hcomm.HcclGetRootInfo())
    ok(hcomm.HcclGroupStart())
    lost = [ok(hcomm.HcclCommInitRootInfo(2, half, 0)), ok(hcomm.HcclCommInitRootInfo(1, whole, 0))]
    assert code(hcomm.HcclGroupEnd()) == 9
    assert "call 1 of 2 of the group, HcclCommInitRootInfo" in explain()
    assert [code(hcomm.HcclGetRankId(comm)) for comm in lost] == [6, 6]


def test_hcomm_comm_destroy_with_queued_recv_returns_20(world: World, hcomm: ModuleType) -> None:
    buffer = world.put(0, np.zeros(100, np.float32))
    for rank in range(1, world.size):
        ok(hcomm.HcclBarrier(world.comms[rank], world.streams[rank]))
    ok(hcomm.HcclBarrier(world.comms[0], world.streams[0]))
    world.sync()
    ok(hcomm.HcclRecv(buffer, 100, 4, 1, world.comms[0], world.streams[0]))
    assert code(hcomm.HcclCommDestroy(world.comms[0])) == 20
    there = world.put(1, np.zeros(100, np.float32))
    ok(hcomm.HcclSend(there, 100, 4, 0, world.comms[1], world.streams[1]))
    world.sync()
    ok(hcomm.HcclCommSuspend(world.comms[0]))
    assert code(hcomm.HcclBarrier(world.comms[0], world.streams[0])) == 22
    ok(hcomm.HcclCommResume(world.comms[0]))


def test_hcomm_all_reduce_unequal_sizes_returns_1_and_fails_stream_of_other_rank(hcomm: ModuleType) -> None:
    """The second caller gets the code, and the stream of the first caller fails."""
    world = World(hcomm, 2)
    buffers = [world.put(rank, np.zeros(100, np.float32)) for rank in range(2)]
    ok(hcomm.HcclAllReduce(buffers[0], buffers[0], 100, 4, 0, world.comms[0], world.streams[0]))
    explain()
    assert code(hcomm.HcclAllReduce(buffers[1], buffers[1], 99, 4, 0, world.comms[1], world.streams[1])) == 1
    text = explain()
    assert "all_reduce of 400 bytes" in text and "all_reduce of 396 bytes" in text
    assert world.ended(0) == 507057
    assert code(hcomm.HcclBarrier(world.comms[1], world.streams[1])) == 6
    world.close()


@pytest.mark.parametrize("how", ["collective", "message", "batch"])
def test_hcomm_collectives_absent_rank_fail_stream_with_time_out(
    hcomm: ModuleType, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv("HCCL_EXEC_TIMEOUT", "1")
    world = World(hcomm, 2)
    buffer = world.put(0, np.zeros(100, np.float32))
    comm_and_stream = world.comms[0], world.streams[0]
    if how == "collective":
        ok(hcomm.HcclAllReduce(buffer, buffer, 100, 4, 0, *comm_and_stream))
    elif how == "message":
        ok(hcomm.HcclRecv(buffer, 100, 4, 1, *comm_and_stream))
    else:
        ok(hcomm.HcclBatchSendRecv(items(hcomm, (RECV, buffer, 100, 4, 1)), 1, *comm_and_stream))
    acl.get_recent_err_msg()
    assert world.ended(0) == 507046
    text = acl.get_recent_err_msg() or ""
    assert "EI0002" in text and "rank 0" in text, text
    world.close()


def test_hcomm_all_reduce_on_hccl_buffer_from_two_threads_sums(hcomm: ModuleType) -> None:
    """Each thread calls and waits for its own rank; the memory is the HcclBuffer."""
    ok(acl.rt.set_device(0))
    comms = ok(hcomm.HcclCommInitAll(2, [0, 1]))

    def body(rank: int) -> bytes:
        ok(acl.rt.set_device(rank))
        stream = ok(acl.rt.create_stream())
        address, _ = ok(hcomm.HcclGetHcclBuffer(comms[rank]))
        mine = np.arange(5000, dtype=np.int64) + rank
        ok(acl.rt.memcpy(address + 64, mine.nbytes, mine.ctypes.data, mine.nbytes, 1))
        for _ in range(3):
            ok(hcomm.HcclAllReduce(address + 64, address + 64, 5000, 5, 0, comms[rank], stream))
            ok(acl.rt.synchronize_stream(stream))
        content = np.zeros_like(mine)
        ok(acl.rt.memcpy(content.ctypes.data, mine.nbytes, address + 64, mine.nbytes, 2))
        ok(hcomm.HcclCommDestroy(comms[rank]))
        return content.tobytes()

    want = (4 * (2 * np.arange(5000, dtype=np.int64) + 1)).tobytes()
    assert in_threads([lambda: body(0), lambda: body(1)]) == [want, want]


@pytest.mark.parametrize("is_right", [True, False])
def test_hcomm_all_reduce_is_judged_by_the_collective_check(world: World, is_right: bool) -> None:
    checks = [CollectiveCheck("all_reduce", rank, world.size, 64) for rank in range(world.size)]
    for ends in zip(*checks, strict=True):
        sources = [world.put(rank, src) for rank, (src, _) in enumerate(ends)]
        targets = [world.put(rank, dst) for rank, (_, dst) in enumerate(ends)]
        world.call("HcclAllReduce", sources.__getitem__, targets.__getitem__, 64, 4, 0)
        for rank, (src, dst) in enumerate(ends):
            dst[:] = world.get(rank, targets[rank], dst)
            if rank == 1 and not is_right:
                dst[:32] += src[:32]
    reports = [each.report() for each in checks]
    if is_right:
        assert reports == [""] * world.size
    else:
        assert reports[0] == "" and "(elements 0 to 31): rank 1 twice" in reports[1]
