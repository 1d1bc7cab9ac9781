"""Graphs and captures of CUDA's runtime, in both versions."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from dialects.cuda import driver as cuda
from dialects.cuda.driver import INT, WORD, Driver, code
from helpers.promises import Node
from peerlane import dialects
from peerlane.dialects._shared.c_layout import Layout
from peerlane.dialects._shared.c_names import declarations_of

SIZE = 1 << 12
DEFAULT = 4
UPDATE_FAILED = 910
LAYOUT = Layout(declarations_of("cuda", "cudart").library())


@pytest.fixture(params=["libcudart.so.12", "libcudart.so.13"])
def runtime(node: Node, request: pytest.FixtureRequest) -> Iterator[Driver]:
    """A runtime of a new process, on a node of two devices."""
    node()
    dialects.begin_anew("cuda")
    yield Driver(request.param)
    dialects.begin_anew("cuda")


def struct(name: str, **fields: Any) -> Any:
    params = LAYOUT.struct(name)()
    for each, value in fields.items():
        setattr(params, each, value)
    return params


def words(handles: Sequence[int]) -> Any:
    return (ctypes.c_uint64 * max(len(handles), 1))(*handles)


def bytes_at(runtime: Driver, address: int) -> set[int]:
    host = np.zeros(SIZE, np.uint8)
    runtime.cudaMemcpy(host.ctypes.data, address, SIZE, DEFAULT)
    return set(host.tolist())


def box(dst: int, src: int) -> Any:
    params = struct("cudaMemcpy3DParms", kind=DEFAULT)
    for pitched, address in ((params.dstPtr, dst), (params.srcPtr, src)):
        pitched.ptr, pitched.pitch, pitched.xsize, pitched.ysize = address, SIZE, SIZE, 1
    params.extent.width, params.extent.height, params.extent.depth = SIZE, 1, 1
    return params


def test_explicit_graph_copies_fills_and_is_updated(runtime: Driver) -> None:
    one, other, third = (runtime.cudaMalloc(WORD, SIZE) for _ in range(3))
    stream = runtime.cudaStreamCreateWithFlags(WORD, 1)

    def graph_of(value: int) -> tuple[int, list[int]]:
        graph = runtime.cudaGraphCreate(WORD, 0)
        fill = struct("cudaMemsetParams", dst=one, value=value, elementSize=1, width=SIZE, height=1, pitch=0)
        a = runtime.cudaGraphAddMemsetNode(WORD, graph, 0, 0, ctypes.byref(fill))
        b = runtime.cudaGraphAddMemcpyNode1D(WORD, graph, words([a]), 1, other, one, SIZE, DEFAULT)
        c = runtime.cudaGraphAddMemcpyNode(WORD, graph, words([b]), 1, ctypes.byref(box(third, other)))
        return graph, [a, b, c]

    graph, nodes = graph_of(3)
    assert [runtime.cudaGraphNodeGetType(each, INT) for each in nodes] == [2, 1, 1]
    executable = runtime.cudaGraphInstantiateWithFlags(WORD, graph, 0)
    runtime.cudaGraphLaunch(executable, stream)
    runtime.cudaStreamSynchronize(stream)
    assert bytes_at(runtime, third) == {3}
    described = struct("cudaMemcpy3DParms")
    runtime.cudaGraphMemcpyNodeGetParams(nodes[2], ctypes.byref(described))
    assert (described.dstPtr.ptr, described.srcPtr.ptr, described.extent.width) == (third, other, SIZE)
    general = struct("cudaGraphNodeParams", type=1)
    general.memcpy.copyParams = box(third, one)
    runtime.cudaGraphExecNodeSetParams(executable, nodes[2], ctypes.byref(general))
    result = struct("cudaGraphExecUpdateResultInfo")
    runtime.cudaGraphExecUpdate(executable, graph_of(4)[0], ctypes.byref(result))
    runtime.cudaGraphLaunch(executable, stream)
    runtime.cudaStreamSynchronize(stream)
    assert bytes_at(runtime, third) == {4}
    empty = runtime.cudaGraphCreate(WORD, 0)
    assert code(runtime.cudaGraphExecUpdate, executable, empty, ctypes.byref(result)) == UPDATE_FAILED
    assert result.result == 2
    runtime.cudaGraphExecDestroy(executable)
    assert code(runtime.cudaGraphLaunch, executable, stream) == cuda.INVALID_VALUE


def test_capture_forks_joins_and_allocates(runtime: Driver) -> None:
    stream, side = (runtime.cudaStreamCreateWithFlags(WORD, 1) for _ in range(2))
    memory = runtime.cudaMalloc(WORD, SIZE)
    fork, join = (runtime.cudaEventCreate(WORD) for _ in range(2))
    for _ in range(2):  # native code answers the second one
        runtime.cudaMemcpyAsync(memory, memory, 8, DEFAULT, stream)
    runtime.cudaStreamBeginCapture(stream, 0)
    own = runtime.cudaMallocAsync(WORD, SIZE, stream)
    runtime.cudaEventRecord(fork, stream)
    runtime.cudaStreamWaitEvent(side, fork, 0)
    runtime.cudaMemsetAsync(own, 6, SIZE, side)
    runtime.cudaEventRecord(join, side)
    runtime.cudaStreamWaitEvent(stream, join, 0)
    runtime.cudaMemcpyAsync(memory, own, SIZE, DEFAULT, stream)
    runtime.cudaFreeAsync(own, stream)
    assert runtime.cudaStreamIsCapturing(side, INT) == 1
    graph = runtime.cudaStreamEndCapture(stream, WORD)
    count = ctypes.c_size_t()
    runtime.cudaGraphGetNodes(graph, 0, ctypes.byref(count))
    assert count.value == 4
    runtime.cudaGraphLaunch(runtime.cudaGraphInstantiate(WORD, graph, 0), stream)
    runtime.cudaStreamSynchronize(stream)
    assert bytes_at(runtime, memory) == {6}
    runtime.cudaStreamBeginCapture(stream, 0)
    assert code(runtime.cudaMalloc, WORD, 8) == 900
    assert code(runtime.cudaStreamEndCapture, stream, WORD) == 901


def test_dependencies_have_data_in_version_13_alone(runtime: Driver) -> None:
    stream = runtime.cudaStreamCreateWithFlags(WORD, 1)
    graph = runtime.cudaGraphCreate(WORD, 0)
    a, b = (runtime.cudaGraphAddEmptyNode(WORD, graph, 0, 0) for _ in range(2))
    is_new = runtime.library._name.endswith("13")
    data = [0] if is_new else []
    runtime.cudaGraphAddDependencies(graph, words([a]), words([b]), *data, 1)
    count, before, behind = ctypes.c_size_t(1), words([0]), words([0])
    runtime.cudaGraphGetEdges(graph, before, behind, *data, ctypes.byref(count))
    assert (before[0], behind[0], count.value) == (a, b, 1)
    runtime.cudaStreamBeginCapture(stream, 2)
    state, number = INT(), WORD()
    more = [0, 0, 0, 0] if is_new else []
    runtime.cudaStreamGetCaptureInfo(stream, ctypes.byref(state), ctypes.byref(number), *more)
    assert (state.value, number.value > 0) == (1, True)
    runtime.cudaStreamEndCapture(stream, WORD)
