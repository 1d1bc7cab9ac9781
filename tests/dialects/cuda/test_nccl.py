"""NCCL in one process, whose thread drives all ranks: collectives, messages, groups, reductions, refusals."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dialects.cuda import nccl
from dialects.cuda.driver import INT, WORD, Driver
from dialects.cuda.nccl import Config, Nccl, Rank, Ranks, code_of
from helpers.promises import Node
from peerlane import dialects
from peerlane.support.host_reductions import combined as combined_on_host
from peerlane.testing.collective_check import CollectiveCheck

pytestmark = pytest.mark.schedules_in_turn

COUNT = 1000
TYPES = {0: "i1", 1: "u1", 2: "i4", 3: "u4", 4: "i8", 5: "u8", 6: "f2", 7: "f4", 8: "f8"}


ranks = pytest.fixture(nccl.ranks_of)


def numbers(rank: int, dtype: str, count: int = COUNT) -> Any:
    """Return small numbers, of which any type can hold the combination of four ranks."""
    return np.random.default_rng(rank).integers(1, 4, count).astype(dtype)


def combined(op: int, parts: list[Any]) -> Any:
    function = {nccl.SUM: np.add, nccl.PROD: np.multiply, nccl.MAX: np.maximum, nccl.MIN: np.minimum}[op]
    result = parts[0]
    for each in parts[1:]:
        result = function(result, each)
    return result


def test_version_and_texts_of_results(ranks: Callable[[int], Ranks]) -> None:
    library = Nccl()
    assert library.ncclGetVersion(INT) == 23203
    assert library.library.ncclGetErrorString(6) == b"remote error"
    assert library.library.ncclGetErrorString(99) == b"unknown result code"


def test_communicator_reports_its_size_its_device_and_its_rank(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(3)
    for each in world:
        assert world.nccl.ncclCommCount(each.comm, INT) == 3
        assert world.nccl.ncclCommCuDevice(each.comm, INT) == each.number
        assert world.nccl.ncclCommUserRank(each.comm, INT) == each.number
        assert world.nccl.ncclCommGetAsyncError(each.comm, INT) == 0


@pytest.mark.parametrize("datatype", TYPES)
@pytest.mark.parametrize("op", [nccl.SUM, nccl.PROD, nccl.MAX, nccl.MIN])
def test_all_reduce_combines_each_type(ranks: Callable[[int], Ranks], datatype: int, op: int) -> None:
    world = ranks(3)
    parts = [numbers(each.number, TYPES[datatype]) for each in world]
    sources = [each.buffer(part) for each, part in zip(world, parts, strict=True)]
    targets = [each.buffer(parts[0]) for each in world]
    world.together(
        lambda each: world.nccl.ncclAllReduce(
            sources[each.number], targets[each.number], COUNT, datatype, op, each.comm, each.stream
        )
    )
    for each in world:
        assert np.array_equal(each.read(targets[each.number], parts[0]), combined(op, parts))


def test_bfloat16_is_combined(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(2)
    parts = [numbers(each.number, "f4") for each in world]
    memory = [
        each.buffer((part.view("u4") >> 16).astype("u2")) for each, part in zip(world, parts, strict=True)
    ]
    world.together(
        lambda each: world.nccl.ncclAllReduce(
            *(
                memory[each.number],
                memory[each.number],
                COUNT,
                nccl.BFLOAT16,
                nccl.SUM,
                each.comm,
                each.stream,
            )
        )
    )
    expected = (sum(parts).view("u4") >> 16).astype("u2")
    for each in world:
        assert np.array_equal(each.read(memory[each.number], expected), expected)


@pytest.mark.parametrize("datatype", [0, 3, 4, 6, 7, 8])
def test_average_divides_integers_toward_zero_and_scales_others(
    ranks: Callable[[int], Ranks], datatype: int
) -> None:
    world, dtype = ranks(2), TYPES[datatype]
    parts = [numbers(each.number, dtype) for each in world]
    if dtype.startswith("i"):
        parts[1] = -2 * parts[1]
    memory = [each.buffer(part) for each, part in zip(world, parts, strict=True)]
    world.together(
        lambda each: world.nccl.ncclAllReduce(
            memory[each.number], memory[each.number], COUNT, datatype, nccl.AVG, each.comm, each.stream
        )
    )
    expected = np.trunc(sum(parts) / 2) if dtype[0] in "iu" else parts[0] / 2 + parts[1] / 2
    for each in world:
        assert np.array_equal(each.read(memory[each.number], parts[0]), expected.astype(dtype))


def test_created_operations_multiply_by_scalars_of_host_and_device(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(2)
    count = 300_000  # more than is multiplied at once
    parts = [numbers(each.number, "f4", count) for each in world]
    memory = [each.buffer(part) for each, part in zip(world, parts, strict=True)]
    scalar = np.float32(3)
    half = world.all[1].buffer(np.float32([0.5]))
    created = [
        world.nccl.ncclRedOpCreatePreMulSum(INT, _address(scalar), 7, 1, world.all[0].comm),
        world.nccl.ncclRedOpCreatePreMulSum(INT, half, 7, 0, world.all[1].comm),
    ]
    world.together(
        lambda each: world.nccl.ncclAllReduce(
            memory[each.number], memory[each.number], count, 7, created[each.number], each.comm, each.stream
        )
    )
    for each in world:
        assert np.array_equal(each.read(memory[each.number], parts[0]), 3 * parts[0] + parts[1] / 2)
        world.nccl.ncclRedOpDestroy(created[each.number], each.comm)
        assert code_of(world.nccl.ncclRedOpDestroy, created[each.number], each.comm) == nccl.INVALID_ARGUMENT


_kept: list[Any] = []


def _address(scalar: Any) -> int:
    _kept.append(np.array(scalar))
    return int(_kept[-1].ctypes.data)


def test_reduce_and_broadcast_have_a_root(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(3)
    parts = [numbers(each.number, "i4") for each in world]
    memory = [each.buffer(part) for each, part in zip(world, parts, strict=True)]
    target = world.all[1].buffer(parts[0])
    world.together(
        lambda each: world.nccl.ncclReduce(
            *(
                memory[each.number],
                target if each.number == 1 else 0,
                COUNT,
                2,
                nccl.SUM,
                1,
                each.comm,
                each.stream,
            )
        )
    )
    assert np.array_equal(world.all[1].read(target, parts[0]), sum(parts))
    others = [each.buffer(parts[0] * 0) for each in world]
    world.together(
        lambda each: world.nccl.ncclBroadcast(
            memory[each.number] if each.number == 2 else 0,
            others[each.number],
            COUNT,
            2,
            2,
            each.comm,
            each.stream,
        )
    )
    world.together(
        lambda each: world.nccl.ncclBcast(memory[each.number], COUNT, 2, 0, each.comm, each.stream)
    )
    for each in world:
        assert np.array_equal(each.read(others[each.number], parts[0]), parts[2])
        assert np.array_equal(each.read(memory[each.number], parts[0]), parts[0])


@pytest.mark.parametrize("in_place", [False, True])
def test_gathers_and_scatters_move_parts(ranks: Callable[[int], Ranks], in_place: bool) -> None:
    world = ranks(3)
    size, nbytes = len(world), COUNT * 4
    parts = [numbers(each.number, "u4") for each in world]
    whole = np.concatenate(parts)
    empty = np.zeros_like(whole)
    gathered, collected, scattered = [], [], []
    for each in world:
        own = slice(each.number * COUNT, (each.number + 1) * COUNT)
        gathered.append(
            each.buffer(
                np.where(np.isin(np.arange(len(whole)), np.arange(own.start, own.stop)), whole, 0).astype(
                    "u4"
                )
            )
        )
        collected.append(each.buffer(empty))
        scattered.append(each.buffer(whole if each.number == 1 else empty))
    sources = [
        gathered[each.number] + each.number * nbytes if in_place else each.buffer(parts[each.number])
        for each in world
    ]
    library = world.nccl
    world.together(
        lambda each: library.ncclAllGather(
            sources[each.number], gathered[each.number], COUNT, 3, each.comm, each.stream
        )
    )
    mine = [gathered[1] + nbytes if in_place and each.number == 1 else sources[each.number] for each in world]
    root = [gathered[1] if in_place else collected[1] if each.number == 1 else 0 for each in world]
    world.together(
        lambda each: library.ncclGather(
            mine[each.number], root[each.number], COUNT, 3, 1, each.comm, each.stream
        )
    )
    targets = [
        scattered[1] + nbytes if in_place and each.number == 1 else each.buffer(parts[0]) for each in world
    ]
    world.together(
        lambda each: library.ncclScatter(
            scattered[1] if each.number == 1 else 0, targets[each.number], COUNT, 3, 1, each.comm, each.stream
        )
    )
    for each in world:
        assert np.array_equal(each.read(gathered[each.number], whole), whole)
        assert np.array_equal(each.read(targets[each.number], parts[0]), parts[each.number])
    assert np.array_equal(world.all[1].read(root[1], whole), whole)
    assert size == 3


@pytest.mark.parametrize("in_place", [False, True])
def test_reduce_scatter_gives_each_rank_its_part(ranks: Callable[[int], Ranks], in_place: bool) -> None:
    world = ranks(2)
    wholes = [numbers(each.number, "f8", 2 * COUNT) for each in world]
    memory = [each.buffer(whole) for each, whole in zip(world, wholes, strict=True)]
    targets = [
        memory[each.number] + each.number * COUNT * 8 if in_place else each.buffer(wholes[0][:COUNT])
        for each in world
    ]
    world.together(
        lambda each: world.nccl.ncclReduceScatter(
            memory[each.number], targets[each.number], COUNT, 8, nccl.MAX, each.comm, each.stream
        )
    )
    for each in world:
        part = np.maximum(*wholes)[each.number * COUNT : (each.number + 1) * COUNT]
        assert np.array_equal(each.read(targets[each.number], part), part)


def test_all_to_all_exchanges_parts_also_of_8_bit_floats(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(3)
    wholes = [numbers(each.number, "u1", 3 * COUNT) for each in world]
    sources = [each.buffer(whole) for each, whole in zip(world, wholes, strict=True)]
    targets = [each.buffer(0 * wholes[0]) for each in world]
    world.together(
        lambda each: world.nccl.ncclAlltoAll(
            sources[each.number], targets[each.number], COUNT, nccl.FLOAT8, each.comm, each.stream
        )
    )
    for each in world:
        expected = np.concatenate([whole.reshape(3, COUNT)[each.number] for whole in wholes])
        assert np.array_equal(each.read(targets[each.number], expected), expected)
    first = world.all[0]
    assert (
        code_of(world.nccl.ncclAlltoAll, sources[0], sources[0], COUNT, 1, first.comm, first.stream)
        == nccl.INVALID_ARGUMENT
    )


@pytest.mark.parametrize(
    ("datatype", "dtype", "half"), [(10, "float8_e4m3fn", 0x30), (11, "float8_e5m2", 0x38)]
)
def test_elements_of_8_bit_floats_are_combined(
    ranks: Callable[[int], Ranks], datatype: int, dtype: str, half: int
) -> None:
    world = ranks(2)
    parts = [np.random.default_rng(each.number).integers(0, 256, COUNT, np.uint8) for each in world]
    halved = [combined_on_host(part, np.full(COUNT, half, np.uint8), dtype, "prod") for part in parts]
    created = [
        world.nccl.ncclRedOpCreatePreMulSum(INT, _address(np.uint8(half)), datatype, 1, each.comm)
        for each in world
    ]
    expected = {
        nccl.SUM: combined_on_host(*parts, dtype, "sum"),
        nccl.PROD: combined_on_host(*parts, dtype, "prod"),
        nccl.MAX: combined_on_host(*parts, dtype, "max"),
        nccl.MIN: combined_on_host(*parts, dtype, "min"),
        nccl.AVG: combined_on_host(*halved, dtype, "sum"),
        created[0]: combined_on_host(*halved, dtype, "sum"),
    }
    sources = [each.buffer(part) for each, part in zip(world, parts, strict=True)]
    targets = [each.buffer(part) for each, part in zip(world, parts, strict=True)]
    for op, result in expected.items():
        for _ in range(3):  # native code queues the last ones
            world.together(
                lambda each, op=op: world.nccl.ncclAllReduce(
                    *(sources[each.number], targets[each.number], COUNT, datatype),
                    *(created[each.number] if op == created[0] else op, each.comm, each.stream),
                )
            )
        for each in world:
            assert np.array_equal(each.read(targets[each.number], result), result), op


def test_sum_of_8_bit_floats_is_at_most_their_largest_number(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(2)
    values = np.uint8([0x7E, 0xFE, 0x38, 0x7F, 0x01])  # 448, -448, 1, no number, 2^-9
    memory = [each.buffer(values) for each in world]
    world.together(
        lambda each: world.nccl.ncclAllReduce(
            memory[each.number], memory[each.number], len(values), nccl.FLOAT8, 0, each.comm, each.stream
        )
    )
    for each in world:
        assert each.read(memory[each.number], values).tolist() == [0x7E, 0xFE, 0x40, 0x7F, 0x02]


def test_8_bit_floats_of_an_older_chip_are_refused(ranks: Callable[..., Ranks]) -> None:
    world = ranks(2, "profile=rtx4090-2")
    first = world.all[0]
    memory = first.buffer(np.zeros(COUNT, "u1"))
    reduce = (world.nccl.ncclAllReduce, memory, memory, COUNT, nccl.FLOAT8, 0, first.comm, first.stream)
    assert code_of(*reduce) == nccl.INVALID_ARGUMENT
    assert "compute capability 8.9" in world.nccl.last_error()


def test_messages_of_a_group_go_on_together(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(3)
    size, count = len(world), 1 << 20  # long messages wait for their receiver
    parts = [[numbers(10 * each.number + peer, "u1", count) for peer in range(size)] for each in world]
    sources = [[each.buffer(part) for part in parts[each.number]] for each in world]
    targets = [[each.buffer(0 * parts[0][0]) for _ in range(size)] for each in world]

    def exchange(each: Rank) -> None:
        for peer in range(size):
            world.nccl.ncclSend(sources[each.number][peer], count, 1, peer, each.comm, each.stream)
        for peer in reversed(range(size)):
            world.nccl.ncclRecv(targets[each.number][peer], count, 1, peer, each.comm, each.stream)

    world.together(exchange)
    for each in world:
        for peer in range(size):
            assert np.array_equal(
                each.read(targets[each.number][peer], parts[0][0]), parts[peer][each.number]
            )


def test_message_to_itself_has_both_ends_in_one_group(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(2)
    first, data = world.all[0], numbers(1, "f4")
    source, target = first.buffer(data), first.buffer(0 * data)
    assert code_of(world.nccl.ncclSend, source, COUNT, 7, 0, first.comm, first.stream) == nccl.INVALID_USAGE
    with world.nccl.group():
        world.nccl.ncclRecv(target, COUNT, 7, 0, first.comm, first.stream)
        world.nccl.ncclSend(source, COUNT, 7, 0, first.comm, first.stream)
    assert np.array_equal(first.read(target, data), data)


def test_group_of_collectives_and_messages_on_two_streams_orders_both(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(2)
    data = [numbers(each.number, "i4") for each in world]
    sums = [each.buffer(part) for each, part in zip(world, data, strict=True)]
    sent = [each.buffer(part) for each, part in zip(world, data, strict=True)]
    received = [each.buffer(0 * data[0]) for each in world]

    def call(each: Rank) -> None:
        each.enter()
        other = each.driver.cuStreamCreate(WORD, 1)
        peer = 1 - each.number
        world.nccl.ncclSend(sent[each.number], COUNT, 2, peer, each.comm, other)
        world.nccl.ncclAllReduce(sums[each.number], sums[each.number], COUNT, 2, 0, each.comm, each.stream)
        world.nccl.ncclRecv(received[each.number], COUNT, 2, peer, each.comm, each.stream)

    world.nccl.ncclGroupStart()
    world.together(call)  # groups nest
    assert np.array_equal(world.all[0].read(sums[0], data[0]), data[0])
    world.nccl.ncclGroupEnd()
    for each in world:
        assert np.array_equal(each.read(sums[each.number], data[0]), sum(data))
        assert np.array_equal(each.read(received[each.number], data[0]), data[1 - each.number])


def test_null_stream_is_that_of_the_communicators_device(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(2)
    data = [numbers(each.number, "i4") for each in world]
    memory = [each.buffer(part) for each, part in zip(world, data, strict=True)]
    world.all[0].enter()
    for _ in range(2):
        world.together(
            lambda each: world.nccl.ncclAllReduce(
                memory[each.number], memory[each.number], COUNT, 2, 0, each.comm, 0
            )
        )
    for each in world:
        each.enter()
        each.driver.cuStreamSynchronize(0)
        assert np.array_equal(each.read(memory[each.number], data[0]), 2 * sum(data))


def test_work_of_the_stream_runs_before_a_collective_and_behind_it(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(2)
    memory = [each.buffer(np.zeros(COUNT, "u1")) for each in world]
    for value in (1, 2, 3):
        for each in world:
            each.enter()
            each.driver.cuMemsetD8Async(memory[each.number], value, COUNT, each.stream)
        for _ in range(2):
            world.together(
                lambda each: world.nccl.ncclAllReduce(
                    memory[each.number], memory[each.number], COUNT, 1, 0, each.comm, each.stream
                )
            )
        for each in world:
            assert (each.read(memory[each.number], np.zeros(COUNT, "u1")) == 4 * value).all()


def test_wrong_arguments_have_no_effect(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(2)
    first, library = world.all[0], world.nccl
    memory = first.buffer(numbers(0, "f4"))
    elsewhere = world.all[1].buffer(numbers(0, "f4"))
    array = numbers(0, "f4")

    def refused(address: int, *others: int) -> str:
        count, datatype, op, comm, stream = others
        assert (
            code_of(library.ncclAllReduce, address, memory, count, datatype, op, comm, stream)
            == nccl.INVALID_ARGUMENT
        )
        return library.last_error()

    right = (COUNT, 7, 0, first.comm, first.stream)
    assert "sendbuff is NULL" in refused(0, *right)
    assert "of device 1" in refused(elsewhere, *right)
    assert "no device reaches" in refused(array.ctypes.data, *right)
    assert "beyond" in refused(memory, COUNT + 1, *right[1:])
    assert "the type is 12" in refused(memory, COUNT, 12, *right[2:])
    assert "5 is not an operation" in refused(memory, COUNT, 7, 5, *right[3:])
    assert "communicator is NULL" in refused(memory, COUNT, 7, 0, 0, first.stream)
    assert "stream" in refused(memory, COUNT, 7, 0, first.comm, 77)
    assert code_of(library.ncclBcast, memory, COUNT, 7, 2, *right[3:]) == nccl.INVALID_ARGUMENT
    assert code_of(library.ncclCommCount, first.comm, None) == nccl.INVALID_ARGUMENT
    assert code_of(library.ncclGroupEnd) == nccl.INVALID_USAGE
    assert code_of(library.ncclCommGrow, first.comm, 3, None, 2, None, None) == nccl.INVALID_USAGE
    assert "not part of that" in library.last_error()
    assert library.ncclCommGetAsyncError(first.comm, INT) == 0


def test_wrong_argument_in_a_group_leaves_its_other_calls(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(2)
    data = [numbers(each.number, "i4") for each in world]
    memory = [each.buffer(part) for each, part in zip(world, data, strict=True)]

    def call(each: Rank) -> None:
        arguments = COUNT, 2, nccl.SUM, each.comm, each.stream
        assert code_of(world.nccl.ncclAllReduce, 0, memory[0], *arguments) == nccl.INVALID_ARGUMENT
        world.nccl.ncclAllReduce(memory[each.number], memory[each.number], *arguments)

    world.together(call)
    for each in world:
        assert np.array_equal(each.read(memory[each.number], data[0]), sum(data))


def test_ranks_that_disagree_are_named_at_the_end_of_their_group(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(2)
    memory = [each.buffer(numbers(each.number, "i4")) for each in world]

    def call(each: Rank) -> None:
        count = COUNT - each.number
        world.nccl.ncclAllReduce(
            memory[each.number], memory[each.number], count, 2, 0, each.comm, each.stream
        )

    assert code_of(world.together, call) == nccl.INVALID_USAGE
    text = world.nccl.last_error()
    assert (
        "rank 0 calls all_reduce of 4,000 bytes" in text and "rank 1 calls all_reduce of 3,996 bytes" in text
    )
    assert world.nccl.ncclCommGetAsyncError(world.all[1].comm, INT) == nccl.INVALID_USAGE
    assert code_of(call, world.all[1]) == nccl.INVALID_USAGE


def test_one_device_for_two_ranks_is_refused(node: Node) -> None:
    node()
    dialects.begin_anew("cuda")
    driver, library = Driver(), Nccl()
    driver.cuInit(0)
    comms = (WORD * 2)()
    assert code_of(library.ncclCommInitAll, comms, 2, (INT * 2)(0, 0)) == nccl.INVALID_USAGE
    created, unique_id = (WORD * 2)(), library.unique_id()
    library.ncclGroupStart()
    for rank in range(2):
        library.ncclCommInitRank(ctypes.byref(created, 8 * rank), 2, unique_id, rank)
    assert code_of(library.ncclGroupEnd) == nccl.INVALID_USAGE
    assert "ranks 0 and 1 are both on device 0" in library.last_error()
    for each in created:
        library.ncclCommAbort(each)
    dialects.begin_anew("cuda")


def test_nonblocking_communicator_is_in_progress_until_its_ranks_have_met(
    ranks: Callable[[int], Ranks],
) -> None:
    world = ranks(2)
    library, unique_id = world.nccl, world.nccl.unique_id()
    config, created = Config(blocking=0), (WORD * 2)()
    for each in world:
        each.enter()
        code = code_of(
            library.ncclCommInitRankConfig,
            *(ctypes.byref(created, 8 * each.number), 2, unique_id, each.number, ctypes.byref(config)),
        )
        assert code == nccl.IN_PROGRESS
        if not each.number:
            assert library.ncclCommGetAsyncError(created[0], INT) == nccl.IN_PROGRESS
            assert code_of(library.ncclCommCount, created[0], INT) == nccl.INVALID_ARGUMENT
    deadline = time.monotonic() + 30
    while any(library.ncclCommGetAsyncError(each, INT) == nccl.IN_PROGRESS for each in created):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for each, comm in zip(world, created, strict=True):
        assert library.ncclCommUserRank(comm, INT) == each.number
        library.ncclCommFinalize(comm)
        assert code_of(library.ncclCommFinalize, comm) == nccl.INVALID_ARGUMENT
        library.ncclCommDestroy(comm)
        assert code_of(library.ncclCommDestroy, comm) == nccl.INVALID_ARGUMENT


def test_communicator_is_on_the_device_that_the_runtime_has(node: Node) -> None:
    node()
    dialects.begin_anew("cuda")
    library, runtime, comm = Nccl(), Driver("libcudart.so.13"), WORD()
    runtime.cudaSetDevice(1)
    library.ncclCommInitRank(ctypes.byref(comm), 1, library.unique_id(), 0)
    assert library.ncclCommCuDevice(comm.value, INT) == 1
    memory, stream = library.ncclMemAlloc(WORD, 4 * COUNT), runtime.cudaStreamCreate(WORD)
    data = numbers(0, "i4")
    runtime.cudaMemcpy(memory, data.ctypes.data, data.nbytes, 1)
    library.ncclAllReduce(memory, memory, COUNT, 2, nccl.AVG, comm.value, stream)
    runtime.cudaStreamSynchronize(stream)
    back = 0 * data
    runtime.cudaMemcpy(back.ctypes.data, memory, back.nbytes, 2)
    assert np.array_equal(back, data)
    library.ncclCommDestroy(comm.value)
    dialects.begin_anew("cuda")


def test_config_that_was_not_initialised_is_refused(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(2)
    config = Config(blocking=1, magic=0)
    comm = WORD()
    assert (
        code_of(
            world.nccl.ncclCommInitRankConfig,
            *(ctypes.byref(comm), 1, world.nccl.unique_id(), 0, ctypes.byref(config)),
        )
        == nccl.INVALID_ARGUMENT
    )
    assert "NCCL_CONFIG_INITIALIZER" in world.nccl.last_error()


def test_split_orders_ranks_by_key_and_leaves_out_those_without_color(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(4)
    created = (WORD * 4)()
    colors, keys = (0, -1, 0, 7), (5, 0, 2, 0)
    world.together(
        lambda each: world.nccl.ncclCommSplit(
            each.comm,
            *(INT(colors[each.number]), INT(keys[each.number])),
            ctypes.byref(created, 8 * each.number),
            None,
        )
    )
    assert created[1] == 0
    sizes = [world.nccl.ncclCommCount(created[each], INT) for each in (0, 2, 3)]
    numbers_of = [world.nccl.ncclCommUserRank(created[each], INT) for each in (0, 2, 3)]
    assert (sizes, numbers_of) == ([2, 2, 1], [1, 0, 0])
    data = [numbers(each.number, "i4") for each in world]
    memory = [each.buffer(part) for each, part in zip(world, data, strict=True)]

    def reduce(each: Rank) -> None:
        if created[each.number]:
            world.nccl.ncclAllReduce(
                memory[each.number], memory[each.number], COUNT, 2, 0, created[each.number], each.stream
            )

    world.together(reduce)
    for rank, expected in ((0, data[0] + data[2]), (2, data[0] + data[2]), (3, data[3])):
        assert np.array_equal(world.all[rank].read(memory[rank], data[0]), expected)
    for each in filter(None, created):
        world.nccl.ncclCommDestroy(each)


def test_shrink_leaves_a_rank_out(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(3)
    created, excluded = (WORD * 3)(), (INT * 1)(1)
    with world.nccl.group():
        for rank in (0, 2):
            world.nccl.ncclCommShrink(
                world.all[rank].comm, excluded, 1, ctypes.byref(created, 8 * rank), None, 0
            )
    assert [world.nccl.ncclCommUserRank(created[rank], INT) for rank in (0, 2)] == [0, 1]
    data = [numbers(each.number, "i4") for each in world]
    memory = [each.buffer(part) for each, part in zip(world, data, strict=True)]
    with world.nccl.group():
        for rank in (0, 2):
            world.nccl.ncclAllReduce(
                memory[rank], memory[rank], COUNT, 2, 0, created[rank], world.all[rank].stream
            )
    assert np.array_equal(world.all[2].read(memory[2], data[0]), data[0] + data[2])
    assert (
        code_of(world.nccl.ncclCommShrink, world.all[1].comm, excluded, 1, ctypes.byref(created, 8), None, 0)
        == nccl.INVALID_ARGUMENT
    )
    for rank in (0, 2):
        world.nccl.ncclCommDestroy(created[rank])


def test_registrations_of_buffers_are_of_their_communicator(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(2)
    first, second = world.all
    memory = first.buffer(numbers(0, "f4"))
    handle = world.nccl.ncclCommRegister(first.comm, memory, COUNT * 4, WORD)
    assert code_of(world.nccl.ncclCommDeregister, second.comm, handle) == nccl.INVALID_ARGUMENT
    world.nccl.ncclCommDeregister(first.comm, handle)
    assert code_of(world.nccl.ncclCommDeregister, first.comm, handle) == nccl.INVALID_ARGUMENT


def test_abort_ends_what_waits_for_another_rank(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(2)
    first, second = world.all
    memory = first.buffer(numbers(0, "i4"))
    world.nccl.ncclAllReduce(memory, memory, COUNT, 2, 0, first.comm, first.stream)
    assert code_of(world.driver.cuStreamQuery, first.stream) == 600
    world.driver.cuMemsetD8Async(memory, 7, COUNT * 4, first.stream)
    world.nccl.ncclCommAbort(first.comm)
    assert bytes(first.read(memory, np.zeros(COUNT, "i4"))) == bytes([7]) * COUNT * 4
    world.nccl.ncclCommAbort(second.comm)
    first.comm = second.comm = 0


def begin_reduce(world: Ranks) -> tuple[int, int]:
    """Queue a collective of rank 0, without which rank 1 finalizes; return an event behind it, and its stream."""
    first, driver = world.all[0], world.driver
    memory = first.buffer(numbers(0, "i4"))
    behind, event = driver.cuStreamCreate(WORD, 1), driver.cuEventCreate(WORD, 2)
    world.nccl.ncclAllReduce(memory, memory, COUNT, 2, 0, first.comm, first.stream)
    driver.cuEventRecord(event, first.stream)
    driver.cuStreamWaitEvent(behind, event, 0)
    driver.cuEventRecord(event, behind)
    return event, behind


def await_loss(world: Ranks) -> int:
    """Return the asynchronous error of rank 0."""
    until = time.monotonic() + 30
    while not (code := world.nccl.ncclCommGetAsyncError(world.all[0].comm, INT)) and time.monotonic() < until:
        time.sleep(0.01)
    return int(code)


def test_streams_go_on_without_an_error_once_a_lost_communicator_is_aborted(
    ranks: Callable[[int], Ranks],
) -> None:
    world = ranks(2)
    first, second = world.all
    driver, library = world.driver, world.nccl
    event, behind = begin_reduce(world)
    library.ncclCommFinalize(second.comm)
    assert await_loss(world) == nccl.REMOTE_ERROR
    assert code_of(driver.cuStreamQuery, first.stream) == 600
    assert code_of(driver.cuEventQuery, event) == 600
    library.ncclCommAbort(first.comm)
    driver.cuStreamSynchronize(behind)
    driver.cuEventSynchronize(event)
    driver.cuStreamQuery(first.stream)
    alone = (WORD * 1)()
    library.ncclCommInitAll(alone, 1, None)
    first.comm, values = alone[0], numbers(3, "i4")
    memory = first.buffer(values)
    library.ncclAllReduce(memory, memory, COUNT, 2, 0, first.comm, first.stream)
    assert np.array_equal(first.read(memory, values), values)


@pytest.mark.parametrize("wait", ["cuStreamSynchronize", "cuEventSynchronize"])
def test_stream_that_waits_for_a_lost_collective_reports_it(ranks: Callable[[int], Ranks], wait: str) -> None:
    world = ranks(2)
    event, behind = begin_reduce(world)
    world.nccl.ncclCommFinalize(world.all[1].comm)
    assert await_loss(world) == nccl.REMOTE_ERROR
    waited_for = event if wait == "cuEventSynchronize" else behind
    assert code_of(getattr(world.driver, wait), waited_for) == 719
    for stream in (world.all[0].stream, behind):
        code_of(world.driver.cuStreamSynchronize, stream)  # whose failures are now read


def test_each_thread_may_be_a_rank(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(3)
    library, unique_id = world.nccl, world.nccl.unique_id()
    results: list[Any] = [None] * len(world)

    def work(each: Rank) -> None:
        each.enter()
        comm = WORD()
        library.ncclCommInitRank(ctypes.byref(comm), len(world), unique_id, each.number)
        memory = each.buffer(np.full(COUNT, each.number + 1, "i4"))
        for _ in range(20):
            library.ncclAllReduce(memory, memory, COUNT, 2, nccl.MAX, comm.value, each.stream)
            each.driver.cuStreamSynchronize(each.stream)
        results[each.number] = each.read(memory, np.zeros(1, "i4"))[0]
        library.ncclCommDestroy(comm.value)

    threads = [threading.Thread(target=work, args=(each,)) for each in world]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [3, 3, 3]


def test_abort_of_another_thread_ends_a_synchronization(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(2)
    first = world.all[0]
    memory = first.buffer(numbers(0, "i4"))
    world.nccl.ncclAllReduce(memory, memory, COUNT, 2, 0, first.comm, first.stream)
    codes: list[int] = []

    def wait() -> None:
        first.enter()
        codes.append(code_of(world.driver.cuStreamSynchronize, first.stream))

    waiting = threading.Thread(target=wait)
    waiting.start()
    world.nccl.ncclCommAbort(first.comm)
    waiting.join(60)
    first.comm = 0
    assert codes == [0]


def test_all_gather_is_judged_by_the_collective_check(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(3)
    checks = [CollectiveCheck("all_gather", each.number, 3, 64) for each in world]
    for ends in zip(*checks, strict=True):
        sources = [each.buffer(src) for each, (src, _) in zip(world, ends, strict=True)]
        targets = [each.buffer(dst) for each, (_, dst) in zip(world, ends, strict=True)]
        world.together(
            lambda each, sources=sources, targets=targets: world.nccl.ncclAllGather(
                sources[each.number], targets[each.number], 64, nccl.FLOAT, each.comm, each.stream
            )
        )
        for each, (_, dst) in zip(world, ends, strict=True):
            dst[:] = each.read(targets[each.number], dst)
            each.driver.cuMemFree_v2(sources[each.number])
            each.driver.cuMemFree_v2(targets[each.number])
            if each.number == 2:
                dst[64:128] = dst[:64]
    assert [each.report() for each in checks[:2]] == ["", ""]
    assert checks[2].report().splitlines()[1:] == [
        "  chunk 1 (elements 64 to 127): rank 1 missing, rank 0, which has no part in it"
    ]


@pytest.mark.parametrize("calls", [0, 4], ids=["first call", "repeated"])
@pytest.mark.parametrize("gone", [0, 1])
def test_rank_of_the_same_thread_that_has_finalized_is_named(
    ranks: Callable[[int], Ranks], gone: int, calls: int
) -> None:
    world = ranks(2)
    memory = [each.buffer(numbers(each.number, "i4")) for each in world]

    def reduce(each: Rank) -> None:
        world.nccl.ncclAllReduce(
            memory[each.number], memory[each.number], COUNT, 2, 0, each.comm, each.stream
        )

    for _ in range(calls):
        world.together(reduce)
    world.nccl.ncclCommFinalize(world.all[gone].comm)
    other = world.all[1 - gone]
    code = code_of(reduce, other)
    assert code_of(world.driver.cuStreamSynchronize, other.stream) or code
    assert world.nccl.ncclCommGetAsyncError(other.comm, INT) == nccl.REMOTE_ERROR
    assert f"rank {gone} has finalized or ended the communicator" in world.nccl.last_error()
