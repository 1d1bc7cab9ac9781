"""Graphs: nodes and edges, executable graphs, captures of streams, memory of graphs (facts/cuda 6)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from peerlane import Device
from peerlane.dialects._shared.c_layout import Layout
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.cuda.batches import words_of
from peerlane.dialects.cuda.copies import box_of
from peerlane.dialects.cuda.kernels import refusing
from peerlane.dialects.cuda.memory import refuse_empty
from peerlane.dialects.cuda.pools import location_of, rights_of_devices
from peerlane.dialects.cuda.state import call, calls, define, enums, gpu, invalid, refuse_flags
from peerlane.dialects.gpu.callbacks import HostCall
from peerlane.dialects.gpu.captures import ACTIVE, NONE
from peerlane.dialects.gpu.copies import Copy
from peerlane.dialects.gpu.events import EventOperation, GpuEvent
from peerlane.dialects.gpu.graphs import fields
from peerlane.dialects.gpu.graphs.executable import Executable
from peerlane.dialects.gpu.graphs.fields import Fields
from peerlane.dialects.gpu.graphs.graph import Child, Empty, Graph, Node
from peerlane.dialects.gpu.graphs.memory import Allocation, Free
from peerlane.dialects.gpu.graphs.operation import Operation
from peerlane.dialects.gpu.graphs.update import Mismatch
from peerlane.dialects.gpu.graphs.user_objects import UserObject
from peerlane.dialects.gpu.memory import Fill
from peerlane.dialects.gpu.streams import AnyStream
from peerlane.dialects.gpu.values import WordBatch
from peerlane.dialects.gpu.vendor import Reason
from peerlane.streams.callbacks import CFunction

graphs = gpu.graphs
_layout = Layout(calls.declarations.library())
_TYPES = enums["CUgraphNodeType"]
_KINDS = {number: name.removeprefix("CU_GRAPH_NODE_TYPE_") for name, number in _TYPES.items()}
_RESULTS = enums["CUgraphInstantiateResult"]
_DOT = enums["CUgraphDebugDot_flags"]
_HANDLES = _DOT["CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES"]
_ALL_DOT = sum(_DOT.values())
_INSTANTIATE = enums["CUgraphInstantiate_flags"]
_DEVICE_LAUNCH = _INSTANTIATE["CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH"]
_UPLOAD = _INSTANTIATE["CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD"]
_FLAGS = sum(_INSTANTIATE.values())
_OWNERSHIP = enums["CUgraphChildGraphNodeOwnership"]
_MOVE = _OWNERSHIP["CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE"]
_UPDATE_FAILED = gpu.vendor.code(Reason.UPDATE_FAILED)
_SET = enums["CUstreamUpdateCaptureDependencies_flags"]["CU_STREAM_SET_CAPTURE_DEPENDENCIES"]


def _unsupported(what: str, remedy: str) -> Refusal:
    return gpu.vendor.refusal(Reason.UNSUPPORTED, what, remedy)


def _refuse_edge_data(described: Sequence[Fields] | None) -> None:
    """Refuse edges of another type: they are for kernels."""
    for at, each in enumerate(described or ()):
        if each["from_port"] or each["to_port"] or each["type"]:
            raise _unsupported(
                f"the data of edge {at} is for kernels, which virtual devices do not run", "pass zeros"
            )


def _put(kind: Any, address: int, value: int) -> None:
    """Write a value to an address that may be NULL."""
    if address:
        kind.from_address(address).value = value


def _fill(count_address: int, columns: Sequence[tuple[int, Sequence[int]]], total: int) -> None:
    """Write handles to arrays of as many elements as the count says, and the count; NULL asks for the count."""
    count = ctypes.c_uint64.from_address(count_address)
    if not any(address for address, _ in columns):
        count.value = total
        return
    for address, handles in columns:
        if address:
            array = (ctypes.c_uint64 * count.value).from_address(address)
            array[:] = [handles[at] if at < total else 0 for at in range(count.value)]
    count.value = min(count.value, total)


def _clear_edge_data(address: int, count_address: int) -> None:
    """Write the data of edges, which is zero for each."""
    if address:
        size = ctypes.sizeof(_layout.struct("CUgraphEdgeData"))
        ctypes.memset(address, 0, size * ctypes.c_uint64.from_address(count_address).value)


def _handles(nodes: Iterable[Node]) -> list[int]:
    return [each.handle for each in nodes]


# Graphs.


@call
def cuGraphCreate(flags: int) -> int:
    refuse_flags(flags)
    return graphs.create().handle


@call
def cuGraphDestroy(hGraph: Graph) -> None:
    graphs.destroy(hGraph, "cuGraphDestroy")


@call
def cuGraphClone(originalGraph: Graph) -> int:
    return graphs.clone(originalGraph).handle


@call
def cuGraphNodeFindInClone(hOriginalNode: Node, hClonedGraph: Graph) -> int:
    return graphs.find_in_clone(hOriginalNode, hClonedGraph).handle


@call
def cuGraphGetNodes(hGraph: Graph, nodes: int, numNodes: int) -> None:
    _fill(numNodes, [(nodes, _handles(hGraph.nodes))], len(hGraph.nodes))


@call
def cuGraphGetRootNodes(hGraph: Graph, rootNodes: int, numRootNodes: int) -> None:
    roots = hGraph.roots
    _fill(numRootNodes, [(rootNodes, _handles(roots))], len(roots))


def _edges(hGraph: Graph, before: int, behind: int, numEdges: int) -> None:
    edges = hGraph.edges
    columns = [(before, _handles(one for one, _ in edges)), (behind, _handles(other for _, other in edges))]
    _fill(numEdges, columns, len(edges))


define("cuGraphGetEdges", _edges)


@call
def cuGraphGetEdges_v2(hGraph: Graph, before: int, behind: int, edgeData: int, numEdges: int) -> None:
    _clear_edge_data(edgeData, numEdges)
    _edges(hGraph, before, behind, numEdges)


def _neighbours(name: str, of: Callable[[Node], Iterable[Node]]) -> None:
    """Declare the calls that return the nodes before a node, or behind it."""

    def plain(hNode: Node, nodes: int, count: int) -> None:
        listed = list(of(hNode))
        _fill(count, [(nodes, _handles(listed))], len(listed))

    def with_data(hNode: Node, nodes: int, edgeData: int, count: int) -> None:
        _clear_edge_data(edgeData, count)
        plain(hNode, nodes, count)

    define(name, plain)
    define(f"{name}_v2", with_data)


_neighbours("cuGraphNodeGetDependencies", lambda node: node.dependencies)
_neighbours("cuGraphNodeGetDependentNodes", lambda node: node.dependents)


def _pairs(before: Sequence[int], behind: Sequence[int]) -> list[tuple[Node, Node]]:
    return list(zip(graphs.nodes(before), graphs.nodes(behind), strict=True))


@call
def cuGraphAddDependencies(
    hGraph: Graph, before: Sequence[int], behind: Sequence[int], numDependencies: int
) -> None:
    hGraph.connect(_pairs(before, behind))


@call
def cuGraphAddDependencies_v2(
    hGraph: Graph, before: Sequence[int], behind: Sequence[int], edgeData: Any, numDependencies: int
) -> None:
    _refuse_edge_data(edgeData)
    hGraph.connect(_pairs(before, behind))


@call
def cuGraphRemoveDependencies(
    hGraph: Graph, before: Sequence[int], behind: Sequence[int], numDependencies: int
) -> None:
    hGraph.disconnect(_pairs(before, behind))


@call
def cuGraphRemoveDependencies_v2(
    hGraph: Graph, before: Sequence[int], behind: Sequence[int], edgeData: Any, numDependencies: int
) -> None:
    _refuse_edge_data(edgeData)
    hGraph.disconnect(_pairs(before, behind))


@call
def cuGraphDestroyNode(hNode: Node) -> None:
    graphs.remove_node(hNode, "cuGraphDestroyNode")


@call
def cuGraphNodeGetType(hNode: Node) -> int:
    return _TYPES[f"CU_GRAPH_NODE_TYPE_{hNode.operation.kind}"]


@call
def cuGraphNodeGetContainingGraph(hNode: Node) -> int:
    return hNode.graph.handle


@call
def cuGraphNodeGetLocalId(hNode: Node) -> int:
    return hNode.number


@call
def cuGraphNodeGetToolsId(hNode: Node) -> int:
    return hNode.handle


@call
def cuGraphGetId(hGraph: Graph) -> int:
    return hGraph.number


@call
def cuGraphExecGetId(hGraphExec: Executable) -> int:
    return hGraphExec.number


@call
def cuGraphDebugDotPrint(hGraph: Graph, path: bytes | None, flags: int) -> None:
    refuse_flags(flags, _ALL_DOT)
    if not path:
        raise invalid("path is NULL or empty", "name a file")
    graphs.print(
        hGraph, path.decode(), has_details=bool(flags & ~_HANDLES), has_handles=bool(flags & _HANDLES)
    )


# What nodes do: each operation of a struct, and the struct of each operation.


#: What makes the copy of a struct of another library, by a field that this has.
copies_of: dict[str, Callable[[Fields], Copy]] = {}


def _copy_of(described: Fields) -> Copy:
    other = next((make for field, make in copies_of.items() if field in described), None)
    if other is not None:
        return other(described)
    box = box_of(described)
    if box is None:
        raise gpu.copies.empty()
    return box


def fill_of(described: Fields) -> Fill:
    """Return the fill that parameters describe."""
    if not described:
        raise invalid("the parameters are NULL", "pass a CUDA_MEMSET_NODE_PARAMS")
    layout = described["width"], described["height"], described["pitch"]
    return gpu.memory.fill_of(described["dst"], described["value"], described["elementSize"], layout)


def _host_call_of(described: Fields) -> HostCall:
    if not described:
        raise invalid("the parameters are NULL", "pass a CUDA_HOST_NODE_PARAMS")
    gpu.callbacks.refuse_no_code("fn", described["fn"])
    return HostCall(CFunction(described["fn"]), (described["userData"],))


def _batch_of(described: Fields) -> WordBatch:
    if not described:
        raise invalid("the parameters are NULL", "pass a CUDA_BATCH_MEM_OP_NODE_PARAMS")
    refuse_flags(described["flags"])
    count, address = described["count"], described["paramArray"]
    if not address:
        raise invalid("paramArray is NULL", "pass an array")
    array = (_layout.struct("CUstreamBatchMemOpParams_v1") * count).from_address(address)
    return WordBatch(gpu.values, words_of([_plain(each) for each in array], count))


def _plain(operation: Any) -> Fields:
    """Return a CUstreamBatchMemOpParams as the batches of streams have it: waits and writes lie alike."""
    lies = operation.waitValue
    word = {"address": lies.address, "value": lies.value, "value64": lies.value64, "flags": lies.flags}
    return {"operation": lies.operation, "waitValue": word, "writeValue": word}


_refuse_kernel = refusing("a graph's node with a kernel")
for _name in ("cuGraphAddKernelNode", "cuGraphAddKernelNode_v2"):
    define(_name, refusing(_name))


_MEMBERS: Mapping[str, tuple[str, Callable[[Fields], Operation]]] = {
    "MEMCPY": ("memcpy", lambda params: _copy_of(params["copyParams"])),
    "MEMSET": ("memset", fill_of),
    "HOST": ("host", _host_call_of),
    "EMPTY": ("", lambda params: Empty()),
    "WAIT_EVENT": ("eventWait", lambda params: _event(params["event"], "WAIT_EVENT")),
    "EVENT_RECORD": ("eventRecord", lambda params: _event(params["event"], "EVENT_RECORD")),
    "BATCH_MEM_OP": ("memOp", _batch_of),
}
_CONTEXTS = {"MEMCPY": "copyCtx", "MEMSET": "ctx", "BATCH_MEM_OP": "ctx"}


def _event(event: int | GpuEvent, kind: str) -> EventOperation:
    return EventOperation(gpu.events, kind, event if isinstance(event, GpuEvent) else gpu.events.of(event))


def _operation_of(described: Fields) -> Operation:
    """Return the operation that a CUgraphNodeParams describes; child graphs and memory are not among them."""
    kind = _KINDS.get(described["type"], str(described["type"]))
    if kind == "KERNEL":
        _refuse_kernel()
    if kind not in _MEMBERS:
        raise _unsupported(
            f"a {kind} node is not part of peerlane",
            "add copies, fills, host functions, events, memory, batches of words, child graphs or empty nodes",
        )
    member, make = _MEMBERS[kind]
    return make(described[member] if member else described)


def _allocate(graph: Graph, before: Sequence[Node], described: Fields) -> tuple[Node, Fields]:
    props = described["poolProps"]
    refuse_empty(described["bytesize"])
    if props["handleTypes"]:
        raise invalid("memory of a graph has no handle", "pass handleTypes of 0")
    location = location_of(props["location"], "poolProps")
    count = described["accessDescCount"]
    access = {}
    if count:
        array = _layout.struct("CUmemAccessDesc_v1") * count
        listed = [_access(each) for each in array.from_address(described["accessDescs"])]
        access = dict(rights_of_devices(listed, count))
    node, address = graphs.memory.add_allocation(graph, before, described["bytesize"], location, access)
    return node, {**described, "dptr": address}


def _access(described: Any) -> Fields:
    where = described.location
    return {"location": {"type": where.type, "id": where.id}, "flags": described.flags}


def _add(graph: Graph, before: Sequence[int], described: Fields) -> tuple[int, Fields]:
    """Add the node that a CUgraphNodeParams describes; return it and the struct with what was written."""
    nodes, kind = graphs.nodes(before), _KINDS.get(described["type"])
    written: Fields = {}
    if kind == "GRAPH":
        child = described["graph"]
        moves = child["ownership"] == _MOVE
        node = graphs.add_child(graph, nodes, graphs.of(child["graph"]), moves=moves)
    elif kind == "MEM_ALLOC":
        node, written = _allocate(graph, nodes, described["alloc"])
        written = {"alloc": written}
    elif kind == "MEM_FREE":
        node = graphs.memory.add_free(graph, nodes, described["free"]["dptr"])
    else:
        operation = _operation_of(described)
        member, _ = _MEMBERS[operation.kind]
        name = _CONTEXTS.get(operation.kind, "")
        context = described[member].get(name, 0) if name else 0
        node = graphs.add(graph, nodes, operation, gpu.contexts.of(context) if context else None)
    return node.handle, {**described, **written}


@call
def cuGraphAddNode(
    hGraph: Graph, dependencies: Sequence[int], numDependencies: int, nodeParams: Fields
) -> tuple[int, Fields]:
    node, written = _add(hGraph, dependencies, nodeParams)
    return node, _own(written)


def _own(described: Fields) -> Fields:
    """Return a CUgraphNodeParams with the member of its type alone: the members of a union overwrite each other."""
    members = {"MEM_ALLOC": "alloc", "GRAPH": "graph", "MEM_FREE": "free"}
    kind = _KINDS[described["type"]]
    member = members.get(kind) or _MEMBERS[kind][0]
    return {"type": described["type"], **({member: described[member]} if member else {})}


def _add_with_data(
    hGraph: Graph, dependencies: Sequence[int], dependencyData: Any, numDependencies: int, nodeParams: Fields
) -> tuple[int, Fields]:
    _refuse_edge_data(dependencyData)
    node, written = _add(hGraph, dependencies, nodeParams)
    return node, _own(written)


for _name in ("cuGraphAddNode_v2", "cuGraphAddNode_v3"):
    define(_name, _add_with_data)


def _context_of(handle: int) -> Any:
    return gpu.contexts.of(handle) if handle else None


@call
def cuGraphAddMemcpyNode(
    hGraph: Graph, dependencies: Sequence[int], numDependencies: int, copyParams: Fields, ctx: int
) -> int:
    before = graphs.nodes(dependencies)
    return graphs.add(hGraph, before, _copy_of(copyParams), _context_of(ctx)).handle


@call
def cuGraphAddMemsetNode(
    hGraph: Graph, dependencies: Sequence[int], numDependencies: int, memsetParams: Fields, ctx: int
) -> int:
    before = graphs.nodes(dependencies)
    return graphs.add(hGraph, before, fill_of(memsetParams), _context_of(ctx)).handle


@call
def cuGraphAddHostNode(
    hGraph: Graph, dependencies: Sequence[int], numDependencies: int, nodeParams: Fields
) -> int:
    return graphs.add(hGraph, graphs.nodes(dependencies), _host_call_of(nodeParams)).handle


@call
def cuGraphAddEmptyNode(hGraph: Graph, dependencies: Sequence[int], numDependencies: int) -> int:
    return graphs.add(hGraph, graphs.nodes(dependencies), Empty()).handle


@call
def cuGraphAddChildGraphNode(
    hGraph: Graph, dependencies: Sequence[int], numDependencies: int, childGraph: Graph
) -> int:
    return graphs.add_child(hGraph, graphs.nodes(dependencies), childGraph).handle


@call
def cuGraphAddEventRecordNode(
    hGraph: Graph, dependencies: Sequence[int], numDependencies: int, event: GpuEvent
) -> int:
    return graphs.add(hGraph, graphs.nodes(dependencies), _event(event, "EVENT_RECORD")).handle


@call
def cuGraphAddEventWaitNode(
    hGraph: Graph, dependencies: Sequence[int], numDependencies: int, event: GpuEvent
) -> int:
    return graphs.add(hGraph, graphs.nodes(dependencies), _event(event, "WAIT_EVENT")).handle


@call
def cuGraphAddBatchMemOpNode(
    hGraph: Graph, dependencies: Sequence[int], numDependencies: int, nodeParams: Fields
) -> int:
    before, operation = graphs.nodes(dependencies), _batch_of(nodeParams)
    return graphs.add(hGraph, before, operation, _context_of(nodeParams["ctx"])).handle


@call
def cuGraphAddMemAllocNode(
    hGraph: Graph, dependencies: Sequence[int], numDependencies: int, nodeParams: Fields
) -> tuple[int, Fields]:
    node, written = _allocate(hGraph, graphs.nodes(dependencies), nodeParams)
    return node.handle, written


@call
def cuGraphAddMemFreeNode(hGraph: Graph, dependencies: Sequence[int], numDependencies: int, dptr: int) -> int:
    return graphs.memory.add_free(hGraph, graphs.nodes(dependencies), dptr).handle


def of_kind(node: Node, kind: str) -> Any:
    """Return the operation of a node; refuse one of another kind."""
    if node.operation.kind != kind:
        raise invalid(f"the node is a {node.operation.kind} node", f"pass a {kind} node")
    return node.operation


@call
def cuGraphMemcpyNodeGetParams(hNode: Node) -> Fields:
    return fields.of_box(of_kind(hNode, "MEMCPY"))


@call
def cuGraphMemsetNodeGetParams(hNode: Node) -> Fields:
    return fields.of_fill(of_kind(hNode, "MEMSET"))


@call
def cuGraphHostNodeGetParams(hNode: Node) -> Fields:
    return fields.of_host_call(of_kind(hNode, "HOST"))


@call
def cuGraphChildGraphNodeGetGraph(hNode: Node) -> int:
    child: Child = of_kind(hNode, "GRAPH")
    return child.graph.handle


@call
def cuGraphEventRecordNodeGetEvent(hNode: Node) -> int:
    record: EventOperation = of_kind(hNode, "EVENT_RECORD")
    return record.event.handle


@call
def cuGraphEventWaitNodeGetEvent(hNode: Node) -> int:
    wait: EventOperation = of_kind(hNode, "WAIT_EVENT")
    return wait.event.handle


@call
def cuGraphMemAllocNodeGetParams(hNode: Node) -> Fields:
    return fields.of_allocation(of_kind(hNode, "MEM_ALLOC"))


@call
def cuGraphMemFreeNodeGetParams(hNode: Node) -> int:
    free: Free = of_kind(hNode, "MEM_FREE")
    return free.owned.address


def fields_of(node: Node) -> Fields:
    """Return what a node does as a CUgraphNodeParams."""
    operation = node.operation
    described: Fields = {}
    if isinstance(operation, Copy):
        described = {"memcpy": {"copyParams": fields.of_box(operation)}}
    elif isinstance(operation, Fill):
        described = {"memset": fields.of_fill(operation)}
    elif isinstance(operation, HostCall):
        described = {"host": fields.of_host_call(operation)}
    elif isinstance(operation, Child):
        described = {
            "graph": {
                "graph": operation.graph.handle,
                "ownership": _OWNERSHIP["CU_GRAPH_CHILD_GRAPH_OWNERSHIP_INVALID"],
            }
        }
    elif isinstance(operation, EventOperation):
        member = "eventWait" if operation.kind == "WAIT_EVENT" else "eventRecord"
        described = {member: {"event": operation.event.handle}}
    elif isinstance(operation, Allocation):
        described = {"alloc": fields.of_allocation(operation)}
    elif isinstance(operation, Free):
        described = {"free": {"dptr": operation.owned.address}}
    return {"type": _TYPES[f"CU_GRAPH_NODE_TYPE_{operation.kind}"], **described}


define("cuGraphNodeGetParams", fields_of)


@call
def cuGraphMemcpyNodeSetParams(hNode: Node, nodeParams: Fields) -> None:
    graphs.set_operation(hNode, _copy_of(nodeParams))


@call
def cuGraphMemsetNodeSetParams(hNode: Node, nodeParams: Fields) -> None:
    graphs.set_operation(hNode, fill_of(nodeParams))


@call
def cuGraphHostNodeSetParams(hNode: Node, nodeParams: Fields) -> None:
    graphs.set_operation(hNode, _host_call_of(nodeParams))


@call
def cuGraphBatchMemOpNodeSetParams(hNode: Node, nodeParams: Fields) -> None:
    graphs.set_operation(hNode, _batch_of(nodeParams))


@call
def cuGraphEventRecordNodeSetEvent(hNode: Node, event: GpuEvent) -> None:
    graphs.set_operation(hNode, _event(event, "EVENT_RECORD"))


@call
def cuGraphEventWaitNodeSetEvent(hNode: Node, event: GpuEvent) -> None:
    graphs.set_operation(hNode, _event(event, "WAIT_EVENT"))


def _set_params(hNode: Node, nodeParams: Fields) -> None:
    if not nodeParams:
        raise invalid("nodeParams is NULL", "pass a CUgraphNodeParams")
    graphs.set_operation(hNode, _operation_of(nodeParams))


for _name in ("cuGraphNodeSetParams", "cuGraphNodeSetParams_v2"):
    define(_name, _set_params)


# Executable graphs.


def _instantiate(graph: Graph, flags: int) -> int:
    if flags & _DEVICE_LAUNCH:
        raise _unsupported("virtual devices launch no graphs", "launch it from the host")
    return graphs.instantiate(graph, flags, _FLAGS).handle


@call
def cuGraphInstantiateWithFlags(hGraph: Graph, flags: int) -> int:
    return _instantiate(hGraph, flags)


def _instantiate_plain(hGraph: Graph, phErrorNode: int, logBuffer: int, bufferSize: int) -> int:
    cycle = graphs.unordered(hGraph)
    _put(ctypes.c_uint64, phErrorNode, cycle.handle if cycle is not None else 0)
    if logBuffer and bufferSize:
        ctypes.c_char.from_address(logBuffer).value = b"\0"
    return _instantiate(hGraph, 0)


for _name in ("cuGraphInstantiate", "cuGraphInstantiate_v2"):
    define(_name, _instantiate_plain)


@call
def cuGraphInstantiateWithParams(hGraph: Graph, instantiateParams: int) -> int:
    described = _layout.struct("CUDA_GRAPH_INSTANTIATE_PARAMS").from_address(instantiateParams)
    cycle = graphs.unordered(hGraph)
    described.hErrNode_out = cycle.handle if cycle is not None else 0
    result = "ERROR" if cycle is None else "INVALID_STRUCTURE"
    described.result_out = _RESULTS[f"CUDA_GRAPH_INSTANTIATE_{result}"]
    upload = gpu.streams.of(described.hUploadStream) if described.flags & _UPLOAD else None
    executable = _instantiate(hGraph, described.flags)
    described.result_out = _RESULTS["CUDA_GRAPH_INSTANTIATE_SUCCESS"]
    if upload is not None:
        graphs.upload(graphs.executable(executable), upload)
    return executable


@call
def cuGraphExecDestroy(hGraphExec: Executable) -> None:
    graphs.destroy_executable(hGraphExec, "cuGraphExecDestroy")


@call
def cuGraphExecGetFlags(hGraphExec: Executable) -> int:
    return hGraphExec.flags


@call
def cuGraphLaunch(hGraphExec: Executable, hStream: AnyStream) -> None:
    graphs.launch(hGraphExec, hStream)


@call
def cuGraphUpload(hGraphExec: Executable, hStream: AnyStream) -> None:
    graphs.upload(hGraphExec, hStream)


def _refuse_mismatch(mismatch: Mismatch) -> None:
    if mismatch.result:
        raise Refusal(_UPDATE_FAILED, mismatch.cause, "instantiate the graph anew")


@call
def cuGraphExecUpdate(
    hGraphExec: Executable, hGraph: Graph, hErrorNode_out: int, updateResult_out: int
) -> None:
    mismatch = graphs.update(hGraphExec, hGraph)
    _put(ctypes.c_uint64, hErrorNode_out, mismatch.node.handle if mismatch.node is not None else 0)
    _put(ctypes.c_int32, updateResult_out, mismatch.result)
    _refuse_mismatch(mismatch)


@call
def cuGraphExecUpdate_v2(hGraphExec: Executable, hGraph: Graph, resultInfo: int) -> None:
    mismatch = graphs.update(hGraphExec, hGraph)
    written = _layout.struct("CUgraphExecUpdateResultInfo_v1").from_address(resultInfo)
    written.result = mismatch.result
    written.errorNode = mismatch.node.handle if mismatch.node is not None else 0
    written.errorFromNode = mismatch.other.handle if mismatch.other is not None else 0
    _refuse_mismatch(mismatch)


@call
def cuGraphExecMemcpyNodeSetParams(hGraphExec: Executable, hNode: Node, copyParams: Fields, ctx: int) -> None:
    graphs.set_step(hGraphExec, hNode, _copy_of(copyParams))


@call
def cuGraphExecMemsetNodeSetParams(
    hGraphExec: Executable, hNode: Node, memsetParams: Fields, ctx: int
) -> None:
    graphs.set_step(hGraphExec, hNode, fill_of(memsetParams))


@call
def cuGraphExecHostNodeSetParams(hGraphExec: Executable, hNode: Node, nodeParams: Fields) -> None:
    graphs.set_step(hGraphExec, hNode, _host_call_of(nodeParams))


@call
def cuGraphExecBatchMemOpNodeSetParams(hGraphExec: Executable, hNode: Node, nodeParams: Fields) -> None:
    graphs.set_step(hGraphExec, hNode, _batch_of(nodeParams))


@call
def cuGraphExecChildGraphNodeSetParams(hGraphExec: Executable, hNode: Node, childGraph: Graph) -> None:
    graphs.set_child(hGraphExec, hNode, childGraph)


@call
def cuGraphExecEventRecordNodeSetEvent(hGraphExec: Executable, hNode: Node, event: GpuEvent) -> None:
    graphs.set_step(hGraphExec, hNode, _event(event, "EVENT_RECORD"))


@call
def cuGraphExecEventWaitNodeSetEvent(hGraphExec: Executable, hNode: Node, event: GpuEvent) -> None:
    graphs.set_step(hGraphExec, hNode, _event(event, "WAIT_EVENT"))


@call
def cuGraphExecNodeSetParams(hGraphExec: Executable, hNode: Node, nodeParams: Fields) -> None:
    if not nodeParams:
        raise invalid("nodeParams is NULL", "pass a CUgraphNodeParams")
    if _KINDS.get(nodeParams["type"]) == "GRAPH":
        graphs.set_child(hGraphExec, hNode, graphs.of(nodeParams["graph"]["graph"]))
    else:
        graphs.set_step(hGraphExec, hNode, _operation_of(nodeParams))


@call
def cuGraphNodeSetEnabled(hGraphExec: Executable, hNode: Node, isEnabled: int) -> None:
    graphs.enable(hGraphExec, hNode, bool(isEnabled))


@call
def cuGraphNodeGetEnabled(hGraphExec: Executable, hNode: Node) -> int:
    return int(graphs.is_enabled(hGraphExec, hNode))


# User objects, and the memory that a device has for graphs.


@call
def cuUserObjectCreate(ptr: int, destroy: Any, initialRefcount: int, flags: int) -> int:
    if destroy is None or flags != 1:
        raise invalid(
            f"destroy is {'NULL' if destroy is None else 'a function'}, flags are {flags}",
            "pass a function, and CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, 1",
        )
    return graphs.create_user_object(lambda: destroy(ptr), initialRefcount).handle


@call
def cuUserObjectRetain(object: UserObject, count: int) -> None:
    graphs.retain_user_object(object, count)


@call
def cuUserObjectRelease(object: UserObject, count: int) -> None:
    graphs.release_user_object(object, count)


@call
def cuGraphRetainUserObject(graph: Graph, object: UserObject, count: int, flags: int) -> None:
    refuse_flags(flags, 1)
    graphs.retain_by_graph(graph, object, count, moves=bool(flags))


@call
def cuGraphReleaseUserObject(graph: Graph, object: UserObject, count: int) -> None:
    graphs.release_by_graph(graph, object, count)


@call
def cuDeviceGetGraphMemAttribute(device: Device, attr: int, value: int) -> None:
    ctypes.c_uint64.from_address(value).value = graphs.memory.attribute(device, attr)


@call
def cuDeviceSetGraphMemAttribute(device: Device, attr: int, value: int) -> None:
    graphs.memory.reset_high(device, attr, ctypes.c_uint64.from_address(value).value)


@call
def cuDeviceGraphMemTrim(device: Device) -> None:
    graphs.memory.trim(device)


# Captures.


@call
def cuStreamBeginCapture(hStream: AnyStream) -> None:
    graphs.begin_capture(hStream, 0)


@call
def cuStreamBeginCapture_v2(hStream: AnyStream, mode: int) -> None:
    graphs.begin_capture(hStream, mode)


@call
def cuStreamBeginCaptureToGraph(
    hStream: AnyStream,
    hGraph: Graph,
    dependencies: Sequence[int],
    dependencyData: Any,
    numDependencies: int,
    mode: int,
) -> None:
    _refuse_edge_data(dependencyData)
    graphs.begin_capture(hStream, mode, hGraph, graphs.nodes(dependencies))


@call
def cuStreamEndCapture(hStream: AnyStream) -> int:
    """Return the graph; the program gets NULL where the capture is no graph."""
    try:
        return graphs.end_capture(hStream).handle
    except Refusal as refusal:
        refusal.outputs = (0,)
        raise


@call
def cuStreamIsCapturing(hStream: AnyStream) -> int:
    captured = graphs.captured(hStream)
    return NONE if captured is None or captured.capture is None else captured.capture.state


#: The arrays of dependencies that a program may read until its next call about the stream.
_arrays: dict[int, Any] = {}


def _info(stream: AnyStream, dependencies_out: int, edgeData_out: int = 0) -> tuple[int, int, int, int]:
    """Return the status, the capture's number, its graph and the number of dependencies."""
    captured = graphs.captured(stream)
    capture = None if captured is None else captured.capture
    if captured is None or capture is None:
        return NONE, 0, 0, 0
    if capture.state != ACTIVE:
        return capture.state, 0, 0, 0
    nodes = _handles(capture.dependencies[captured])
    array = (ctypes.c_uint64 * (2 * max(len(nodes), 1)))(*nodes)  # the data of edges behind the nodes
    _arrays[stream.handle] = array
    _put(ctypes.c_uint64, dependencies_out, ctypes.addressof(array))
    _put(ctypes.c_uint64, edgeData_out, ctypes.addressof(array) + ctypes.sizeof(array) // 2)
    return ACTIVE, capture.number, capture.graph.handle, len(nodes)


@call
def cuStreamGetCaptureInfo(hStream: AnyStream) -> tuple[int, int]:
    status, number, *_ = _info(hStream, 0)
    return status, number


@call
def cuStreamGetCaptureInfo_v2(hStream: AnyStream, dependencies_out: int) -> tuple[int, int, int, int]:
    return _info(hStream, dependencies_out)


@call
def cuStreamGetCaptureInfo_v3(
    hStream: AnyStream, dependencies_out: int, edgeData_out: int
) -> tuple[int, int, int, int]:
    return _info(hStream, dependencies_out, edgeData_out)


def _change_dependencies(stream: AnyStream, dependencies: Sequence[int], flags: int) -> None:
    refuse_flags(flags, _SET)
    graphs.change_dependencies(stream, graphs.nodes(dependencies), replaces=flags == _SET)


@call
def cuStreamUpdateCaptureDependencies(
    hStream: AnyStream, dependencies: Sequence[int], numDependencies: int, flags: int
) -> None:
    _change_dependencies(hStream, dependencies, flags)


@call
def cuStreamUpdateCaptureDependencies_v2(
    hStream: AnyStream, dependencies: Sequence[int], dependencyData: Any, numDependencies: int, flags: int
) -> None:
    _refuse_edge_data(dependencyData)
    _change_dependencies(hStream, dependencies, flags)


@call
def cuThreadExchangeStreamCaptureMode(mode: int) -> int:
    return graphs.exchange_mode(mode)
