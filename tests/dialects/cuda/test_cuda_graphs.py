"""Graphs of CUDA's driver: explicit and captured, launched, updated, cloned and printed."""

from __future__ import annotations

import ctypes
import random
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dialects.cuda import driver as cuda
from dialects.cuda.driver import INT, LAYOUT, WORD, CudaError, Driver, begun_driver, code, struct

SIZE = 1 << 16
UNSUPPORTED, INVALIDATED, MERGE, UNMATCHED, UNJOINED, ISOLATION, IMPLICIT, CAPTURED, WRONG_THREAD = range(
    900, 909
)
ILLEGAL_STATE, UPDATE_FAILED = 401, 910
GLOBAL, THREAD_LOCAL, RELAXED = range(3)


driver = pytest.fixture(begun_driver)


def words(handles: Sequence[int]) -> Any:
    return (ctypes.c_uint64 * max(len(handles), 1))(*handles)


def fill(driver: Driver, graph: int, before: Sequence[int], dst: int, value: int, count: int = SIZE) -> int:
    described = struct(
        "CUDA_MEMSET_NODE_PARAMS_v1", dst=dst, value=value, elementSize=1, width=count, height=1
    )
    return int(
        driver.cuGraphAddMemsetNode(WORD, graph, words(before), len(before), ctypes.byref(described), 0)
    )


def copied(dst: int, src: int, count: int = SIZE, **kinds: int) -> Any:
    instance = struct(
        "CUDA_MEMCPY3D_v2",
        srcMemoryType=2,
        srcDevice=src,
        dstMemoryType=2,
        dstDevice=dst,
        WidthInBytes=count,
        Height=1,
        Depth=1,
    )
    for name, value in kinds.items():
        setattr(instance, name, value)
    return instance


def copy(driver: Driver, graph: int, before: Sequence[int], dst: int, src: int, count: int = SIZE) -> int:
    described = copied(dst, src, count)
    return int(
        driver.cuGraphAddMemcpyNode(WORD, graph, words(before), len(before), ctypes.byref(described), 0)
    )


def empty(driver: Driver, graph: int, *before: int) -> int:
    return int(driver.cuGraphAddEmptyNode(WORD, graph, words(before), len(before)))


def launched(driver: Driver, graph: int, stream: int, flags: int = 0) -> int:
    executable = int(driver.cuGraphInstantiateWithFlags(WORD, graph, flags))
    driver.cuGraphLaunch(executable, stream)
    return executable


def bytes_at(driver: Driver, address: int, nbytes: int = SIZE) -> np.ndarray:
    host = np.zeros(nbytes, np.uint8)
    driver.cuMemcpyDtoH_v2(host.ctypes.data, address, nbytes)
    return host


def listed(call: Any, of: int, columns: int = 1) -> list[tuple[int, ...]]:
    count = ctypes.c_uint64()
    call(of, *[0] * columns, ctypes.byref(count))
    arrays = [(ctypes.c_uint64 * (count.value + 1))() for _ in range(columns)]
    count.value += 1
    call(of, *arrays, ctypes.byref(count))
    assert all(each[count.value] == 0 for each in arrays)
    return [tuple(each[at] for each in arrays) for at in range(count.value)]


def nodes_of(driver: Driver, graph: int) -> list[int]:
    return [each for (each,) in listed(driver.cuGraphGetNodes, graph)]


@pytest.fixture
def stream(driver: Driver) -> int:
    return int(driver.cuStreamCreate(WORD, 1))


def test_explicit_graph_runs_in_the_order_of_its_edges(driver: Driver, stream: int) -> None:
    one, other = (driver.cuMemAlloc_v2(WORD, SIZE) for _ in range(2))
    pinned = driver.cuMemHostAlloc(WORD, SIZE, 0)
    graph = driver.cuGraphCreate(WORD, 0)
    a = fill(driver, graph, [], one, 7)
    b = copy(driver, graph, [a], other, one)
    described = copied(0, other, dstMemoryType=1, dstHost=pinned)
    c = driver.cuGraphAddMemcpyNode(WORD, graph, words([b]), 1, ctypes.byref(described), 0)
    seen: list[int] = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
        lambda word: seen.append(ctypes.c_uint8.from_address(word or 0).value)
    )
    host = struct(
        "CUDA_HOST_NODE_PARAMS_v1", fn=ctypes.cast(function, ctypes.c_void_p).value, userData=pinned
    )
    d = driver.cuGraphAddHostNode(WORD, graph, words([c]), 1, ctypes.byref(host))
    e = fill(driver, graph, [d], pinned, 9)
    executable = launched(driver, graph, stream)
    driver.cuStreamSynchronize(stream)
    assert seen == [7]
    assert set(bytes_at(driver, other)) == {7}
    assert set(bytes_at(driver, pinned)) == {9}
    assert nodes_of(driver, graph) == [a, b, c, d, e]
    assert listed(driver.cuGraphGetRootNodes, graph) == [(a,)]
    assert listed(driver.cuGraphGetEdges, graph, 2) == [(a, b), (b, c), (c, d), (d, e)]
    assert listed(driver.cuGraphNodeGetDependencies, c) == [(b,)]
    assert listed(driver.cuGraphNodeGetDependentNodes, c) == [(d,)]
    assert [driver.cuGraphNodeGetType(each, INT) for each in (a, b, d)] == [2, 1, 3]
    driver.cuGraphDestroy(graph)
    driver.cuGraphLaunch(executable, stream)
    driver.cuStreamSynchronize(stream)
    assert seen == [7, 7]
    driver.cuGraphExecDestroy(executable)
    assert code(driver.cuGraphLaunch, executable, stream) == cuda.INVALID_VALUE


def test_edges_are_checked_and_a_cycle_is_refused(driver: Driver) -> None:
    graph, other = (driver.cuGraphCreate(WORD, 0) for _ in range(2))
    a, b = (empty(driver, graph) for _ in range(2))
    foreign = empty(driver, other)
    connect, cut = driver.cuGraphAddDependencies, driver.cuGraphRemoveDependencies
    assert code(connect, graph, words([a]), words([foreign]), 1) == cuda.INVALID_VALUE
    assert code(connect, graph, words([a]), words([a]), 1) == cuda.INVALID_VALUE
    connect(graph, words([a]), words([b]), 1)
    assert code(connect, graph, words([b, a]), words([a, b]), 2) == cuda.INVALID_VALUE
    assert listed(driver.cuGraphGetEdges, graph, 2) == [(a, b)]
    assert code(cut, graph, words([b]), words([a]), 1) == cuda.INVALID_VALUE
    assert code(driver.cuGraphAddEmptyNode, WORD, graph, words([a, a]), 2) == cuda.INVALID_VALUE
    assert code(driver.cuGraphAddEmptyNode, WORD, graph, words([foreign]), 1) == cuda.INVALID_VALUE
    assert code(driver.cuGraphAddEmptyNode, WORD, graph, 0, 1) == cuda.INVALID_VALUE
    connect(graph, words([b]), words([a]), 1)
    assert code(driver.cuGraphInstantiateWithFlags, WORD, graph, 0) == cuda.INVALID_VALUE
    params = struct("CUDA_GRAPH_INSTANTIATE_PARAMS")
    assert code(driver.cuGraphInstantiateWithParams, WORD, graph, ctypes.byref(params)) == cuda.INVALID_VALUE
    assert (params.result_out, params.hErrNode_out) == (2, a)
    cut(graph, words([b]), words([a]), 1)
    driver.cuGraphExecDestroy(driver.cuGraphInstantiateWithParams(WORD, graph, ctypes.byref(params)))
    assert (params.result_out, params.hErrNode_out) == (0, 0)
    driver.cuGraphDestroyNode(a)
    assert nodes_of(driver, graph) == [b]
    assert listed(driver.cuGraphGetEdges, graph, 2) == []
    assert code(driver.cuGraphNodeGetType, a, INT) == cuda.INVALID_VALUE


