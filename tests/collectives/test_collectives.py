"""Collectives against NumPy: every operation, type and algorithm, in place or not, with and without a stream."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import peerlane as pl
from helpers.launched import until
from helpers.promises import Node
from helpers.threads_as_ranks import run_ranks

pytestmark = pytest.mark.schedules_in_turn

SIZES = (1, 2, 3, 4, 8)
ALGORITHMS = ("one-shot", "two-shot", "ring")
TYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "bfloat16"),
)
OPERATIONS = ("sum", "prod", "max", "min")
WORKSPACE = 1 << 18  # small, so that a few 100 KiB go in many pieces
BYTES = (0, 8, 4104)
LONG = 600_000  # for up to three ranks; a piece is smaller the more ranks share the workspace

Run = Callable[[pl.Group, Any], None]


@pytest.fixture(autouse=True)
def entered_node(node: Node) -> Iterator[None]:
    node("devices=4")
    yield
    until(lambda: not [each for each in threading.enumerate() if each.name.startswith("peerlane-rendezvous")])


@lru_cache(16)
def values(dtype: str, nbytes: int, rank: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return a rank's elements as bytes; floats are such that the order of sums and products matters.

    Every rank draws those of all ranks; the array that they get is the same, and read-only.
    """
    filled = drawn(dtype, nbytes, rank, seed)
    filled.flags.writeable = False
    return filled


