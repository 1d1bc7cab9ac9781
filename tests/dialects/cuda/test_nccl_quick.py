"""Calls of NCCL that native code queues without Python: bytes, order and errors are those of the others."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from dialects.cuda import nccl
from dialects.cuda.driver import INT, WORD
from dialects.cuda.nccl import Rank, Ranks, code_of
from peerlane.backends.virtual.node import schedule
from peerlane.dialects.cuda.nccl import groups

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

ranks = pytest.fixture(nccl.ranks_of)
COUNT, INT32 = 96, 2  # divisible by 2 and 3 ranks


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let native code answer at all."""
    monkeypatch.setenv(schedule.VARIABLE, "eager")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return the names of the operations that Python queues."""
    names: list[str] = []
    launch = groups._launch

    def counted(operations: Any, failure: Any) -> None:
        names.extend(each.name for each in operations)
        launch(operations, failure)

    monkeypatch.setattr(groups, "_launch", counted)
    yield names


def take_failures(world: Ranks) -> None:
    """Synchronize the streams of ranks, one of which has failed."""
    codes = [code_of(each.driver.cuStreamSynchronize, each.stream) for each in world]
    assert any(codes)


class Calls:
    """Calls of all kinds; ``world`` has memory ``source`` and ``target`` of COUNT elements for each rank."""

    def __init__(self, world: Ranks) -> None:
        self.world, self.size = world, len(world)
        self.source = [each.buffer(np.zeros(COUNT, "i4")) for each in world]
        self.target = [each.buffer(np.zeros(COUNT, "i4")) for each in world]

    def fill(self, step: int) -> list[Any]:
        """Write other numbers to the sources, and clear the targets; return the numbers."""
        values = [np.arange(COUNT, dtype="i4") + 1000 * each.number + 17 * step for each in self.world]
        for each, part in zip(self.world, values, strict=True):
            each.driver.cuMemcpyHtoD_v2(self.source[each.number], part.ctypes.data, part.nbytes)
            zeros = np.zeros(COUNT, "i4")
            each.driver.cuMemcpyHtoD_v2(self.target[each.number], zeros.ctypes.data, zeros.nbytes)
        return values

    def read(self) -> list[Any]:
        return [each.read(self.target[each.number], np.zeros(COUNT, "i4")) for each in self.world]

    def make(self, verb: str, each: Rank) -> None:
        library, n, part = self.world.nccl, each.number, COUNT // self.size
        source, target, end = self.source[n], self.target[n], (each.comm, each.stream)
        root = 1
        match verb:
            case "all_reduce":
                library.ncclAllReduce(source, target, COUNT, INT32, nccl.SUM, *end)
            case "reduce":
                library.ncclReduce(source, target if n == root else 0, COUNT, INT32, nccl.MAX, root, *end)
            case "reduce_scatter":
                library.ncclReduceScatter(source, target, part, INT32, nccl.SUM, *end)
            case "broadcast":
                library.ncclBroadcast(source if n == root else 0, target, COUNT, INT32, root, *end)
            case "bcast":
                library.ncclBcast(source, COUNT, INT32, root, *end)
                library.ncclAllReduce(source, target, COUNT, INT32, nccl.MIN, *end)
            case "all_gather":
                library.ncclAllGather(source, target, part, INT32, *end)
            case "all_to_all":
                library.ncclAlltoAll(source, target, part, INT32, *end)
            case "scatter":
                library.ncclScatter(source if n == root else 0, target, part, INT32, root, *end)
            case "ring":
                library.ncclSend(source, COUNT, INT32, (n + 1) % self.size, *end)
                library.ncclRecv(target, COUNT, INT32, (n - 1) % self.size, *end)
            case "exchange":
                for peer in range(self.size):
                    library.ncclSend(source + 4 * part * peer, part, INT32, peer, *end)
                    library.ncclRecv(target + 4 * part * peer, part, INT32, peer, *end)

    def expected(self, verb: str, values: list[Any]) -> list[Any]:
        size, part, empty = self.size, COUNT // self.size, np.zeros(COUNT, "i4")

        def first(values: Any) -> Any:
            return np.concatenate([values, empty])[:COUNT].astype("i4")

        def of(n: int) -> Any:
            own = slice(n * part, (n + 1) * part)
            match verb:
                case "all_reduce":
                    return sum(values)
                case "reduce":
                    return np.maximum.reduce(values) if n == 1 else empty
                case "reduce_scatter":
                    return first(sum(values)[own])
                case "broadcast" | "bcast":
                    return values[1]
                case "all_gather":
                    return np.concatenate([each[:part] for each in values])
                case "all_to_all" | "exchange":
                    return np.concatenate([each[own] for each in values])
                case "scatter":
                    return first(values[1][own])
                case _:
                    return values[(n - 1) % size]

        return [of(n) for n in range(size)]


VERBS = (
    *("all_reduce", "reduce", "reduce_scatter", "broadcast", "bcast", "all_gather", "all_to_all", "scatter"),
    *("ring", "exchange"),
)


@pytest.mark.parametrize("verb", VERBS)
def test_repeated_calls_need_no_python_and_move_the_same_bytes(
    ranks: Callable[[int], Ranks], asked: list[str], verb: str
) -> None:
    world = ranks(3)
    calls = Calls(world)
    for step in range(5):
        values = calls.fill(step)
        if step == 3:
            asked.clear()
        world.together(lambda each: calls.make(verb, each))
        for mine, right in zip(calls.read(), calls.expected(verb, values), strict=True):
            assert np.array_equal(mine, right)
    assert asked == []


def test_group_of_ranks_whose_streams_have_similar_handles_needs_no_python(
    ranks: Callable[[int], Ranks], asked: list[str]
) -> None:
    world = ranks(4)
    for each in world:
        each.enter()
        while each.stream % 1024:  # native code looks for these streams among the same few
            each.stream = each.driver.cuStreamCreate(WORD, 1)
    calls = Calls(world)
    for step in range(5):
        values = calls.fill(step)
        if step == 3:
            asked.clear()
        world.together(lambda each: calls.make("all_reduce", each))
        for mine in calls.read():
            assert np.array_equal(mine, sum(values))
    assert asked == []


def test_calls_outside_of_groups_need_no_python_either(
    ranks: Callable[[int], Ranks], asked: list[str]
) -> None:
    world = ranks(2)
    calls = Calls(world)
    for step in range(5):
        values = calls.fill(step)
        if step == 3:
            asked.clear()
        for verb in ("all_reduce", "bcast", "ring"):
            for each in world:
                calls.make(verb, each)
    assert asked == []
    for mine, right in zip(calls.read(), calls.expected("ring", [values[1]] * 2), strict=True):
        assert np.array_equal(mine, right)  # bcast has copied the numbers of rank 1 to both


def test_calls_of_different_kinds_in_random_order_keep_their_order(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(3)
    calls, random = Calls(world), np.random.default_rng(7)
    for step in range(60):
        verb = VERBS[random.integers(len(VERBS))]
        values = calls.fill(step)
        world.together(lambda each, verb=verb: calls.make(verb, each))
        for mine, right in zip(calls.read(), calls.expected(verb, values), strict=True):
            assert np.array_equal(mine, right), (step, verb)


def test_group_that_native_code_has_begun_goes_on_in_python(
    ranks: Callable[[int], Ranks], asked: list[str]
) -> None:
    world = ranks(2)
    calls = Calls(world)
    averaged = [each.buffer(np.full(COUNT, 2 * each.number, "f4")) for each in world]
    for _ in range(3):
        calls.fill(0)
        world.together(lambda each: calls.make("all_reduce", each))
        calls.read()
    asked.clear()
    values = calls.fill(1)

    def mixed(each: Rank) -> None:
        calls.make("all_reduce", each)  # native code keeps it, and cannot serve the next one
        own = averaged[each.number]
        world.nccl.ncclAllReduce(own, own, COUNT, 7, nccl.AVG, each.comm, each.stream)

    world.nccl.ncclGroupStart()
    world.together(mixed)
    world.nccl.ncclGroupEnd()
    assert asked == ["ncclAllReduce"] * 4
    for mine in calls.read():
        assert np.array_equal(mine, sum(values))
    assert world.all[0].read(averaged[0], np.zeros(COUNT, "f4")).tolist() == [1.0] * COUNT


def test_wrong_call_is_refused_and_leaves_the_others_of_its_group(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(2)
    calls = Calls(world)
    for step in range(4):
        values = calls.fill(step)

        def call(each: Rank) -> None:
            calls.make("all_reduce", each)
            arguments = COUNT, INT32, 9, each.comm, each.stream
            memory = calls.source[each.number]
            assert code_of(world.nccl.ncclSend, memory, *arguments) == nccl.INVALID_ARGUMENT
            assert code_of(world.nccl.ncclBcast, memory, COUNT, INT32, -1, *arguments[3:]) == 4
            assert code_of(world.nccl.ncclAllReduce, 8, memory, COUNT, INT32, 0, *arguments[3:]) == 4

        world.together(call)
        for mine in calls.read():
            assert np.array_equal(mine, sum(values))


def test_ranks_that_disagree_after_equal_calls_are_named(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(2)
    calls = Calls(world)
    for count in (COUNT, COUNT // 2) * 3:  # so that native code may queue both
        for each in world:
            memory = calls.source[each.number]
            world.nccl.ncclAllReduce(memory, memory, count, INT32, 0, each.comm, each.stream)
    for each, count in zip(world, (COUNT, COUNT // 2), strict=True):
        memory = calls.source[each.number]
        arguments = memory, memory, count, INT32, 0, each.comm, each.stream
        assert code_of(world.nccl.ncclAllReduce, *arguments) == (nccl.INVALID_USAGE if each.number else 0)
    text = world.nccl.last_error()
    assert "rank 0 calls all_reduce of 384 bytes" in text
    assert "rank 1 calls all_reduce of 192 bytes" in text
    assert world.nccl.ncclCommGetAsyncError(world.all[1].comm, INT) == nccl.INVALID_USAGE
    take_failures(world)


def test_message_of_another_size_after_equal_ones_is_named(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(2)
    calls = Calls(world)
    for _ in range(4):
        for each in world:
            calls.make("ring", each)
    first, second = world.all
    send = calls.source[0], 10, INT32, 1, first.comm, first.stream
    receive = calls.target[1], 11, INT32, 0, second.comm, second.stream
    assert code_of(world.nccl.ncclSend, *send) == 0
    assert code_of(world.nccl.ncclRecv, *receive) == nccl.INVALID_USAGE
    assert "sends 40 bytes" in world.nccl.last_error()


def test_work_of_the_program_lies_before_and_behind_native_calls(
    ranks: Callable[[int], Ranks], asked: list[str]
) -> None:
    world = ranks(2)
    calls = Calls(world)
    copies = [each.buffer(np.zeros(COUNT, "i4")) for each in world]
    for step in range(5):
        values = calls.fill(step)
        if step == 3:
            asked.clear()
        for each in world:
            each.enter()
            driver, n = each.driver, each.number
            driver.cuMemcpyDtoDAsync_v2(calls.target[n], calls.source[n], 4 * COUNT, each.stream)
            memory = calls.target[n]
            for _ in range(2):
                world.nccl.ncclAllReduce(memory, memory, COUNT, INT32, 0, each.comm, each.stream)
            driver.cuMemcpyDtoDAsync_v2(copies[n], memory, 4 * COUNT, each.stream)
            driver.cuMemsetD8Async(memory, 0, 4 * COUNT, each.stream)
        for each in world:
            assert np.array_equal(each.read(copies[each.number], values[0]), 2 * sum(values))
    assert asked == []


def test_communicator_that_has_ended_is_refused(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(2)
    calls = Calls(world)
    for _ in range(4):
        world.together(lambda each: calls.make("all_reduce", each))
    calls.read()
    first = world.all[0]
    world.nccl.ncclCommFinalize(first.comm)
    assert code_of(calls.make, "all_reduce", first) == nccl.INVALID_ARGUMENT
    world.nccl.ncclCommDestroy(first.comm)
    assert code_of(calls.make, "all_reduce", first) == nccl.INVALID_ARGUMENT
    first.comm = 0


def test_freed_memory_is_refused(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(2)
    calls = Calls(world)
    for _ in range(4):
        world.together(lambda each: calls.make("all_reduce", each))
    calls.read()
    world.all[0].enter()
    world.all[0].driver.cuMemFree_v2(calls.source[0])
    assert code_of(calls.make, "all_reduce", world.all[0]) == nccl.INVALID_ARGUMENT
    assert world.nccl.ncclCommGetAsyncError(world.all[0].comm, INT) == 0


@pytest.mark.parametrize("ended", ["memory", "stream", "communicator"])
@pytest.mark.parametrize("continues", ["native code", "Python"])
def test_group_whose_memory_stream_or_communicator_has_ended_fails_as_it_ends(
    ranks: Callable[[int], Ranks], ended: str, continues: str
) -> None:
    world = ranks(2)
    calls = Calls(world)
    for _ in range(4):
        world.together(lambda each: calls.make("all_reduce", each))
    calls.read()
    first, second = world.all
    world.nccl.ncclGroupStart()
    for each in world:
        calls.make("all_reduce", each)
    first.enter()
    match ended:
        case "memory":
            first.driver.cuMemFree_v2(calls.target[0])
        case "stream":
            first.driver.cuStreamDestroy_v2(first.stream)
        case _:
            world.nccl.ncclCommAbort(first.comm)
    if continues == "Python":
        world.nccl.ncclGroupStart()
        averaged = second.buffer(np.zeros(COUNT, "f4"))
        world.nccl.ncclAllReduce(averaged, averaged, COUNT, 7, nccl.AVG, second.comm, second.stream)
        world.nccl.ncclGroupEnd()
    assert code_of(world.nccl.ncclGroupEnd) == nccl.INVALID_USAGE
    assert "ncclAllReduce, earlier in the group, can no longer run: " in world.nccl.last_error()
    assert code_of(world.nccl.ncclGroupEnd) == nccl.INVALID_USAGE
    assert "has begun no group" in world.nccl.last_error()
    if ended == "communicator":
        first.comm = 0
    else:
        assert world.nccl.ncclCommGetAsyncError(first.comm, INT) == nccl.INVALID_USAGE
        world.nccl.ncclCommAbort(first.comm)
        first.comm = 0
    codes = [code_of(second.driver.cuStreamSynchronize, second.stream)]
    codes.append(world.nccl.ncclCommGetAsyncError(second.comm, INT))
    assert any(codes)  # it may have known of the end before it queued its call


def test_memory_of_a_group_that_native_code_has_begun_can_be_shared(
    ranks: Callable[[int], Ranks], asked: list[str]
) -> None:
    world = ranks(2)
    calls = Calls(world)
    for _ in range(4):
        world.together(lambda each: calls.make("all_reduce", each))
    values = calls.fill(1)
    asked.clear()
    world.nccl.ncclGroupStart()
    for each in world:
        calls.make("all_reduce", each)
    world.all[0].enter()
    for address in (calls.source[0], calls.target[0]):
        world.all[0].driver.cuIpcGetMemHandle(ctypes.create_string_buffer(64), address)
    world.nccl.ncclGroupEnd()
    assert asked == []
    for mine in calls.read():
        assert np.array_equal(mine, sum(values))


def test_stream_that_another_thread_destroys_as_a_group_ends_is_the_cause(
    ranks: Callable[[int], Ranks],
) -> None:
    for _ in range(8):  # the thread may be earlier or later than the group's end
        world = ranks(2)
        calls = Calls(world)
        for _ in range(4):
            world.together(lambda each, calls=calls: calls.make("exchange", each))
        calls.read()
        first = world.all[0]
        world.nccl.ncclGroupStart()
        for _ in range(40):
            for each in world:
                calls.make("exchange", each)
        first.enter()
        both = threading.Barrier(2)

        def destroy(first: Rank = first, both: threading.Barrier = both) -> None:
            both.wait(30)
            first.driver.cuStreamDestroy_v2(first.stream)

        other = threading.Thread(target=destroy)
        other.start()
        both.wait(30)
        code = code_of(world.nccl.ncclGroupEnd)
        other.join(30)
        text = world.nccl.last_error() if code else "stream"
        assert code in (0, nccl.INVALID_USAGE), text
        assert "stream" in text.partition("can no longer run: ")[2] or code == 0, text
        assert world.nccl.ncclCommGetAsyncError(first.comm, INT) in (0, code)
        for each in world:
            world.nccl.ncclCommAbort(each.comm)
            each.comm = 0
        for each in world:  # the stream that was destroyed goes on
            each.enter()
            code_of(each.driver.cuCtxSynchronize)