def test_data_of_edges_is_zero(driver: Driver) -> None:
    graph = driver.cuGraphCreate(WORD, 0)
    a, b = empty(driver, graph), empty(driver, graph)
    data = struct("CUgraphEdgeData", type=1)
    call = driver.cuGraphAddDependencies_v2
    assert code(call, graph, words([a]), words([b]), ctypes.byref(data), 1) == cuda.NOT_SUPPORTED
    call(graph, words([a]), words([b]), 0, 1)
    count, before, behind = ctypes.c_uint64(1), words([0]), words([0])
    driver.cuGraphGetEdges_v2(graph, before, behind, ctypes.byref(data), ctypes.byref(count))
    assert (before[0], behind[0], data.type, count.value) == (a, b, 0, 1)
    driver.cuGraphRemoveDependencies_v2(graph, before, behind, 0, 1)
    driver.cuGraphGetEdges_v2(graph, 0, 0, 0, ctypes.byref(count))
    assert count.value == 0


def test_parameters_are_read_and_set_without_a_change_of_executables(driver: Driver, stream: int) -> None:
    memory = driver.cuMemAlloc_v2(WORD, SIZE)
    graph = driver.cuGraphCreate(WORD, 0)
    node = fill(driver, graph, [], memory, 1)
    executable = driver.cuGraphInstantiateWithFlags(WORD, graph, 0)
    described = struct("CUDA_MEMSET_NODE_PARAMS_v1")
    driver.cuGraphMemsetNodeGetParams(node, ctypes.byref(described))
    assert (described.dst, described.value, described.elementSize, described.width, described.height) == (
        memory,
        1,
        1,
        SIZE,
        1,
    )
    described.value = 2
    driver.cuGraphMemsetNodeSetParams(node, ctypes.byref(described))
    driver.cuGraphLaunch(executable, stream)
    driver.cuStreamSynchronize(stream)
    assert set(bytes_at(driver, memory)) == {1}
    described.value = 3
    driver.cuGraphExecMemsetNodeSetParams(executable, node, ctypes.byref(described), 0)
    driver.cuGraphLaunch(executable, stream)
    driver.cuStreamSynchronize(stream)
    assert set(bytes_at(driver, memory)) == {3}
    general = struct("CUgraphNodeParams")
    driver.cuGraphNodeGetParams(node, ctypes.byref(general))
    assert (general.type, general.memset.value) == (2, 2)
    general.memset.value = 4
    driver.cuGraphExecNodeSetParams(executable, node, ctypes.byref(general))
    driver.cuGraphLaunch(executable, stream)
    driver.cuStreamSynchronize(stream)
    assert set(bytes_at(driver, memory)) == {4}
    general.type = 1
    assert code(driver.cuGraphNodeSetParams, node, ctypes.byref(general)) == cuda.INVALID_VALUE
    assert code(driver.cuGraphMemcpyNodeGetParams, node, ctypes.byref(copied(0, 0))) == cuda.INVALID_VALUE
    other = copy(driver, graph, [], memory, memory + SIZE // 2, SIZE // 2)
    box = copied(0, 0)
    driver.cuGraphMemcpyNodeGetParams(other, ctypes.byref(box))
    assert (box.dstDevice, box.srcDevice, box.WidthInBytes) == (memory, memory + SIZE // 2, SIZE // 2)
    assert (
        code(driver.cuGraphExecMemcpyNodeSetParams, executable, other, ctypes.byref(box), 0)
        == cuda.INVALID_VALUE
    )


def general(kind: int, member: str, **fields: Any) -> Any:
    instance = struct("CUgraphNodeParams", type=kind)
    for name, value in fields.items():
        setattr(getattr(instance, member), name, value)
    return instance


def test_add_node_makes_all_kinds_but_kernels(driver: Driver, stream: int) -> None:
    memory, event = driver.cuMemAlloc_v2(WORD, SIZE), driver.cuEventCreate(WORD, 0)
    graph, child = (driver.cuGraphCreate(WORD, 0) for _ in range(2))
    fill(driver, child, [], memory, 5)

    def add(described: Any, *before: int) -> int:
        return int(
            driver.cuGraphAddNode_v2(WORD, graph, words(before), 0, len(before), ctypes.byref(described))
        )

    a = add(general(4, "graph", graph=child))
    b = add(general(1, "memcpy", copyParams=copied(memory + 8, memory, 8)), a)
    c = add(general(7, "eventRecord", event=event), b)
    d = add(general(6, "eventWait", event=event), c)
    e = add(struct("CUgraphNodeParams", type=5), d)
    assert [driver.cuGraphNodeGetType(each, INT) for each in (a, b, c, d, e)] == [4, 1, 7, 6, 5]
    assert driver.cuGraphEventRecordNodeGetEvent(c, WORD) == event
    assert driver.cuGraphEventWaitNodeGetEvent(d, WORD) == event
    kernel = struct("CUgraphNodeParams", type=0)
    assert code(driver.cuGraphAddNode_v2, WORD, graph, 0, 0, 0, ctypes.byref(kernel)) == cuda.NOT_SUPPORTED
    assert code(driver.cuGraphAddKernelNode_v2, WORD, graph, 0, 0, ctypes.byref(kernel)) == cuda.NOT_SUPPORTED
    launched(driver, graph, stream)
    driver.cuEventSynchronize(event)
    assert set(bytes_at(driver, memory)) == {5}
    inner = driver.cuGraphChildGraphNodeGetGraph(a, WORD)
    assert inner != child
    assert code(driver.cuGraphDestroy, inner) == cuda.INVALID_VALUE


def test_words_are_written_and_waited_for_by_a_node(driver: Driver, stream: int) -> None:
    memory = driver.cuMemAlloc_v2(WORD, 64)
    driver.cuMemsetD8_v2(memory, 0, 64)
    driver.cuCtxSynchronize()
    array = (LAYOUT.struct("CUstreamBatchMemOpParams_v1") * 2)()
    array[0].operation, array[1].operation = 2, 1
    array[0].writeValue.address, array[0].writeValue.value = memory, 3
    array[1].waitValue.address, array[1].waitValue.value, array[1].waitValue.flags = memory, 3, 1
    graph = driver.cuGraphCreate(WORD, 0)
    described = struct(
        "CUDA_BATCH_MEM_OP_NODE_PARAMS_v1",
        ctx=driver.cuCtxGetCurrent(WORD),
        count=2,
        paramArray=ctypes.addressof(array),
    )
    node = driver.cuGraphAddBatchMemOpNode(WORD, graph, 0, 0, ctypes.byref(described))
    assert driver.cuGraphNodeGetType(node, INT) == 12
    launched(driver, graph, stream)
    driver.cuStreamSynchronize(stream)
    assert list(bytes_at(driver, memory, 8)) == [3, 0, 0, 0, 0, 0, 0, 0]
    array[0].writeValue.value = 4
    driver.cuStreamBatchMemOp_v2(stream, 1, array, 0)
    driver.cuStreamSynchronize(stream)
    assert bytes_at(driver, memory, 1)[0] == 4


def test_clone_lives_on_its_own(driver: Driver, stream: int) -> None:
    memory = driver.cuMemAlloc_v2(WORD, SIZE)
    graph = driver.cuGraphCreate(WORD, 0)
    a = fill(driver, graph, [], memory, 1)
    b = fill(driver, graph, [a], memory, 2)
    clone = driver.cuGraphClone(WORD, graph)
    copies = [driver.cuGraphNodeFindInClone(WORD, each, clone) for each in (a, b)]
    assert nodes_of(driver, clone) == copies
    assert listed(driver.cuGraphGetEdges, clone, 2) == [tuple(copies)]
    driver.cuGraphDestroyNode(b)
    assert code(driver.cuGraphNodeFindInClone, WORD, copies[0], graph) == cuda.INVALID_VALUE
    driver.cuGraphDestroy(graph)
    launched(driver, clone, stream)
    driver.cuStreamSynchronize(stream)
    assert set(bytes_at(driver, memory)) == {2}


def test_launches_of_one_executable_are_ordered_on_any_streams(driver: Driver, stream: int) -> None:
    memory, gate = driver.cuMemAlloc_v2(WORD, SIZE), driver.cuMemAlloc_v2(WORD, 4)
    driver.cuMemsetD32_v2(gate, 0, 1)
    driver.cuCtxSynchronize()
    graph = driver.cuGraphCreate(WORD, 0)
    fill(driver, graph, [], memory, 1)
    other = driver.cuStreamCreate(WORD, 1)
    driver.cuStreamWaitValue32_v2(stream, gate, 1, 1)
    executable = launched(driver, graph, stream)
    driver.cuGraphLaunch(executable, other)
    assert code(driver.cuStreamQuery, other) == cuda.NOT_READY
    opener = driver.cuStreamCreate(WORD, 1)
    driver.cuStreamWriteValue32_v2(opener, gate, 1, 0)
    driver.cuStreamSynchronize(other)
    assert driver.cuStreamQuery(stream) == []


def test_nodes_without_an_edge_run_concurrently(driver: Driver, stream: int) -> None:
    """The first root waits for a word that the second one writes."""
    word = driver.cuMemAlloc_v2(WORD, 4)
    driver.cuMemsetD32_v2(word, 0, 1)
    driver.cuCtxSynchronize()
    array = (LAYOUT.struct("CUstreamBatchMemOpParams_v1") * 2)()
    array[0].operation, array[0].waitValue.address, array[0].waitValue.value = 1, word, 1
    array[1].operation, array[1].writeValue.address, array[1].writeValue.value = 2, word, 1
    graph = driver.cuGraphCreate(WORD, 0)
    size = ctypes.sizeof(array) // 2
    for at in range(2):
        described = struct(
            "CUDA_BATCH_MEM_OP_NODE_PARAMS_v1", count=1, paramArray=ctypes.addressof(array) + at * size
        )
        driver.cuGraphAddBatchMemOpNode(WORD, graph, 0, 0, ctypes.byref(described))
    launched(driver, graph, stream)
    driver.cuStreamSynchronize(stream)
    assert bytes_at(driver, word, 1)[0] == 1


@pytest.mark.parametrize("seed", range(6))
def test_drawn_graph_has_the_bytes_of_its_nodes_one_after_the_other(driver: Driver, seed: int) -> None:
    """Each node depends on those before it that write what it touches, or read what it writes, and on no others."""
    draw = random.Random(seed)
    memory = [driver.cuMemAlloc_v2(WORD, 64) for _ in range(5)]
    streams = [driver.cuStreamCreate(WORD, 1) for _ in range(2)]
    for each in memory:
        driver.cuMemsetD8_v2(each, 0, 64)
    driver.cuCtxSynchronize()
    graph = driver.cuGraphCreate(WORD, 0)
    model = [0] * len(memory)
    steps: list[tuple[int, int, int]] = []  # node, what it writes, what it reads
    plan: list[tuple[int, int, int]] = []
    for number in range(30):
        dst, src = draw.sample(range(len(memory)), 2)
        reads = src if draw.random() < 0.6 else dst
        before = [node for node, wrote, read in steps if wrote in (dst, reads) or read == dst]
        if reads == dst:
            node = fill(driver, graph, before, memory[dst], number + 1, 64)
        else:
            node = copy(driver, graph, before, memory[dst], memory[src], 64)
        steps.append((node, dst, reads))
        plan.append((dst, reads, number + 1))
    executable = driver.cuGraphInstantiateWithFlags(WORD, graph, 0)
    for _ in range(2):
        for stream in streams:
            driver.cuGraphLaunch(executable, stream)
    for dst, reads, value in plan * 4:
        model[dst] = value if reads == dst else model[reads]
    driver.cuStreamSynchronize(streams[1])
    assert [set(bytes_at(driver, each, 64)) for each in memory] == [{value} for value in model]


# Updates.


def update(driver: Driver, executable: int, graph: int) -> tuple[int, int, int]:
    result = struct("CUgraphExecUpdateResultInfo_v1")
    try:
        driver.cuGraphExecUpdate_v2(executable, graph, ctypes.byref(result))
    except CudaError as error:
        assert error.code == UPDATE_FAILED
        assert result.result
    return result.result, result.errorNode, result.errorFromNode


def test_update_takes_new_parameters_and_names_why_a_graph_does_not_fit(driver: Driver, stream: int) -> None:
    memory, pinned = driver.cuMemAlloc_v2(WORD, SIZE), driver.cuMemHostAlloc(WORD, SIZE, 0)

    def graph_of(value: int, dst: int = memory) -> tuple[int, int, int]:
        graph = driver.cuGraphCreate(WORD, 0)
        a = fill(driver, graph, [], dst, value)
        return graph, a, fill(driver, graph, [a], memory + 8, value + 1, 8)

    graph, *_ = graph_of(1)
    executable = driver.cuGraphInstantiateWithFlags(WORD, graph, 0)
    assert update(driver, executable, graph_of(3)[0]) == (0, 0, 0)
    driver.cuGraphLaunch(executable, stream)
    driver.cuStreamSynchronize(stream)
    assert bytes_at(driver, memory, 16).tolist() == [3] * 8 + [4] * 8
    larger, *_ = graph_of(5)
    empty(driver, larger)
    assert update(driver, executable, larger) == (2, 0, 0)
    loose = driver.cuGraphCreate(WORD, 0)
    fill(driver, loose, [], memory, 6)
    second = fill(driver, loose, [], memory, 7)
    assert update(driver, executable, loose) == (2, second, 0)
    turned = driver.cuGraphCreate(WORD, 0)
    a, b = (fill(driver, turned, [], memory, 6) for _ in range(2))
    driver.cuGraphAddDependencies(turned, words([b]), words([a]), 1)
    assert update(driver, executable, turned) == (2, a, 0)
    typed = driver.cuGraphCreate(WORD, 0)
    node = empty(driver, typed)
    fill(driver, typed, [node], memory, 6)
    assert update(driver, executable, typed) == (3, node, 0)
    moved, node, _ = graph_of(7, pinned)
    assert update(driver, executable, moved) == (5, node, 0)
    driver.cuGraphLaunch(executable, stream)
    driver.cuStreamSynchronize(stream)
    assert bytes_at(driver, memory, 16).tolist() == [3] * 8 + [4] * 8
    node, result = ctypes.c_uint64(), ctypes.c_int()
    assert (
        code(driver.cuGraphExecUpdate, executable, typed, ctypes.byref(node), ctypes.byref(result))
        == UPDATE_FAILED
    )
    assert result.value == 3


def test_update_names_a_dependency_that_does_not_match(driver: Driver) -> None:
    def graph_of(which: int) -> list[int]:
        graph = driver.cuGraphCreate(WORD, 0)
        first = [empty(driver, graph), empty(driver, graph)]
        return [graph, *first, empty(driver, graph, first[which])]

    executable = driver.cuGraphInstantiateWithFlags(WORD, graph_of(0)[0], 0)
    graph, _, second, third = graph_of(1)
    assert update(driver, executable, graph) == (2, third, second)


def test_disabled_node_does_nothing(driver: Driver, stream: int) -> None:
    memory = driver.cuMemAlloc_v2(WORD, SIZE)
    graph = driver.cuGraphCreate(WORD, 0)
    a = fill(driver, graph, [], memory, 1)
    b = fill(driver, graph, [a], memory, 2)
    nothing = empty(driver, graph, b)
    executable = driver.cuGraphInstantiateWithFlags(WORD, graph, 0)
    driver.cuGraphNodeSetEnabled(executable, b, 0)
    assert [driver.cuGraphNodeGetEnabled(executable, each, INT) for each in (a, b)] == [1, 0]
    driver.cuGraphLaunch(executable, stream)
    driver.cuStreamSynchronize(stream)
    assert set(bytes_at(driver, memory)) == {1}
    driver.cuGraphNodeSetEnabled(executable, b, 1)
    driver.cuGraphLaunch(executable, stream)
    driver.cuStreamSynchronize(stream)
    assert set(bytes_at(driver, memory)) == {2}
    assert code(driver.cuGraphNodeSetEnabled, executable, nothing, 0) == cuda.INVALID_VALUE


def test_printed_graph_has_its_nodes_and_edges(driver: Driver, tmp_path: Path) -> None:
    memory = driver.cuMemAlloc_v2(WORD, SIZE)
    graph, child = (driver.cuGraphCreate(WORD, 0) for _ in range(2))
    fill(driver, child, [], memory, 1)
    a = fill(driver, graph, [], memory, 1)
    b = driver.cuGraphAddChildGraphNode(WORD, graph, words([a]), 1, child)
    path = tmp_path / "graph.dot"
    driver.cuGraphDebugDotPrint(graph, str(path).encode(), 1 | 1024)
    text = path.read_text()
    assert text.startswith("digraph ")
    assert text.count("{") == text.count("}")
    labels = re.findall(r'(\w+) \[label="([^"]*)"\]', text)
    assert [re.split(r"[ \\]", label)[1] for _, label in labels] == ["MEMSET", "GRAPH", "MEMSET"]
    assert f"{b:#x}" in labels[1][1]
    assert re.findall(r"(\w+) -> (\w+);", text) == [(labels[0][0], labels[1][0])]
    assert code(driver.cuGraphDebugDotPrint, graph, b"/nowhere/graph.dot", 0) == cuda.OPERATING_SYSTEM


# Memory.


def allocation(driver: Driver, graph: int, before: Sequence[int], nbytes: int = SIZE) -> tuple[int, int]:
    described = struct("CUDA_MEM_ALLOC_NODE_PARAMS_v1", bytesize=nbytes)
    described.poolProps.allocType = 1
    described.poolProps.location.type = 1
    node = driver.cuGraphAddMemAllocNode(WORD, graph, words(before), len(before), ctypes.byref(described))
    return int(node), int(described.dptr)


def attribute(driver: Driver, number: int) -> int:
    value = ctypes.c_uint64()
    driver.cuDeviceGetGraphMemAttribute(0, number, ctypes.byref(value))
    return value.value


def test_memory_of_a_graph_is_used_between_its_nodes(driver: Driver, stream: int) -> None:
    memory = driver.cuMemAlloc_v2(WORD, SIZE)
    graph = driver.cuGraphCreate(WORD, 0)
    a, own = allocation(driver, graph, [])
    b = fill(driver, graph, [a], own, 8)
    c = copy(driver, graph, [b], memory, own)
    d = driver.cuGraphAddMemFreeNode(WORD, graph, words([c]), 1, own)
    assert driver.cuGraphMemFreeNodeGetParams(d, WORD) == own
    described = struct("CUDA_MEM_ALLOC_NODE_PARAMS_v1")
    driver.cuGraphMemAllocNodeGetParams(a, ctypes.byref(described))
    assert (described.dptr, described.bytesize, described.poolProps.location.type) == (own, SIZE, 1)
    assert code(driver.cuGraphAddMemFreeNode, WORD, graph, 0, 0, own) == cuda.INVALID_VALUE
    assert code(driver.cuGraphAddMemFreeNode, WORD, graph, 0, 0, memory) == cuda.INVALID_VALUE
    assert code(driver.cuGraphClone, WORD, graph) == cuda.INVALID_VALUE
    assert code(driver.cuGraphDestroyNode, b) == cuda.INVALID_VALUE
    assert code(driver.cuGraphRemoveDependencies, graph, words([a]), words([b]), 1) == cuda.INVALID_VALUE
    outer = driver.cuGraphCreate(WORD, 0)
    assert code(driver.cuGraphAddChildGraphNode, WORD, outer, 0, 0, graph) == cuda.INVALID_VALUE
    executable = launched(driver, graph, stream)
    driver.cuGraphLaunch(executable, stream)
    driver.cuStreamSynchronize(stream)
    assert set(bytes_at(driver, memory)) == {8}
    assert code(driver.cuGraphInstantiateWithFlags, WORD, graph, 0) == cuda.INVALID_VALUE
    assert [attribute(driver, number) for number in range(4)] == [SIZE] * 4
    zero = ctypes.c_uint64()
    driver.cuDeviceSetGraphMemAttribute(0, 1, ctypes.byref(zero))
    assert attribute(driver, 1) == 0
    assert code(driver.cuDeviceSetGraphMemAttribute, 0, 0, ctypes.byref(zero)) == cuda.INVALID_VALUE
    driver.cuDeviceGraphMemTrim(0)
    assert [attribute(driver, number) for number in (0, 2)] == [0, SIZE]
    driver.cuGraphExecDestroy(executable)
    driver.cuGraphDestroy(graph)
    assert attribute(driver, 2) == 0


@pytest.mark.parametrize("free", ["cuMemFree_v2", "cuMemFreeAsync"])
def test_memory_that_a_graph_leaves_is_freed_by_calls(driver: Driver, stream: int, free: str) -> None:
    graph = driver.cuGraphCreate(WORD, 0)
    a, own = allocation(driver, graph, [])
    fill(driver, graph, [a], own, 3)
    executable = launched(driver, graph, stream)
    driver.cuStreamSynchronize(stream)
    assert set(bytes_at(driver, own)) == {3}
    assert attribute(driver, 0) == SIZE
    assert code(driver.cuGraphLaunch, executable, stream) == cuda.INVALID_VALUE
    getattr(driver, free)(own, *([stream] if free.endswith("Async") else []))
    driver.cuStreamSynchronize(stream)
    assert attribute(driver, 0) == SIZE
    driver.cuDeviceGraphMemTrim(0)
    assert attribute(driver, 0) == 0
    driver.cuGraphLaunch(executable, stream)
    driver.cuStreamSynchronize(stream)
    driver.cuGraphExecDestroy(executable)
    driver.cuGraphDestroy(graph)
    assert set(bytes_at(driver, own)) == {3}
    assert [attribute(driver, number) for number in (0, 2)] == [SIZE, SIZE]
    driver.cuMemFree_v2(own)
    assert [attribute(driver, number) for number in (0, 2)] == [SIZE, SIZE]
    driver.cuDeviceGraphMemTrim(0)
    assert [attribute(driver, number) for number in (0, 2)] == [0, 0]
    assert code(driver.cuMemFree_v2, own) == cuda.INVALID_VALUE


def test_reset_of_a_device_ends_memory_that_a_graph_left(driver: Driver, stream: int) -> None:
    graph = driver.cuGraphCreate(WORD, 0)
    allocation(driver, graph, [])
    executable = launched(driver, graph, stream)
    driver.cuGraphExecDestroy(executable)
    driver.cuGraphDestroy(graph)
    assert attribute(driver, 0) == SIZE
    driver.cuDevicePrimaryCtxReset_v2(0)
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(WORD, 0))
    assert [attribute(driver, number) for number in (0, 2)] == [0, 0]


def test_launch_frees_the_memory_of_the_one_before_where_the_program_asked_for_it(
    driver: Driver, stream: int
) -> None:
    graph = driver.cuGraphCreate(WORD, 0)
    allocation(driver, graph, [])
    executable = launched(driver, graph, stream, flags=1)
    driver.cuGraphLaunch(executable, stream)
    assert driver.cuGraphExecGetFlags(executable, WORD) == 1
    driver.cuStreamSynchronize(stream)
    assert attribute(driver, 0) == SIZE


def test_child_graph_that_moves_may_have_memory(driver: Driver, stream: int) -> None:
    child, graph = (driver.cuGraphCreate(WORD, 0) for _ in range(2))
    memory = driver.cuMemAlloc_v2(WORD, SIZE)
    a, own = allocation(driver, child, [])
    b = fill(driver, child, [a], own, 6)
    c = copy(driver, child, [b], memory, own)
    driver.cuGraphAddMemFreeNode(WORD, child, words([c]), 1, own)
    described = general(4, "graph", graph=child, ownership=1)
    node = driver.cuGraphAddNode_v2(WORD, graph, 0, 0, 0, ctypes.byref(described))
    assert driver.cuGraphChildGraphNodeGetGraph(node, WORD) == child
    assert code(driver.cuGraphInstantiateWithFlags, WORD, child, 0) == cuda.INVALID_VALUE
    launched(driver, graph, stream)
    driver.cuStreamSynchronize(stream)
    assert set(bytes_at(driver, memory)) == {6}


def test_user_object_ends_with_the_last_graph_that_has_it(driver: Driver) -> None:
    over = threading.Event()
    destroy = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda word: over.set() if word == 5 else None)
    graph = driver.cuGraphCreate(WORD, 0)
    kept = driver.cuUserObjectCreate(WORD, ctypes.c_void_p(5), destroy, 2, 1)
    driver.cuUserObjectRelease(kept, 1)
    driver.cuGraphRetainUserObject(graph, kept, 1, 1)
    executable = driver.cuGraphInstantiateWithFlags(WORD, graph, 0)
    driver.cuGraphDestroy(graph)
    assert not over.is_set()
    driver.cuGraphExecDestroy(executable)
    assert over.wait(20)
    assert code(driver.cuUserObjectRetain, kept, 1) == cuda.INVALID_VALUE