def drawn(dtype: str, nbytes: int, rank: int, seed: int) -> np.ndarray[Any, Any]:
    random = np.random.default_rng((seed, rank, nbytes))
    if dtype == "bfloat16":
        return (
            (random.normal(1, 1, nbytes // 2).astype(np.float32).view(np.uint32) >> 16)
            .astype(np.uint16)
            .view(np.uint8)
        )
    kind = np.dtype(dtype)
    count = nbytes // kind.itemsize
    if kind.kind == "f":
        return random.normal(1, 1, count).astype(kind).view(np.uint8)
    return random.integers(0, 256, nbytes, np.uint8)


def folded(parts: list[np.ndarray[Any, Any]], dtype: str, op: str) -> np.ndarray[Any, Any]:
    """Return all parts combined in the order of ranks."""
    result = parts[0].copy()
    for part in parts[1:]:
        if dtype == "bfloat16":
            pl.reduce(result, part, dtype=dtype, op=op)
            continue
        function = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[op]
        with np.errstate(all="ignore"):
            function(result.view(dtype), part.view(dtype), out=result.view(dtype))
    return result


@lru_cache(4)
def reduced(dtype: str, nbytes: int, size: int, op: str) -> np.ndarray[Any, Any]:
    """Return the bytes of all ranks combined; the array is the same for each rank."""
    filled = folded([values(dtype, nbytes, rank) for rank in range(size)], dtype, op)
    filled.flags.writeable = False
    return filled


def device_bytes(group: pl.Group, content: np.ndarray[Any, Any]) -> pl.Buffer:
    filled = group.device.allocate(max(1, content.size))[: content.size]
    filled.copy_from(content)
    return filled


def done(stream: pl.Stream | None) -> None:
    if stream is not None:
        stream.sync()


def each_variant(size: int, work: Callable[[pl.Group, pl.Stream | None], None], **options: Any) -> None:
    """Run the work of each rank twice: without a stream, and on one."""

    def both(group: pl.Group) -> None:
        work(group, None)
        with group.device.create_stream() as stream:
            work(group, stream)

    run_ranks(size, both, **{"workspace": WORKSPACE, "notifies": "strict", **options})


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("size", "kind"), [*((size, "binary") for size in SIZES), (3, "strict"), (3, "fifo"), (8, "fifo")]
)
def test_all_reduce_by_each_algorithm_gives_same_bits(size: int, algorithm: str, kind: str) -> None:
    def work(group: pl.Group, stream: pl.Stream | None) -> None:
        for nbytes in (*BYTES, LONG // max(1, size // 2)):
            own, want = values("float32", nbytes, group.rank), reduced("float32", nbytes, size, "sum")
            in_place, apart = (
                device_bytes(group, own),
                device_bytes(group, np.zeros(nbytes, np.uint8)),
            )
            host = np.zeros(nbytes, np.uint8)
            group.all_reduce(in_place, dtype="float32", algorithm=algorithm, stream=stream)
            group.all_reduce(apart, own, dtype="float32", algorithm=algorithm, stream=stream)
            group.all_reduce(host, own, dtype="float32", algorithm=algorithm, stream=stream)
            done(stream)
            for got in (in_place.view(), apart.view(), host):
                assert np.array_equal(got, want), (nbytes, algorithm)

    each_variant(size, work, notifies=kind)


def reduces_everything(size: int, nbytes: int, types: tuple[str, ...], **options: Any) -> None:
    def work(group: pl.Group, stream: pl.Stream | None) -> None:
        for dtype, op in itertools.product(types, OPERATIONS):
            own, want = values(dtype, nbytes, group.rank), reduced(dtype, nbytes, size, op)
            for algorithm in (None, *ALGORITHMS):
                got = np.zeros(nbytes, np.uint8)
                group.all_reduce(got, own, dtype=dtype, op=op, algorithm=algorithm, stream=stream)
                done(stream)
                assert np.array_equal(got, want), (dtype, op, algorithm)
            each = nbytes // size // 8 * 8
            whole = own[: each * size].copy()
            first = group.rank * each
            part = np.zeros(each, np.uint8)
            group.reduce_scatter(part, whole, dtype=dtype, op=op, stream=stream)
            group.reduce_scatter(whole[first : first + each], whole, dtype=dtype, op=op, stream=stream)
            for root in (0, size - 1):
                got, kept = np.zeros(nbytes, np.uint8), own.copy()
                is_root = group.rank == root
                group.reduce(got if is_root else None, own, root, dtype=dtype, op=op, stream=stream)
                group.reduce(kept, None, root, dtype=dtype, op=op, stream=stream)
                done(stream)
                assert np.array_equal(got, want if is_root else np.zeros(nbytes, np.uint8)), (dtype, op, root)
                assert np.array_equal(kept, want if is_root else own), (dtype, op, root)
            assert np.array_equal(part, want[first : first + each]), (dtype, op)
            assert np.array_equal(whole[first : first + each], want[first : first + each]), (dtype, op)

    each_variant(size, work, **options)


@pytest.mark.parametrize("size", SIZES)
def test_reductions_of_each_type_and_operation_equal_numpy(size: int) -> None:
    reduces_everything(size, 2000, TYPES)


def moves_everything(size: int, nbytes: int, **options: Any) -> None:
    def work(group: pl.Group, stream: pl.Stream | None) -> None:
        rank = group.rank
        parts = [values("uint8", nbytes, each) for each in range(size)]
        for root in {0, size - 1}:
            got = device_bytes(group, parts[rank])
            group.broadcast(got, root, stream=stream)
            part = np.zeros(nbytes, np.uint8)
            group.scatter(part, np.concatenate(parts) if rank == root else None, root, stream=stream)
            done(stream)
            assert np.array_equal(got.view(), parts[root])
            assert np.array_equal(part, parts[rank])
        gathered, in_place = np.zeros(nbytes * size, np.uint8), np.zeros((size, nbytes), np.uint8)
        in_place[rank] = parts[rank]
        group.all_gather(gathered, parts[rank], stream=stream)
        group.all_gather(in_place, stream=stream)
        mine = np.concatenate([values("uint8", nbytes, rank, to + 1) for to in range(size)])
        swapped = np.zeros(nbytes * size, np.uint8)
        group.all_to_all(swapped, mine, stream=stream)
        # Rank r sends (r + to) % 3 thirds of a part.
        sends = [nbytes // 3 * ((rank + to) % 3) for to in range(size)]
        source = values("uint8", sum(sends), rank, 99)
        uneven = np.zeros(sum(sends), np.uint8)
        group.all_to_all_v(uneven, source, receives=sends, sends=sends, stream=stream)
        done(stream)
        assert np.array_equal(gathered, np.concatenate(parts))
        assert np.array_equal(in_place.reshape(-1), np.concatenate(parts))
        want = [values("uint8", nbytes, origin, rank + 1) for origin in range(size)]
        assert np.array_equal(swapped, np.concatenate(want))
        want = []
        for origin in range(size):
            counts = [nbytes // 3 * ((origin + to) % 3) for to in range(size)]
            start = sum(counts[:rank])
            want.append(values("uint8", sum(counts), origin, 99)[start : start + counts[rank]])
        assert np.array_equal(uneven, np.concatenate(want))

    each_variant(size, work, **options)


@pytest.mark.parametrize("nbytes", [0, 1, 4097, 200_000])
@pytest.mark.parametrize("size", SIZES)
def test_moving_collectives_of_each_size_put_bytes_in_place(size: int, nbytes: int) -> None:
    moves_everything(size, nbytes)


@pytest.mark.parametrize("layout", ["side by side", "apart"])
@pytest.mark.parametrize("size", SIZES)
def test_collectives_with_uneven_parts_equal_numpy(size: int, layout: str) -> None:
    sizes = [(0, 8, 4104, 120_000)[(rank + 1) % 4] for rank in range(size)]
    gap = 0 if layout == "side by side" else 64
    at = [sum(sizes[:rank]) + gap * (rank + 1) for rank in range(size)] if gap else None
    whole = sum(sizes) + gap * size

    def work(group: pl.Group, stream: pl.Stream | None) -> None:
        mine = group.rank
        starts = at or [sum(sizes[:rank]) for rank in range(size)]
        want = np.full(whole, 0xAA, np.uint8)
        for rank, (start, nbytes) in enumerate(zip(starts, sizes, strict=True)):
            want[start : start + nbytes] = values("float32", nbytes, rank)
        got, in_place = np.full(whole, 0xAA, np.uint8), np.full(whole, 0xAA, np.uint8)
        in_place[starts[mine] :][: sizes[mine]] = values("float32", sizes[mine], mine)
        part = device_bytes(group, values("float32", sizes[mine], mine))
        group.all_gather_v(got, part, receives=sizes, receives_at=at, stream=stream)
        group.all_gather_v(in_place, receives=sizes, receives_at=at, stream=stream)
        sources = [values("float32", whole, rank, 7) for rank in range(size)]
        source, combined = sources[mine].copy(), np.zeros(sizes[mine], np.uint8)
        group.reduce_scatter_v(combined, source, sends=sizes, sends_at=at, dtype="float32", stream=stream)
        done(stream)
        assert np.array_equal(got, want) and np.array_equal(in_place, want)
        assert np.array_equal(source, sources[mine])
        shared = slice(starts[mine], starts[mine] + sizes[mine])
        result = folded([each[shared] for each in sources], "float32", "sum")
        assert np.array_equal(combined, result)
        group.reduce_scatter_v(
            source[shared], source, sends=sizes, sends_at=at, dtype="float32", stream=stream
        )
        done(stream)
        assert np.array_equal(source[shared], result)

    each_variant(size, work)


@pytest.mark.timeout(60)
def test_collectives_on_streams_from_one_thread_do_not_block_it() -> None:
    """With a stream no collective blocks the caller, not even the first one, which makes channels."""
    size, count = 3, 30_000
    groups: list[pl.Group] = []
    run_ranks(
        size, lambda group: groups.append(group), ends_together=False, closes=False, workspace=WORKSPACE
    )
    groups.sort(key=lambda group: group.rank)
    streams = [group.device.create_stream() for group in groups]
    ranks = list(zip(groups, streams, strict=True))
    for algorithm in ALGORITHMS:
        parts = [np.arange(count, dtype=np.float32) + rank for rank in range(size)]
        for group, stream in ranks:
            group.all_reduce(parts[group.rank], dtype="float32", algorithm=algorithm, stream=stream)
        for stream in streams:
            stream.sync(30)
        want = 3 * np.arange(count, dtype=np.float32) + 3
        assert all(np.array_equal(part, want) for part in parts), algorithm
    got = [np.zeros(500_000, np.uint8) for _ in groups]
    with groups[0].device.create_stream() as back, groups[2].device.create_stream() as forth:
        groups[0].send(np.full(500_000, 5, np.uint8), 2, stream=streams[0])
        groups[0].recv(got[0], 2, stream=back)
        groups[2].send(np.full(500_000, 6, np.uint8), 0, stream=streams[2])
        groups[2].recv(got[2], 0, stream=forth)
    assert got[0][-1] == 6 and got[2][-1] == 5
    for group, stream in ranks:
        group.barrier(stream=stream)
    for stream in streams:
        stream.close()
    for group in groups:
        group.close()


@pytest.mark.parametrize("size", [2, 3])
def test_send_and_recv_of_mixed_sizes_arrive_in_order(size: int) -> None:
    sizes = (1, 100_000, 0, 7, 300_001)

    def work(group: pl.Group, stream: pl.Stream | None) -> None:
        after, before = (group.rank + 1) % size, (group.rank - 1) % size
        got = [np.zeros(nbytes, np.uint8) for nbytes in sizes]
        with group.device.create_stream() as sending:
            for number, nbytes in enumerate(sizes):
                group.send(values("uint8", nbytes, group.rank, number), after, stream=sending)
                group.recv(got[number], before, stream=stream)
            sending.sync()
        done(stream)
        for number, nbytes in enumerate(sizes):
            assert np.array_equal(got[number], values("uint8", nbytes, before, number))
        group.barrier(stream=stream)
        done(stream)

    each_variant(size, work)


def test_send_and_recv_before_third_rank_comes_complete() -> None:
    is_over = threading.Event()

    def work(group: pl.Group) -> None:
        word = np.zeros(1)
        if group.rank == 0:
            group.send(np.full(1, 7.0), 1)
        elif group.rank == 1:
            group.recv(word, 0)
            assert word[0] == 7.0
            is_over.set()
        else:
            assert is_over.wait(30)

    run_ranks(3, work)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_collectives_on_many_streams_give_their_own_results(size: int) -> None:
    rounds = 20

    def work(group: pl.Group) -> None:
        streams = [group.device.create_stream(on_error=each) for each in ("stop", "stop", "continue")]
        returned, want = [], []
        for number in range(rounds):
            stream = (*streams, None)[number % 4]
            kind = (number + number // 4) % 4
            parts = [values("float32", 4000 * (number % 5), rank, number) for rank in range(size)]
            got = parts[group.rank].copy()
            returned.append(got)
            if kind == 0:
                group.broadcast(got, number % size, stream=stream)
                want.append(parts[number % size])
            elif kind == 1:
                group.barrier(stream=stream)
                want.append(parts[group.rank])
            else:
                group.all_reduce(got, dtype="float32", algorithm=ALGORITHMS[number % 3], stream=stream)
                want.append(folded(parts, "float32", "sum"))
        for stream in streams:
            stream.close()
        for number, (got, wanted) in enumerate(zip(returned, want, strict=True)):
            assert np.array_equal(got, wanted), number

    run_ranks(size, work, workspace=WORKSPACE, notifies="strict")


def test_barrier_holds_each_rank_until_last_comes() -> None:
    come: list[int] = []

    def work(group: pl.Group) -> None:
        for number in range(20):
            if number % group.size == group.rank:
                come.append(number)
            group.barrier()
            assert len(come) == number + 1
            group.barrier()

    run_ranks(4, work)


def test_collectives_of_one_rank_make_no_channels() -> None:
    def work(group: pl.Group) -> None:
        got = np.zeros(4, np.float32)
        group.all_reduce(got, np.arange(4, dtype=np.float32), dtype=np.float32)
        group.barrier()
        assert got.tolist() == [0, 1, 2, 3]
        assert group._order._work is None

    run_ranks(1, work)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.parametrize("nbytes", [0, 8, 4096, 1 << 20, 8 << 20, 64 << 20])
def test_collectives_of_each_group_and_byte_size_equal_numpy(size: int, nbytes: int) -> None:
    types = TYPES if nbytes <= 1 << 20 else ("float32", "bfloat16", "int64")
    options = {"workspace": 8 << 20, "seconds": 1800.0}
    reduces_everything(size, nbytes, types, **options)
    moves_everything(size, nbytes // size, **options)
