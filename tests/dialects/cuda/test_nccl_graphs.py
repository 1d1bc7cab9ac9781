"""NCCL on streams that are captured: its work is a node of the graph, and each launch does it anew."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dialects.cuda import nccl
from dialects.cuda.driver import INT, WORD
from dialects.cuda.nccl import Rank, Ranks, code_of

COUNT = 1000
RELAXED, KERNEL = 2, 0

ranks = pytest.fixture(nccl.ranks_of)


def captured(world: Ranks, call: Callable[[Rank], object]) -> list[int]:
    """Return the executable graph of each rank, of what the ranks call in one group."""
    driver = world.driver
    for each in world:
        each.enter()
        driver.cuStreamBeginCapture_v2(each.stream, RELAXED)
    world.together(call)
    graphs = [driver.cuStreamEndCapture(each.stream, WORD) for each in world]
    return [driver.cuGraphInstantiateWithFlags(WORD, each, 0) for each in graphs]


def launch(world: Ranks, executables: list[int]) -> None:
    for each, executable in zip(world, executables, strict=True):
        each.enter()
        world.driver.cuGraphLaunch(executable, each.stream)


def test_each_launch_reduces_what_the_memory_has_then(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(2)
    own = np.arange(COUNT, dtype="i4")
    memory = [each.buffer(own + each.number) for each in world]

    def reduce(each: Rank) -> None:
        at = memory[each.number]
        world.nccl.ncclAllReduce(at, at, COUNT, 2, nccl.SUM, each.comm, each.stream)

    executables = captured(world, reduce)
    for each in world:
        assert np.array_equal(each.read(memory[each.number], own), own + each.number)
    for times in (1, 2):
        launch(world, executables)
        for each in world:
            assert np.array_equal(each.read(memory[each.number], own), (2 * own + 1) * times)


def test_messages_of_a_group_on_two_streams_of_one_capture_follow_and_precede_both(
    ranks: Callable[[int], Ranks],
) -> None:
    world = ranks(2)
    driver = world.driver
    sent, got = ([each.buffer(np.zeros(COUNT, "i4")) for each in world] for _ in range(2))
    sides: list[int] = []
    for each in world:
        each.enter()
        sides.append(driver.cuStreamCreate(WORD, 1))
        fork = driver.cuEventCreate(WORD, 2)
        driver.cuStreamBeginCapture_v2(each.stream, RELAXED)
        driver.cuEventRecord(fork, each.stream)
        driver.cuStreamWaitEvent(sides[-1], fork, 0)
        driver.cuMemsetD32Async(sent[each.number], each.number + 5, COUNT, sides[-1])

    def exchange(each: Rank) -> None:
        peer = 1 - each.number
        world.nccl.ncclSend(sent[each.number], COUNT, 2, peer, each.comm, sides[each.number])
        world.nccl.ncclRecv(got[each.number], COUNT, 2, peer, each.comm, each.stream)

    world.together(exchange)
    executables = []
    for each in world:
        each.enter()
        graph = driver.cuStreamEndCapture(each.stream, WORD)
        executables.append(driver.cuGraphInstantiateWithFlags(WORD, graph, 0))
    launch(world, executables)
    for each in world:
        like = np.zeros(COUNT, "i4")
        assert set(each.read(got[each.number], like)) == {1 - each.number + 5}


def test_node_of_a_collective_is_a_kernel_and_a_launch_after_the_end_of_the_communicator_is_refused(
    ranks: Callable[[int], Ranks],
) -> None:
    world = ranks(2)
    driver = world.driver
    memory = [each.buffer(np.ones(COUNT, "i4")) for each in world]
    first = world.all[0]
    first.enter()
    driver.cuStreamBeginCapture_v2(first.stream, RELAXED)
    world.nccl.ncclAllReduce(memory[0], memory[0], COUNT, 2, nccl.SUM, first.comm, first.stream)
    graph = driver.cuStreamEndCapture(first.stream, WORD)
    nodes: Any = (WORD * 1)()
    count = WORD(1)
    driver.cuGraphGetNodes(graph, nodes, ctypes.byref(count))
    assert driver.cuGraphNodeGetType(nodes[0], INT) == KERNEL
    executable = driver.cuGraphInstantiateWithFlags(WORD, graph, 0)
    world.nccl.ncclCommAbort(first.comm)
    first.comm = 0
    assert code_of(driver.cuGraphLaunch, executable, first.stream) == 1


def test_group_with_one_captured_stream_of_two_is_refused(ranks: Callable[[int], Ranks]) -> None:
    world = ranks(2)
    driver, first = world.driver, world.all[0]
    memory = first.buffer(np.ones(COUNT, "i4"))
    side = driver.cuStreamCreate(WORD, 1)
    driver.cuStreamBeginCapture_v2(first.stream, RELAXED)
    world.nccl.ncclGroupStart()
    world.nccl.ncclSend(memory, COUNT, 2, 1, first.comm, first.stream)
    world.nccl.ncclRecv(memory, COUNT, 2, 1, first.comm, side)
    assert code_of(world.nccl.ncclGroupEnd) == nccl.INVALID_USAGE
    assert "capture" in world.nccl.last_error(first.comm)