def test_update_takes_the_user_objects_of_the_graph_and_ends_those_before(driver: Driver) -> None:
    ended = [threading.Event(), threading.Event()]
    destroy = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda word: ended[(word or 0) - 1].set())
    graphs = []
    for word in (1, 2):
        graphs.append(driver.cuGraphCreate(WORD, 0))
        kept = driver.cuUserObjectCreate(WORD, ctypes.c_void_p(word), destroy, 1, 1)
        driver.cuGraphRetainUserObject(graphs[-1], kept, 1, 1)
    executable = driver.cuGraphInstantiateWithFlags(WORD, graphs[0], 0)
    driver.cuGraphDestroy(graphs[0])
    result = struct("CUgraphExecUpdateResultInfo_v1")
    driver.cuGraphExecUpdate_v2(executable, graphs[1], ctypes.byref(result))
    assert ended[0].wait(20)
    driver.cuGraphDestroy(graphs[1])
    assert not ended[1].is_set()
    driver.cuGraphExecDestroy(executable)
    assert ended[1].wait(20)


# Captures.


def capture(driver: Driver, stream: int, mode: int = GLOBAL) -> None:
    driver.cuStreamBeginCapture_v2(stream, mode)


def ended(driver: Driver, stream: int) -> int:
    return int(driver.cuStreamEndCapture(stream, WORD))


