"""Graphs of HIP: explicit and captured, launched, updated, cloned and printed."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from helpers import hip_c_calls
from helpers.hip_client import code, done
from peerlane.memory import raw

N = 4096
INVENTED = 1 << 20


def ok(result: tuple[Any, ...]) -> None:
    assert code(result) == "hipSuccess"


def words(nodes: Sequence[Any]) -> Any:
    return (ctypes.c_uint64 * max(len(nodes), 1))(*map(int, nodes))


def filled(hip: ModuleType, memory: Any, value: int, count: int = N) -> Any:
    params = hip.hipMemsetParams()
    params.dst, params.value, params.elementSize, params.width, params.height = memory, value, 1, count, 1
    return params


def fill(hip: ModuleType, graph: Any, before: Sequence[Any], memory: Any, value: int) -> Any:
    return done(hip.hipGraphAddMemsetNode(graph, words(before), len(before), filled(hip, memory, value)))


def copy(hip: ModuleType, graph: Any, before: Sequence[Any], dst: Any, src: Any) -> Any:
    kind = hip.hipMemcpyKind.hipMemcpyDefault
    return done(hip.hipGraphAddMemcpyNode1D(graph, words(before), len(before), dst, src, N, kind))


def executable_of(hip: ModuleType, graph: Any) -> Any:
    return done(hip.hipGraphInstantiateWithFlags(graph, 0))


def run(hip: ModuleType, executable: Any, stream: Any) -> None:
    ok(hip.hipGraphLaunch(executable, stream))
    ok(hip.hipStreamSynchronize(stream))


def bytes_of(memory: Any, count: int = N) -> bytes:
    return bytes(raw.view(int(memory), count))


def nodes_of(hip: ModuleType, graph: Any) -> list[int]:
    count = ctypes.c_size_t()
    hip.hipGraphGetNodes(graph, None, ctypes.addressof(count))
    array = (ctypes.c_uint64 * count.value)()
    hip.hipGraphGetNodes(graph, array, ctypes.addressof(count))
    return list(array)


def types_of(hip: ModuleType, graph: Any) -> list[str]:
    return [
        done(hip.hipGraphNodeGetType(each)).name.removeprefix("hipGraphNodeType")
        for each in nodes_of(hip, graph)
    ]


@pytest.fixture
def stream(hip: ModuleType) -> Any:
    return done(hip.hipStreamCreateWithFlags(1))


def capture(hip: ModuleType, stream: Any, mode: str = "Global") -> None:
    ok(hip.hipStreamBeginCapture(stream, hip.hipStreamCaptureMode[f"hipStreamCaptureMode{mode}"]))


def state(hip: ModuleType, stream: Any) -> str:
    return str(done(hip.hipStreamIsCapturing(stream)).name.removeprefix("hipStreamCaptureStatus"))


def test_hip_graph_runs_its_nodes_in_the_order_of_their_edges(hip: ModuleType, stream: Any) -> None:
    one, other = (done(hip.hipMalloc(N)) for _ in range(2))
    pinned = done(hip.hipHostMalloc(N, 0))
    graph = done(hip.hipGraphCreate(0))
    a = fill(hip, graph, [], one, 7)
    b = copy(hip, graph, [a], other, one)
    c = copy(hip, graph, [b], pinned, other)
    seen: list[int] = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
        lambda word: seen.append(ctypes.c_uint8.from_address(word or 0).value)
    )
    host = hip.hipHostNodeParams()
    host.fn, host.userData = ctypes.cast(function, ctypes.c_void_p).value, pinned
    d = done(hip.hipGraphAddHostNode(graph, words([c]), 1, host))
    e = done(hip.hipGraphAddEmptyNode(graph, words([d]), 1))
    executable = executable_of(hip, graph)
    run(hip, executable, stream)
    assert seen == [7]
    assert set(bytes_of(other)) == set(bytes_of(pinned)) == {7}
    assert nodes_of(hip, graph) == [int(each) for each in (a, b, c, d, e)]
    assert types_of(hip, graph) == ["Memset", "Memcpy", "Memcpy", "Host", "Empty"]
    assert int(done(hip.hipGraphGetNodes(graph))[0]) == int(a)
    count, before, behind = ctypes.c_size_t(9), words([0] * 9), words([0] * 9)
    hip.hipGraphGetEdges(graph, before, behind, ctypes.addressof(count))
    assert (count.value, before[3], behind[3]) == (4, int(d), int(e))
    assert int(done(hip.hipGraphNodeGetDependencies(c))[0]) == int(b)
    assert int(done(hip.hipGraphNodeGetDependentNodes(c))[0]) == int(d)
    ok(hip.hipGraphDestroy(graph))
    run(hip, executable, stream)
    assert seen == [7, 7]
    ok(hip.hipGraphExecDestroy(executable))
    assert code(hip.hipGraphLaunch(executable, stream)) == "hipErrorInvalidValue"


def test_hip_executable_graph_returns_its_flags(hip: ModuleType) -> None:
    executable = done(hip.hipGraphInstantiateWithFlags(done(hip.hipGraphCreate(0)), 1))
    assert hip.hipGraphExecGetFlags(executable) == (hip.hipError_t.hipSuccess, 1)
    assert code(hip.hipGraphExecGetFlags(INVENTED)) == "hipErrorInvalidValue"


def test_hip_graph_refuses_edges_that_do_not_fit_and_cycles(hip: ModuleType) -> None:
    graph = done(hip.hipGraphCreate(0))
    a, b = (done(hip.hipGraphAddEmptyNode(graph, None, 0)) for _ in range(2))
    ok(hip.hipGraphAddDependencies(graph, words([a]), words([b]), 1))
    for before, behind in ((a, a), (a, b), (b, 64)):
        result = hip.hipGraphAddDependencies(graph, words([before]), words([behind]), 1)
        assert code(result) == "hipErrorInvalidValue"
    assert code(hip.hipGraphAddEmptyNode(graph, None, 1)) == "hipErrorInvalidValue"
    assert code(hip.hipGraphAddEmptyNode(graph, words([a]), 3)) == "hipErrorInvalidValue"
    ok(hip.hipGraphAddDependencies(graph, words([b]), words([a]), 1))
    assert code(hip.hipGraphInstantiate(graph, 0)) == "hipErrorInvalidValue"
    params = hip.hipGraphInstantiateParams()
    assert code(hip.hipGraphInstantiateWithParams(graph, params)) == "hipErrorInvalidValue"
    assert params.result_out == hip.hipGraphInstantiateResult.hipGraphInstantiateInvalidStructure
    ok(hip.hipGraphRemoveDependencies(graph, words([b]), words([a]), 1))
    done(hip.hipGraphInstantiateWithParams(graph, params))
    assert params.result_out == hip.hipGraphInstantiateResult.hipGraphInstantiateSuccess


def test_hip_graph_parameters_are_read_set_and_updated(hip: ModuleType, stream: Any) -> None:
    memory, pinned = done(hip.hipMalloc(N)), done(hip.hipHostMalloc(N, 0))
    graph = done(hip.hipGraphCreate(0))
    node = fill(hip, graph, [], memory, 1)
    second = copy(hip, graph, [node], pinned, memory)
    executable = executable_of(hip, graph)
    params = done(hip.hipGraphMemsetNodeGetParams(node))
    assert (int(params.dst), params.value, params.width, params.elementSize) == (int(memory), 1, N, 1)
    box = done(hip.hipGraphMemcpyNodeGetParams(second))
    assert (int(box.dstPtr.ptr), int(box.srcPtr.ptr), box.extent.width) == (int(pinned), int(memory), N)
    ok(hip.hipGraphMemsetNodeSetParams(node, filled(hip, memory, 2)))
    run(hip, executable, stream)
    assert set(bytes_of(memory)) == {1}
    ok(hip.hipGraphExecMemsetNodeSetParams(executable, node, filled(hip, memory, 3)))
    run(hip, executable, stream)
    assert set(bytes_of(memory)) == {3}
    results = hip.hipGraphExecUpdateResult
    assert done(hip.hipGraphExecUpdate(executable, graph, None)) == results.hipGraphExecUpdateSuccess
    run(hip, executable, stream)
    assert set(bytes_of(pinned)) == {2}
    other, wrong = done(hip.hipGraphCreate(0)), ctypes.c_uint64()
    typed = done(hip.hipGraphAddEmptyNode(other, None, 0))
    fill(hip, other, [typed], memory, 4)
    result = hip.hipGraphExecUpdate(executable, other, ctypes.addressof(wrong))
    assert code(result) == "hipErrorGraphExecUpdateFailure"
    assert (result[1], wrong.value) == (results.hipGraphExecUpdateErrorNodeTypeChanged, int(typed))
    ok(hip.hipGraphNodeSetEnabled(executable, second, 0))
    assert done(hip.hipGraphNodeGetEnabled(executable, second)) == 0
    assert code(hip.hipGraphHostNodeGetParams(node)) == "hipErrorInvalidValue"


def test_hip_graph_add_node_takes_all_types_but_kernels(hip: ModuleType, stream: Any) -> None:
    memory, event = done(hip.hipMalloc(N)), done(hip.hipEventCreate())
    graph, child = (done(hip.hipGraphCreate(0)) for _ in range(2))
    fill(hip, child, [], memory, 6)

    def add(kind: str, before: Sequence[Any], parameters: Any = None) -> Any:
        params = hip.hipGraphNodeParams()
        params.type = hip.hipGraphNodeType[f"hipGraphNodeType{kind}"]
        if parameters is not None:
            ctypes.memmove(int(params) + 16, int(parameters), parameters.c_sizeof())
        return hip.hipGraphAddNode(graph, words(before), len(before), params)

    inner, record, wait = (
        hip.hipChildGraphNodeParams(),
        hip.hipEventRecordNodeParams(),
        hip.hipEventWaitNodeParams(),
    )
    inner.graph, record.event, wait.event = child, event, event
    a = done(add("Graph", [], inner))
    b = done(add("Memset", [a], filled(hip, memory, 9, 8)))
    c = done(add("EventRecord", [b], record))
    d = done(add("WaitEvent", [c], wait))
    done(add("Empty", [d]))
    assert code(add("Kernel", [])) == "hipErrorNotSupported"
    assert code(add("MemcpyToSymbol", [])) == "hipErrorNotSupported"
    assert types_of(hip, graph) == ["Graph", "Memset", "EventRecord", "WaitEvent", "Empty"]
    assert int(done(hip.hipGraphEventRecordNodeGetEvent(c))) == int(event)
    run(hip, executable_of(hip, graph), stream)
    ok(hip.hipEventSynchronize(event))
    assert bytes_of(memory, 16) == b"\x09" * 8 + b"\x06" * 8
    clone = done(hip.hipGraphClone(graph))
    assert int(done(hip.hipGraphNodeFindInClone(b, clone))) == nodes_of(hip, clone)[1]


def test_hip_memory_of_a_graph_lives_from_its_allocation_to_its_free(hip: ModuleType, stream: Any) -> None:
    memory = done(hip.hipMalloc(N))
    graph = done(hip.hipGraphCreate(0))
    params = hip.hipMemAllocNodeParams()
    params.poolProps.location.type = hip.hipMemLocationType.hipMemLocationTypeDevice
    params.bytesize = N
    a = done(hip.hipGraphAddMemAllocNode(graph, None, 0, params))
    own = int(params.dptr)
    b = fill(hip, graph, [a], own, 5)
    c = copy(hip, graph, [b], memory, own)
    d = done(hip.hipGraphAddMemFreeNode(graph, words([c]), 1, own))
    freed = ctypes.c_uint64()
    ok(hip.hipGraphMemFreeNodeGetParams(d, ctypes.addressof(freed)))
    assert freed.value == own == int(done(hip.hipGraphMemAllocNodeGetParams(a)).dptr)
    executable = executable_of(hip, graph)
    run(hip, executable, stream)
    run(hip, executable, stream)
    assert set(bytes_of(memory)) == {5}
    used = ctypes.c_uint64(1)
    attributes = hip.hipGraphMemAttributeType
    ok(hip.hipDeviceGetGraphMemAttribute(0, attributes.hipGraphMemAttrUsedMemHigh, used))
    assert used.value == N
    assert code(hip.hipGraphClone(graph)) == "hipErrorInvalidValue"
    ok(hip.hipDeviceGraphMemTrim(0))


def test_hip_capture_forks_joins_and_allocates(hip: ModuleType, stream: Any) -> None:
    side, fork, join = done(hip.hipStreamCreateWithFlags(1)), *(done(hip.hipEventCreate()) for _ in range(2))
    memory, far, pinned = done(hip.hipMalloc(N)), done(hip.hipMalloc(N)), done(hip.hipHostMalloc(N, 0))
    kind = hip.hipMemcpyKind.hipMemcpyDefault
    capture(hip, stream)
    own = done(hip.hipMallocAsync(N, stream))
    ok(hip.hipMemsetAsync(own, 4, N, stream))
    ok(hip.hipEventRecord(fork, stream))
    ok(hip.hipStreamWaitEvent(side, fork, 0))
    assert state(hip, side) == "Active"
    ok(hip.hipMemcpyAsync(far, own, N, kind, side))
    ok(hip.hipMemcpy2DAsync(memory, 64, own, 64, 64, N // 64, kind, stream))
    ok(hip.hipEventRecord(join, side))
    ok(hip.hipStreamWaitEvent(stream, join, 0))
    ok(hip.hipFreeAsync(own, stream))
    ok(hip.hipMemcpyAsync(pinned, far, N, kind, stream))
    assert done(hip.hipStreamGetFlags(stream)) == 1
    done(hip.hipStreamGetId(stream))
    status, number, inside, count = done(hip.hipStreamGetCaptureInfo_v2(stream, None))
    assert (status.name, number > 0, count) == ("hipStreamCaptureStatusActive", True, 1)
    graph = done(hip.hipStreamEndCapture(stream))
    assert int(graph) == int(inside)
    assert types_of(hip, graph) == ["MemAlloc", "Memset", "Memcpy", "Memcpy", "MemFree", "Memcpy"]
    run(hip, executable_of(hip, graph), stream)
    assert set(bytes_of(memory)) == set(bytes_of(far)) == set(bytes_of(pinned)) == {4}
    assert code(hip.hipEventQuery(fork)) == "hipErrorCapturedEvent"


def test_hip_captures_end_with_the_codes_of_what_went_wrong(hip: ModuleType, stream: Any) -> None:
    blocking, event = done(hip.hipStreamCreate()), done(hip.hipEventCreate())
    memory = done(hip.hipMalloc(N))
    kind = hip.hipMemcpyKind.hipMemcpyDefault
    for _ in range(2):
        ok(hip.hipMemcpy(memory, memory, 8, kind))
    assert code(hip.hipStreamEndCapture(stream)) == "hipErrorIllegalState"
    assert code(hip.hipStreamUpdateCaptureDependencies(stream, None, 0, 0)) == "hipErrorIllegalState"
    for call in (
        lambda: hip.hipStreamSynchronize(stream),
        lambda: hip.hipDeviceSynchronize(),
        lambda: hip.hipMalloc(8),
        lambda: hip.hipMemcpy(memory, memory, 8, kind),
        lambda: hip.hipMemcpyPeer(memory, 0, memory, 0, 8),
    ):
        capture(hip, stream)
        assert code(call()) == "hipErrorStreamCaptureUnsupported"
        assert code(hip.hipMemsetAsync(memory, 1, 8, stream)) == "hipErrorStreamCaptureInvalidated"
        assert code(hip.hipStreamEndCapture(stream)) == "hipErrorStreamCaptureInvalidated"
    capture(hip, blocking, "ThreadLocal")
    assert code(hip.hipMemsetAsync(memory, 1, 8, None)) == "hipErrorStreamCaptureImplicit"
    assert code(hip.hipStreamIsCapturing(None)) == "hipErrorStreamCaptureImplicit"
    assert code(hip.hipStreamEndCapture(blocking)) == "hipErrorStreamCaptureInvalidated"
    ok(hip.hipMemsetAsync(memory, 1, 8, None))
    capture(hip, stream)
    ok(hip.hipEventRecord(event, stream))
    ok(hip.hipStreamWaitEvent(blocking, event, 0))
    ok(hip.hipMemsetAsync(memory, 1, 8, blocking))
    assert code(hip.hipStreamEndCapture(blocking)) == "hipErrorStreamCaptureUnmatched"
    assert code(hip.hipStreamEndCapture(stream)) == "hipErrorStreamCaptureUnjoined"
    assert state(hip, blocking) == "None"


def test_hip_thread_exchanges_its_mode(hip: ModuleType, stream: Any) -> None:
    mode = ctypes.c_int(2)
    assert done(hip.hipThreadExchangeStreamCaptureMode(mode)).name == "hipStreamCaptureModeGlobal"
    assert mode.value == 0
    capture(hip, stream)
    done(hip.hipMalloc(8))
    done(hip.hipStreamEndCapture(stream))
    assert done(hip.hipThreadExchangeStreamCaptureMode()).name == "hipStreamCaptureModeRelaxed"


def test_hip_stream_of_a_thread_is_captured(hip: ModuleType) -> None:
    memory = done(hip.hipMalloc(N))
    mode = hip.hipStreamCaptureMode.hipStreamCaptureModeRelaxed
    ok(hip.hipStreamBeginCapture_spt(None, mode))
    ok(hip.hipMemsetAsync(memory, 3, N, 2))
    graph = done(hip.hipStreamEndCapture_spt(None))
    ok(hip.hipGraphLaunch_spt(executable_of(hip, graph), None))
    ok(hip.hipStreamSynchronize(2))
    assert set(bytes_of(memory)) == {3}


def test_hip_graph_is_printed_and_keeps_user_objects(hip: ModuleType, tmp_path: Path) -> None:
    graph, path, over = done(hip.hipGraphCreate(0)), tmp_path / "graph.dot", threading.Event()
    a = done(hip.hipGraphAddEmptyNode(graph, None, 0))
    done(hip.hipGraphAddEmptyNode(graph, words([a]), 1))
    ok(hip.hipGraphDebugDotPrint(graph, str(path).encode(), 1025))
    text = path.read_text()
    assert text.startswith("digraph ")
    assert (text.count(" EMPTY"), text.count(" -> ")) == (2, 1)
    destroy = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda word: over.set())
    kept = done(hip.hipUserObjectCreate(None, destroy, 1, 1))
    ok(hip.hipGraphRetainUserObject(graph, kept, 1, 1))
    ok(hip.hipGraphDestroy(graph))
    assert over.wait(20)


def test_hip_c_library_captures_and_launches(hip: ModuleType) -> None:
    library = hip_c_calls.library()
    stream, graph, executable, memory = (ctypes.c_uint64() for _ in range(4))
    status, mode, count, node = ctypes.c_int(), ctypes.c_int(1), ctypes.c_size_t(), ctypes.c_uint64(1)
    ref = ctypes.byref
    size = ctypes.c_size_t(N)
    for _ in range(2):
        assert library.hipMalloc(ref(memory), size) == 0
    assert library.hipStreamCreateWithFlags(ref(stream), 1) == 0
    for _ in range(2):
        assert library.hipMemcpyAsync(memory, memory, ctypes.c_size_t(8), 4, stream) == 0
    assert library.hipThreadExchangeStreamCaptureMode(ref(mode)) == 0
    assert library.hipThreadExchangeStreamCaptureMode(ref(mode)) == 0
    assert mode.value == 1
    assert library.hipStreamBeginCapture(stream, 0) == 0
    assert library.hipStreamIsCapturing(stream, ref(status)) == 0
    assert status.value == 1
    assert library.hipMemsetAsync(memory, 5, size, stream) == 0
    assert library.hipMemcpyAsync(memory, memory, ctypes.c_size_t(8), 4, stream) == 0
    assert library.hipStreamGetCaptureInfo_v2(stream, ref(status), None, None, None, ref(count)) == 0
    assert count.value == 1
    assert library.hipStreamEndCapture(stream, ref(graph)) == 0
    assert library.hipGraphGetNodes(graph, None, ref(count)) == 0
    assert count.value == 2
    nodes = (ctypes.c_uint64 * 2)()
    assert library.hipGraphGetNodes(graph, nodes, ref(count)) == 0
    assert library.hipGraphNodeGetType(ctypes.c_uint64(nodes[0]), ref(status)) == 0
    assert status.value == 2
    assert library.hipGraphInstantiate(ref(executable), graph, ref(node), None, ctypes.c_size_t(0)) == 0
    assert node.value == 0
    assert library.hipGraphLaunch(executable, stream) == 0
    assert library.hipStreamSynchronize(stream) == 0
    assert set(bytes_of(memory.value)) == {5}
    other = ctypes.c_uint64()
    assert library.hipGraphCreate(ref(other), 0) == 0
    assert library.hipGraphExecUpdate(executable, other, ref(node), ref(status)) == 910
    assert status.value == 2
    assert library.hipStreamEndCapture(stream, ref(graph)) == 401
    assert graph.value == 0
