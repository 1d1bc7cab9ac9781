"""Graphs and captures of the runtime: most are the driver's; copies and fills have structs of their own."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from peerlane.dialects.cuda import graphs as driver
from peerlane.dialects.cuda.graphs import graphs
from peerlane.dialects.cuda.runtime.copies import box_of, kind_of
from peerlane.dialects.cuda.runtime.table import call, same_as_driver, same_as_driver_in_12
from peerlane.dialects.cuda.state import gpu
from peerlane.dialects.gpu.copies import Copy
from peerlane.dialects.gpu.graphs import fields
from peerlane.dialects.gpu.graphs.executable import Executable
from peerlane.dialects.gpu.graphs.fields import Fields
from peerlane.dialects.gpu.graphs.graph import Graph, Node

_SAME = (
    *(
        "ThreadExchangeStreamCaptureMode",
        "StreamEndCapture",
        "StreamBeginCaptureToGraph",
        "StreamIsCapturing",
    ),
    *("GraphCreate", "GraphDestroy", "GraphClone", "GraphNodeFindInClone", "GraphDebugDotPrint"),
    *("GraphGetNodes", "GraphGetRootNodes", "GraphNodeGetType", "GraphDestroyNode"),
    *("GraphAddHostNode", "GraphHostNodeGetParams", "GraphHostNodeSetParams", "GraphExecHostNodeSetParams"),
    *("GraphAddChildGraphNode", "GraphChildGraphNodeGetGraph", "GraphExecChildGraphNodeSetParams"),
    *("GraphAddEmptyNode", "GraphAddEventRecordNode", "GraphAddEventWaitNode"),
    *("GraphEventRecordNodeGetEvent", "GraphEventRecordNodeSetEvent", "GraphExecEventRecordNodeSetEvent"),
    *("GraphEventWaitNodeGetEvent", "GraphEventWaitNodeSetEvent", "GraphExecEventWaitNodeSetEvent"),
    *("GraphAddMemAllocNode", "GraphMemAllocNodeGetParams", "GraphAddMemFreeNode"),
    *("DeviceGraphMemTrim", "DeviceGetGraphMemAttribute", "DeviceSetGraphMemAttribute"),
    *("GraphMemsetNodeGetParams", "GraphMemsetNodeSetParams"),
    *("GraphInstantiateWithFlags", "GraphInstantiateWithParams", "GraphExecDestroy", "GraphExecGetFlags"),
    *("GraphUpload", "GraphLaunch", "GraphNodeSetEnabled", "GraphNodeGetEnabled"),
    *("UserObjectCreate", "UserObjectRetain", "UserObjectRelease"),
    *("GraphRetainUserObject", "GraphReleaseUserObject"),
    *("GraphNodeSetParams", "GraphExecNodeSetParams"),
    *("GraphNodeGetContainingGraph", "GraphNodeGetLocalId", "GraphNodeGetToolsId"),
    *("GraphGetId", "GraphExecGetId"),
)
_WITH_DATA = (
    *("GraphGetEdges", "GraphNodeGetDependencies", "GraphNodeGetDependentNodes"),
    *("GraphAddDependencies", "GraphRemoveDependencies", "GraphAddNode"),
    "StreamUpdateCaptureDependencies",
)
same_as_driver(
    cudaStreamBeginCapture="cuStreamBeginCapture_v2",
    cudaStreamGetCaptureInfo="cuStreamGetCaptureInfo_v3",
    cudaGraphInstantiate="cuGraphInstantiateWithFlags",
    cudaGraphExecUpdate="cuGraphExecUpdate_v2",
    **{f"cuda{name}": f"cu{name}" for name in _SAME},
    **{f"cuda{name}": f"cu{name}_v2" for name in _WITH_DATA},
)
same_as_driver_in_12(
    cudaStreamGetCaptureInfo="cuStreamGetCaptureInfo",
    cudaStreamGetCaptureInfo_v2="cuStreamGetCaptureInfo_v2",
    cudaStreamGetCaptureInfo_v3="cuStreamGetCaptureInfo_v3",
    **{f"cuda{name}": f"cu{name}" for name in _WITH_DATA},
    **{f"cuda{name}_v2": f"cu{name}_v2" for name in _WITH_DATA},
)


def _copy_of(described: Fields) -> Copy:
    box = box_of(described, kind_of(described["kind"]) if described else "")
    if box is None:
        raise gpu.copies.empty()
    return box


driver.copies_of["srcPtr"] = _copy_of


def _line(dst: int, src: int, count: int, kind: int) -> Copy:
    return gpu.copies.line(dst, src, count, kind_of(kind))


@call
def cudaGraphAddMemcpyNode(
    graph: Graph, pDependencies: Sequence[int], numDependencies: int, pCopyParams: Fields
) -> int:
    return graphs.add(graph, graphs.nodes(pDependencies), _copy_of(pCopyParams)).handle


@call
def cudaGraphAddMemcpyNode1D(
    graph: Graph,
    pDependencies: Sequence[int],
    numDependencies: int,
    dst: int,
    src: int,
    count: int,
    kind: int,
) -> int:
    return graphs.add(graph, graphs.nodes(pDependencies), _line(dst, src, count, kind)).handle


@call
def cudaGraphMemcpyNodeSetParams(node: Node, pNodeParams: Fields) -> None:
    graphs.set_operation(node, _copy_of(pNodeParams))


@call
def cudaGraphMemcpyNodeSetParams1D(node: Node, dst: int, src: int, count: int, kind: int) -> None:
    graphs.set_operation(node, _line(dst, src, count, kind))


@call
def cudaGraphExecMemcpyNodeSetParams(hGraphExec: Executable, node: Node, pNodeParams: Fields) -> None:
    graphs.set_step(hGraphExec, node, _copy_of(pNodeParams))


@call
def cudaGraphExecMemcpyNodeSetParams1D(
    hGraphExec: Executable, node: Node, dst: int, src: int, count: int, kind: int
) -> None:
    graphs.set_step(hGraphExec, node, _line(dst, src, count, kind))


@call
def cudaGraphMemcpyNodeGetParams(node: Node) -> Fields:
    return fields.of_pitched(driver.of_kind(node, "MEMCPY"))


@call
def cudaGraphNodeGetParams(node: Node) -> Fields:
    operation = node.operation
    described = driver.fields_of(node)
    if isinstance(operation, Copy):
        return {**described, "memcpy": {"copyParams": fields.of_pitched(operation)}}
    return described


@call
def cudaGraphAddMemsetNode(
    graph: Graph, pDependencies: Sequence[int], numDependencies: int, pMemsetParams: Fields
) -> int:
    return graphs.add(graph, graphs.nodes(pDependencies), driver.fill_of(pMemsetParams)).handle


@call
def cudaGraphExecMemsetNodeSetParams(hGraphExec: Executable, node: Node, pNodeParams: Fields) -> None:
    graphs.set_step(hGraphExec, node, driver.fill_of(pNodeParams))


@call
def cudaGraphMemFreeNodeGetParams(node: Node, dptr_out: int) -> None:
    ctypes.c_uint64.from_address(dptr_out).value = driver.of_kind(node, "MEM_FREE").owned.address