def status(driver: Driver, stream: int) -> int:
    return int(driver.cuStreamIsCapturing(stream, INT))


def test_captured_launch_has_the_operations_that_the_executable_graph_has_then(
    driver: Driver, stream: int
) -> None:
    """Not those of the graph that it was made of, which has another node by then, or has ended."""
    memory = [driver.cuMemAlloc_v2(WORD, SIZE) for _ in range(3)]
    inner = driver.cuGraphCreate(WORD, 0)
    fill(driver, inner, [], memory[0], 1)
    graph = driver.cuGraphCreate(WORD, 0)
    child = driver.cuGraphAddChildGraphNode(WORD, graph, 0, 0, inner)
    node = fill(driver, graph, [child], memory[1], 2)
    off = fill(driver, graph, [node], memory[2], 3)
    executable = driver.cuGraphInstantiateWithFlags(WORD, graph, 0)
    newer = driver.cuGraphCreate(WORD, 0)
    fill(driver, newer, [], memory[0], 4)
    driver.cuGraphExecChildGraphNodeSetParams(executable, child, newer)
    described = struct(
        "CUDA_MEMSET_NODE_PARAMS_v1", dst=memory[1], value=5, elementSize=1, width=SIZE, height=1
    )
    driver.cuGraphExecMemsetNodeSetParams(executable, node, ctypes.byref(described), 0)
    driver.cuGraphNodeSetEnabled(executable, off, 0)
    empty(driver, graph)
    capture(driver, stream)
    driver.cuGraphLaunch(executable, stream)
    outer = ended(driver, stream)
    driver.cuGraphDestroy(graph)
    driver.cuGraphExecDestroy(executable)
    launched(driver, outer, stream)
    driver.cuStreamSynchronize(stream)
    assert [set(bytes_at(driver, each)) for each in memory] == [{4}, {5}, {0}]


def test_captured_operations_run_at_the_launch_alone(driver: Driver, stream: int) -> None:
    memory, pinned = driver.cuMemAlloc_v2(WORD, SIZE), driver.cuMemHostAlloc(WORD, SIZE, 0)
    seen: list[int] = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(seen.append)
    driver.cuMemsetD8_v2(memory, 1, SIZE)
    driver.cuCtxSynchronize()
    driver.cuMemcpyDtoHAsync_v2(pinned, memory, SIZE, stream)
    driver.cuMemcpyDtoHAsync_v2(pinned, memory, SIZE, stream)  # native code answers it
    driver.cuStreamSynchronize(stream)
    capture(driver, stream)
    assert status(driver, stream) == 1
    driver.cuMemsetD8Async(memory, 2, SIZE, stream)
    driver.cuMemsetD2D8Async(memory, 128, 3, 64, 4, stream)
    driver.cuMemcpyDtoHAsync_v2(pinned, memory, SIZE, stream)
    driver.cuLaunchHostFunc(stream, function, 6)
    driver.cuStreamWriteValue32_v2(stream, memory, 9, 0)
    graph = ended(driver, stream)
    assert status(driver, stream) == 0
    assert not seen
    assert set(bytes_at(driver, memory)) == {1}
    kinds = [driver.cuGraphNodeGetType(each, INT) for each in nodes_of(driver, graph)]
    assert kinds == [2, 2, 1, 3, 12]
    assert len(listed(driver.cuGraphGetEdges, graph, 2)) == 4
    launched(driver, graph, stream)
    driver.cuStreamSynchronize(stream)
    expected = np.full(SIZE, 2, np.uint8)
    for row in range(4):
        expected[128 * row : 128 * row + 64] = 3
    assert np.array_equal(np.ctypeslib.as_array((ctypes.c_uint8 * SIZE).from_address(pinned)), expected)
    expected[:4] = [9, 0, 0, 0]
    assert np.array_equal(bytes_at(driver, memory), expected)
    assert seen == [6]
    driver.cuMemcpyDtoHAsync_v2(pinned, memory, SIZE, stream)
    driver.cuStreamSynchronize(stream)
    assert np.array_equal(np.ctypeslib.as_array((ctypes.c_uint8 * SIZE).from_address(pinned)), expected)


def test_fork_and_join_pull_a_stream_of_another_device_into_the_capture(driver: Driver, stream: int) -> None:
    first = driver.cuCtxGetCurrent(WORD)
    memory = [driver.cuMemAlloc_v2(WORD, SIZE) for _ in range(2)]
    fork = driver.cuEventCreate(WORD, 0)
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(WORD, 1))
    far, side, join = (
        driver.cuMemAlloc_v2(WORD, SIZE),
        driver.cuStreamCreate(WORD, 1),
        driver.cuEventCreate(WORD, 0),
    )
    driver.cuCtxSetCurrent(first)
    capture(driver, stream)
    driver.cuMemsetD8Async(memory[0], 4, SIZE, stream)
    driver.cuEventRecord(fork, stream)
    driver.cuStreamWaitEvent(side, fork, 0)
    assert status(driver, side) == 1
    driver.cuMemcpyAsync(far, memory[0], SIZE, side)
    driver.cuMemsetD8Async(memory[1], 5, SIZE, stream)
    driver.cuEventRecord(join, side)
    driver.cuStreamWaitEvent(stream, join, 0)
    driver.cuMemcpyAsync(memory[1], far, 8, stream)
    graph = ended(driver, stream)
    assert status(driver, side) == 0
    a, b, c, d = nodes_of(driver, graph)
    assert set(listed(driver.cuGraphGetEdges, graph, 2)) == {(a, b), (a, c), (c, d), (b, d)}
    launched(driver, graph, stream)
    driver.cuStreamSynchronize(stream)
    assert set(bytes_at(driver, far)) == {4}
    assert bytes_at(driver, memory[1], 16).tolist() == [4] * 8 + [5] * 8
    assert code(driver.cuEventQuery, fork) == CAPTURED
    assert code(driver.cuStreamWaitEvent, stream, fork, 0) == CAPTURED
    driver.cuEventRecord(fork, stream)
    driver.cuEventSynchronize(fork)


def test_memory_is_allocated_and_freed_in_a_capture(driver: Driver, stream: int) -> None:
    memory = driver.cuMemAlloc_v2(WORD, SIZE)
    capture(driver, stream)
    own = driver.cuMemAllocAsync(WORD, SIZE, stream)
    driver.cuMemsetD8Async(own, 7, SIZE, stream)
    driver.cuMemcpyAsync(memory, own, SIZE, stream)
    driver.cuMemFreeAsync(own, stream)
    graph = ended(driver, stream)
    kinds = [driver.cuGraphNodeGetType(each, INT) for each in nodes_of(driver, graph)]
    assert kinds == [10, 2, 1, 11]
    launched(driver, graph, stream)
    driver.cuStreamSynchronize(stream)
    assert set(bytes_at(driver, memory)) == {7}


def test_launch_in_a_capture_becomes_a_child_graph(driver: Driver, stream: int) -> None:
    memory = driver.cuMemAlloc_v2(WORD, SIZE)
    graph = driver.cuGraphCreate(WORD, 0)
    fill(driver, graph, [], memory, 3)
    executable = driver.cuGraphInstantiateWithFlags(WORD, graph, 0)
    capture(driver, stream)
    driver.cuGraphLaunch(executable, stream)
    outer = ended(driver, stream)
    (node,) = nodes_of(driver, outer)
    assert driver.cuGraphNodeGetType(node, INT) == 4
    assert len(nodes_of(driver, driver.cuGraphChildGraphNodeGetGraph(node, WORD))) == 1
    driver.cuGraphExecDestroy(executable)
    driver.cuGraphDestroy(graph)
    launched(driver, outer, stream)
    driver.cuStreamSynchronize(stream)
    assert set(bytes_at(driver, memory)) == {3}


def test_external_events_become_nodes(driver: Driver, stream: int) -> None:
    event, other = driver.cuEventCreate(WORD, 0), driver.cuStreamCreate(WORD, 1)
    driver.cuEventRecord(event, other)
    capture(driver, stream)
    driver.cuStreamWaitEvent(stream, event, 1)
    driver.cuEventRecordWithFlags(event, stream, 1)
    graph = ended(driver, stream)
    kinds = [driver.cuGraphNodeGetType(each, INT) for each in nodes_of(driver, graph)]
    assert kinds == [6, 7]
    launched(driver, graph, stream)
    driver.cuEventSynchronize(event)


def test_capture_adds_to_a_graph_that_is_there(driver: Driver, stream: int) -> None:
    memory = driver.cuMemAlloc_v2(WORD, SIZE)
    graph = driver.cuGraphCreate(WORD, 0)
    a, b = fill(driver, graph, [], memory, 1), empty(driver, graph)
    driver.cuStreamBeginCaptureToGraph(stream, graph, words([a]), 0, 1, GLOBAL)
    assert code(driver.cuGraphInstantiateWithFlags, WORD, graph, 0) == cuda.INVALID_VALUE
    state, number, captured, count = INT(), WORD(), WORD(), WORD()
    array = WORD()
    driver.cuStreamGetCaptureInfo_v3(
        stream, *map(ctypes.byref, (state, number, captured, array)), 0, ctypes.byref(count)
    )
    assert (state.value, captured.value, count.value) == (1, graph, 1)
    assert ctypes.c_uint64.from_address(array.value).value == a
    driver.cuStreamUpdateCaptureDependencies(stream, words([b]), 1, 0)
    driver.cuMemsetD8Async(memory, 2, SIZE, stream)
    assert ended(driver, stream) == graph
    c = nodes_of(driver, graph)[-1]
    assert listed(driver.cuGraphNodeGetDependencies, c) == [(a,), (b,)]
    launched(driver, graph, stream)
    driver.cuStreamSynchronize(stream)
    assert set(bytes_at(driver, memory)) == {2}


def test_stream_that_is_not_joined_is_refused_at_the_end(driver: Driver, stream: int) -> None:
    memory, event = driver.cuMemAlloc_v2(WORD, SIZE), driver.cuEventCreate(WORD, 0)
    side = driver.cuStreamCreate(WORD, 1)
    capture(driver, stream)
    driver.cuEventRecord(event, stream)
    driver.cuStreamWaitEvent(side, event, 0)
    driver.cuMemsetD8Async(memory, 2, SIZE, side)
    assert code(driver.cuStreamEndCapture, side, WORD) == UNMATCHED
    assert code(driver.cuStreamEndCapture, stream, WORD) == UNJOINED
    assert (status(driver, stream), status(driver, side)) == (0, 0)
    capture(driver, stream)
    driver.cuEventRecord(event, stream)
    driver.cuStreamWaitEvent(side, event, 0)
    driver.cuMemsetD8Async(memory, 2, SIZE, side)
    driver.cuStreamUpdateCaptureDependencies(side, 0, 0, 1)
    assert len(nodes_of(driver, ended(driver, stream))) == 1


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ("cuStreamSynchronize", UNSUPPORTED),
        ("cuStreamQuery", UNSUPPORTED),
        ("cuCtxSynchronize", UNSUPPORTED),
        ("cuMemAlloc_v2", UNSUPPORTED),
        ("cuMemFree_v2", UNSUPPORTED),
        ("cuEventQuery", UNSUPPORTED),
        ("cuStreamAddCallback", UNSUPPORTED),
        ("cuMemcpy", IMPLICIT),
        ("cuMemsetD8Async", IMPLICIT),
    ],
)
def test_call_that_no_capture_can_have_makes_it_invalid(driver: Driver, call: str, answer: int) -> None:
    stream, event = driver.cuStreamCreate(WORD, 0), driver.cuEventCreate(WORD, 0)
    memory = driver.cuMemAlloc_v2(WORD, SIZE)
    for _ in range(2):
        driver.cuMemcpy(memory, memory + 8, 8)  # native code answers the second one
    arguments = {
        "cuStreamSynchronize": (stream,),
        "cuStreamQuery": (stream,),
        "cuCtxSynchronize": (),
        "cuMemAlloc_v2": (WORD, 64),
        "cuMemFree_v2": (memory,),
        "cuEventQuery": (event,),
        "cuStreamAddCallback": (stream, ctypes.CFUNCTYPE(None)(lambda: None), 0, 0),
        "cuMemcpy": (memory, memory + 8, 8),
        "cuMemsetD8Async": (memory, 0, 8, 0),
    }[call]
    capture(driver, stream, THREAD_LOCAL if answer == IMPLICIT else GLOBAL)
    if call == "cuMemcpy":  # which is unsafe, too
        driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(RELAXED)))
    assert code(getattr(driver, call), *arguments) == answer
    driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(GLOBAL)))
    assert status(driver, stream) == 2
    assert code(driver.cuMemsetD8Async, memory, 0, 8, stream) == INVALIDATED
    graph = ctypes.c_uint64(1)
    assert code(driver.cuStreamEndCapture, stream, ctypes.byref(graph)) == INVALIDATED
    assert graph.value == 0
    driver.cuMemsetD8Async(memory, 0, 8, stream)
    driver.cuStreamSynchronize(stream)
    driver.cuMemcpy(memory, memory + 8, 8)


def test_null_stream_has_no_capture_and_no_state_while_another_is_captured(
    driver: Driver, stream: int
) -> None:
    blocking = driver.cuStreamCreate(WORD, 0)
    assert code(driver.cuStreamBeginCapture_v2, 0, GLOBAL) == UNSUPPORTED
    assert code(driver.cuStreamBeginCapture_v2, stream, 3) == cuda.INVALID_VALUE
    assert status(driver, 0) == 0
    capture(driver, stream)
    assert status(driver, 0) == 0
    ended(driver, stream)
    capture(driver, blocking)
    assert code(driver.cuStreamIsCapturing, 0, INT) == IMPLICIT
    assert status(driver, blocking) == 1
    assert code(driver.cuStreamBeginCapture_v2, blocking, GLOBAL) == ILLEGAL_STATE
    ended(driver, blocking)
    assert code(driver.cuStreamEndCapture, blocking, WORD) == ILLEGAL_STATE
    assert code(driver.cuStreamUpdateCaptureDependencies, blocking, 0, 0, 0) == ILLEGAL_STATE


@pytest.mark.parametrize("null", [0, 1])
@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL])
@pytest.mark.parametrize("call", ["cuStreamQuery", "cuStreamWaitEvent"])
def test_call_that_touches_the_null_stream_makes_the_capture_of_a_blocking_stream_invalid(
    driver: Driver, call: str, mode: int, null: int
) -> None:
    stream, event = driver.cuStreamCreate(WORD, 0), driver.cuEventCreate(WORD, 0)
    arguments = {"cuStreamQuery": (null,), "cuStreamWaitEvent": (null, event, 0)}[call]
    for _ in range(2):
        getattr(driver, call)(*arguments)  # native code answers the second one
    capture(driver, stream, mode)
    assert code(getattr(driver, call), *arguments) == IMPLICIT
    assert code(driver.cuStreamEndCapture, stream, WORD) == INVALIDATED
    getattr(driver, call)(*arguments)


def test_captures_do_not_merge_and_do_not_depend_on_other_work(driver: Driver, stream: int) -> None:
    other = driver.cuStreamCreate(WORD, 1)
    event, outside = (driver.cuEventCreate(WORD, 0) for _ in range(2))
    driver.cuEventRecord(outside, other)
    capture(driver, stream)
    assert code(driver.cuStreamWaitEvent, stream, outside, 0) == ISOLATION
    assert code(driver.cuStreamEndCapture, stream, WORD) == INVALIDATED
    capture(driver, stream)
    driver.cuEventRecord(event, stream)
    capture(driver, other)
    assert code(driver.cuStreamWaitEvent, other, event, 0) == MERGE
    assert (status(driver, stream), status(driver, other)) == (2, 2)
    for each in (stream, other):
        assert code(driver.cuStreamEndCapture, each, WORD) == INVALIDATED


def test_modes_decide_which_threads_may_make_unsafe_calls(driver: Driver, stream: int) -> None:
    context = driver.cuCtxGetCurrent(WORD)
    answers: list[int] = []

    def elsewhere(call: Any) -> int:
        def run() -> None:
            driver.cuCtxSetCurrent(context)
            try:
                call()
                answers.append(0)
            except CudaError as error:
                answers.append(error.code)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return answers[-1]

    def unsafe() -> None:
        driver.cuMemFree_v2(driver.cuMemAlloc_v2(WORD, 64))

    capture(driver, stream, THREAD_LOCAL)
    assert elsewhere(unsafe) == 0
    assert elsewhere(lambda: driver.cuStreamEndCapture(stream, WORD)) == WRONG_THREAD
    ended(driver, stream)
    capture(driver, stream, GLOBAL)
    assert elsewhere(unsafe) == UNSUPPORTED
    assert code(driver.cuStreamEndCapture, stream, WORD) == INVALIDATED
    capture(driver, stream, RELAXED)
    unsafe()
    assert elsewhere(lambda: driver.cuStreamEndCapture(stream, WORD)) == 0
    mode = ctypes.c_int(RELAXED)
    driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    assert mode.value == GLOBAL
    capture(driver, stream, GLOBAL)
    unsafe()
    ended(driver, stream)
    driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    assert mode.value == RELAXED


def test_stream_that_ends_ends_its_capture(driver: Driver, stream: int) -> None:
    capture(driver, stream)
    driver.cuStreamDestroy_v2(stream)
    driver.cuMemFree_v2(driver.cuMemAlloc_v2(WORD, 64))


def test_launch_goes_on_when_its_executable_graph_and_graph_are_destroyed(
    driver: Driver, stream: int
) -> None:
    memory, gate = driver.cuMemAlloc_v2(WORD, SIZE), driver.cuMemHostAlloc(WORD, 64, 0)
    word = ctypes.c_uint32.from_address(gate)
    word.value = 0
    array = (LAYOUT.struct("CUstreamBatchMemOpParams_v1") * 1)()
    array[0].operation, array[0].waitValue.address, array[0].waitValue.value = 1, gate, 1
    graph = driver.cuGraphCreate(WORD, 0)
    described = struct("CUDA_BATCH_MEM_OP_NODE_PARAMS_v1", count=1, paramArray=ctypes.addressof(array))
    node = driver.cuGraphAddBatchMemOpNode(WORD, graph, 0, 0, ctypes.byref(described))
    fill(driver, graph, [node], memory, 6)
    fill(driver, graph, [], driver.cuMemAlloc_v2(WORD, SIZE), 5)
    executable = launched(driver, graph, stream)
    driver.cuGraphExecDestroy(executable)
    driver.cuGraphDestroy(graph)
    assert code(driver.cuStreamQuery, stream) == cuda.NOT_READY
    word.value = 1
    driver.cuStreamSynchronize(stream)
    assert set(bytes_at(driver, memory)) == {6}


def test_reset_of_a_device_ends_graphs_and_their_memory(driver: Driver, stream: int) -> None:
    graph, other = (driver.cuGraphCreate(WORD, 0) for _ in range(2))
    allocation(driver, graph, [])
    allocation(driver, other, [])
    executable = launched(driver, graph, stream)
    capture(driver, stream)
    driver.cuDevicePrimaryCtxReset_v2(0)
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(WORD, 0))
    assert attribute(driver, 2) == 0
    assert code(driver.cuGraphLaunch, executable, 0) == cuda.INVALID_VALUE
    assert code(driver.cuGraphDestroy, graph) == cuda.INVALID_VALUE
    driver.cuMemFree_v2(driver.cuMemAlloc_v2(WORD, 64))


def test_nothing_runs_if_a_node_of_a_launch_is_refused(driver: Driver, stream: int) -> None:
    kept, freed = (driver.cuMemAlloc_v2(WORD, SIZE) for _ in range(2))
    driver.cuMemsetD8_v2(kept, 1, SIZE)
    driver.cuCtxSynchronize()
    graph = driver.cuGraphCreate(WORD, 0)
    fill(driver, graph, [], kept, 2)
    fill(driver, graph, [], freed, 2)
    executable = driver.cuGraphInstantiateWithFlags(WORD, graph, 0)
    driver.cuMemFree_v2(freed)
    assert code(driver.cuGraphLaunch, executable, stream) in (cuda.INVALID_VALUE, cuda.NOT_FOUND)
    driver.cuStreamSynchronize(stream)
    assert set(bytes_at(driver, kept)) == {1}
