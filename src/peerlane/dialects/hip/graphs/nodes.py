"""``hip``: the nodes of graphs (facts/hip 3.15).

Kernels, symbols, external semaphores and arrays are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from peerlane.dialects.gpu.callbacks import HostCall
from peerlane.dialects.gpu.copies import Copy
from peerlane.dialects.gpu.events import EventOperation
from peerlane.dialects.gpu.graphs import fields
from peerlane.dialects.gpu.graphs.fields import Fields
from peerlane.dialects.gpu.graphs.graph import Child, Empty, Graph, Node
from peerlane.dialects.gpu.graphs.operation import Operation
from peerlane.dialects.gpu.memory import Fill
from peerlane.dialects.gpu.values import MOST_OPERATIONS, WordBatch
from peerlane.dialects.hip.binding.checks import refuse_bits, refuse_no_struct
from peerlane.dialects.hip.binding.convention import INVALID_DIRECTION, invalid, member, refusal
from peerlane.dialects.hip.binding.pointers import read, write
from peerlane.dialects.hip.binding.results import fill, put, put_fields, struct
from peerlane.dialects.hip.binding.results import handle as handle_of
from peerlane.dialects.hip.copies.boxes import described, pitched
from peerlane.dialects.hip.copies.memcpy import with_device
from peerlane.dialects.hip.devices.peers import device_of
from peerlane.dialects.hip.graphs.graph import OnNode, graph_handle, graphs, kind_name, node_handle, nodes_at
from peerlane.dialects.hip.state import calls, gpu
from peerlane.dialects.hip.streams.events import events
from peerlane.dialects.hip.streams.values import operation_of
from peerlane.streams.callbacks import CFunction

_WORD = 8
_UNION = 16  # where the parameters begin in a hipGraphNodeParams
_NODE = "hipErrorInvalidValue not a graph, a dependency that is not a node of it or is there twice"


# Operations of structs.


def _copy_of(prepared: Copy | None) -> Copy:
    if prepared is None:
        raise gpu.copies.empty()
    return prepared


def _box(params: Any) -> Copy:
    refuse_no_struct("hipMemcpy3DParms", "the parameters", params)
    return _copy_of(pitched(params, member(params, "kind", INVALID_DIRECTION)))


def _line(dst: int, src: int, count: int, kind: Any) -> Copy:
    return gpu.copies.line(dst, src, count, with_device(kind))


def _fill(params: Any) -> Fill:
    refuse_no_struct("hipMemsetParams", "the parameters", params)
    layout = params.width, params.height, params.pitch
    return gpu.memory.fill_of(int(params.dst), params.value, params.elementSize, layout)


def _host_call(params: Any) -> HostCall:
    refuse_no_struct("hipHostNodeParams", "the parameters", params)
    code = int(params.fn)
    gpu.callbacks.refuse_no_code("fn", code)
    return HostCall(CFunction(code), (int(params.userData),))


def _batch(params: Any) -> WordBatch:
    refuse_no_struct("hipBatchMemOpNodeParams", "the parameters", params)
    count, array = params.count, int(params.paramArray)
    refuse_bits(0, "flags", params.flags)
    if not array or not 0 < count <= MOST_OPERATIONS:
        raise invalid(
            f"there are {count} operations at {array:#x}", f"pass an array of 1 to {MOST_OPERATIONS}"
        )
    elements = struct("hipStreamBatchMemOpParams_union").fromObj(array)
    return WordBatch(gpu.values, tuple(operation_of(elements, at) for at in range(count)))


def _record(event: int) -> EventOperation:
    return EventOperation(events, "EVENT_RECORD", events.of(event))


def _wait(event: int) -> EventOperation:
    return EventOperation(events, "WAIT_EVENT", events.of(event))


# Calls that add a node.


def _declare_add(name: str, add: Callable[..., Node], does: str, refuses: str, basis: str = "D") -> None:
    """Declare a call that adds a node: ``add`` gets the graph, the dependencies, and the other arguments."""

    def body(graph: int, dependencies: int, count: int, *others: Any) -> Any:
        on = graphs.of(graph)
        before = nodes_at("pDependencies", dependencies, count, len(on.nodes))
        return node_handle(add(on, before, *others))

    doc = f"""{does}

    The call of hip-python 7.2 has no dependencies.

    Gives: node
    Refuses: {_NODE}{f"; {refuses}" if refuses else ""}
    Basis: {basis}
    """
    calls.declare(name, body, doc, __name__)

    @calls.declare_overload(name, "earlier")
    def without_dependencies(graph: int, count: int, *others: Any) -> tuple[Any, None]:
        return body(graph, 0, count, *others), None


def _of(make: Callable[..., Operation]) -> Callable[..., Node]:
    """Return what adds the operation that a function makes of the arguments."""
    return lambda graph, before, *arguments: graphs.add(graph, before, make(*arguments))


def _in_context(make: Callable[..., Operation]) -> Callable[..., Node]:
    """Return what adds an operation, whose arguments have a context behind them."""

    def add(graph: Graph, before: Sequence[Node], *arguments: Any) -> Node:
        *own, context = arguments
        return graphs.add(graph, before, make(*own), gpu.contexts.of(context) if context else None)

    return add


_declare_add("hipGraphAddEmptyNode", _of(Empty), "Add a node that does nothing.", "")
_declare_add(
    "hipGraphAddMemcpyNode",
    _of(_box),
    "Add the copy of a box.",
    "as `hipMemcpy3D`; hipErrorInvalidValue no bytes",
)
_declare_add("hipGraphAddMemcpyNode1D", _of(_line), "Add a copy of bytes.", "as `hipMemcpy`, no bytes")
_declare_add(
    "hipDrvGraphAddMemcpyNode",
    _in_context(lambda params: _copy_of(described(params))),
    "Add the copy of a box that a HIP_MEMCPY3D describes.",
    "as `hipDrvMemcpy3D`; hipErrorInvalidContext the context",
)
_declare_add(
    "hipGraphAddMemsetNode",
    _of(_fill),
    "Add a fill of rows with elements of 1, 2 or 4 bytes.",
    "as `hipMemset2D`; hipErrorInvalidValue NULL, other elements, no elements",
)
_declare_add(
    "hipDrvGraphAddMemsetNode",
    _in_context(_fill),
    "Do what hipGraphAddMemsetNode does, on the device of a context.",
    "as `hipGraphAddMemsetNode`; hipErrorInvalidContext the context",
)
_declare_add(
    "hipGraphAddHostNode",
    _of(_host_call),
    "Add a call of a function of the host, which the program keeps.",
    "hipErrorInvalidValue NULL, no code",
)
_declare_add(
    "hipGraphAddChildGraphNode",
    lambda graph, before, child: graphs.add_child(graph, before, graphs.of(child)),
    "Add a copy of a graph as a node.",
    "hipErrorInvalidValue not a graph, one with nodes that allocate or free memory",
)
_declare_add(
    "hipGraphAddEventRecordNode",
    _of(_record),
    "Add the record of an event.",
    "hipErrorInvalidHandle no event",
)
_declare_add(
    "hipGraphAddEventWaitNode", _of(_wait), "Add a wait for an event.", "hipErrorInvalidHandle no event"
)
_declare_add(
    "hipGraphAddBatchMemOpNode",
    lambda graph, before, params: graphs.add(graph, before, _batch(params)),
    "Add waits for words of memory and writes of them.",
    "as `hipStreamBatchMemOp`",
)


def _allocate(graph: Graph, before: Sequence[Node], params: Any) -> Node:
    refuse_no_struct("hipMemAllocNodeParams", "the parameters", params)
    if not params.bytesize:
        raise invalid("0 bytes are asked for", "ask for 1 or more")
    location = params.poolProps.location
    device = gpu.locations.device(int(location.type), location.id, "poolProps")
    node, address = graphs.memory.add_allocation(graph, before, params.bytesize, device)
    put(params, "dptr", address.to_bytes(_WORD, "little"))
    return node


_declare_add(
    "hipGraphAddMemAllocNode",
    _allocate,
    "Add the allocation of memory, whose address is written to ``dptr``; it never changes.",
    "hipErrorInvalidValue NULL, no bytes, a location that is not a device; hipErrorOutOfMemory",
)
for _name in ("hipGraphAddMemFreeNode", "hipDrvGraphAddMemFreeNode"):
    _declare_add(
        _name,
        graphs.memory.add_free,
        "Add the free of memory that a node allocates.",
        "hipErrorInvalidValue memory that no node allocates, or that a node frees already",
    )


def _in_union(name: str, params: Any) -> Any:
    """Return the parameters of one type in a hipGraphNodeParams."""
    return struct(name).fromObj(int(params) + _UNION)


_MAKERS: dict[str, Callable[[Any], Operation]] = {
    "Memcpy": lambda params: _box(_in_union("hipMemcpyNodeParams", params).copyParams),
    "Memset": lambda params: _fill(_in_union("hipMemsetParams", params)),
    "Host": lambda params: _host_call(_in_union("hipHostNodeParams", params)),
    "Empty": lambda params: Empty(),
    "WaitEvent": lambda params: _wait(int(_in_union("hipEventWaitNodeParams", params).event)),
    "EventRecord": lambda params: _record(int(_in_union("hipEventRecordNodeParams", params).event)),
}


def operation_in(params: Any) -> Operation:
    """Return the operation that a hipGraphNodeParams describes; child graphs and memory are not among them."""
    kind = _kind_of(params)
    if kind not in _MAKERS:
        raise refusal(
            "hipErrorNotSupported",
            f"a node of type {kind} is not part of peerlane: virtual devices run no kernels",
            "add copies, fills, host functions, events, memory, child graphs or empty nodes",
        )
    return _MAKERS[kind](params)


def _kind_of(params: Any) -> str:
    refuse_no_struct("hipGraphNodeParams", "nodeParams", params)
    return str(member(params, "type").name.removeprefix("hipGraphNodeType"))


def child_in(params: Any) -> Graph | None:
    """Return the graph of a hipGraphNodeParams for a child graph; None for any other."""
    if _kind_of(params) != "Graph":
        return None
    return graphs.of(int(_in_union("hipChildGraphNodeParams", params).graph))


def _add_any(graph: Graph, before: Sequence[Node], params: Any) -> Node:
    kind, child = _kind_of(params), child_in(params)
    if child is not None:
        return graphs.add_child(graph, before, child)
    if kind == "MemAlloc":
        return _allocate(graph, before, _in_union("hipMemAllocNodeParams", params))
    if kind == "MemFree":
        address = int(_in_union("hipMemFreeNodeParams", params).dptr)
        return graphs.memory.add_free(graph, before, address)
    return graphs.add(graph, before, operation_in(params))


_declare_add(
    "hipGraphAddNode",
    _add_any,
    "Add a node of any type that peerlane has.",
    "hipErrorInvalidValue NULL, as the call for the type; hipErrorInvalidHandle no event; hipErrorInvalidPitchValue, "
    "hipErrorInvalidMemcpyDirection as `hipMemcpy3D`; hipErrorOutOfMemory; hipErrorNotSupported kernels, symbols, "
    "external semaphores, arrays",
)


# Calls that read and set parameters.


def _of_kind(node: Node, kind: str) -> Any:
    if node.operation.kind != kind:
        raise invalid(
            f"the node is of type {kind_name(node.operation.kind)}", f"pass one of {kind_name(kind)}"
        )
    return node.operation


def _declare_set(names: tuple[str, str], make: Callable[..., Operation], does: str, refuses: str) -> None:
    """Declare the call that sets the parameters of a node, and that for a node of an executable graph."""

    def of_graph(node: int, *arguments: Any) -> None:
        graphs.set_operation(graphs.node(node), make(*arguments))

    def of_executable(executable: int, node: int, *arguments: Any) -> None:
        graphs.set_step(graphs.executable(executable), graphs.node(node), make(*arguments))

    own = f"hipErrorInvalidValue not a node, a node of another type; {refuses}"
    calls.declare(
        names[0],
        of_graph,
        f"Set {does} of a node; executable graphs stay as they are.\n\nRefuses: {own}\nBasis: D",
        __name__,
    )
    calls.declare(
        names[1],
        of_executable,
        f"Set {does} of a node in later launches of an executable graph.\n\n"
        f"Refuses: {own}; hipErrorInvalidValue not an executable graph, a node of another graph, what an executable "
        "graph cannot change\nBasis: D",
        __name__,
    )


_declare_set(
    ("hipGraphMemcpyNodeSetParams", "hipGraphExecMemcpyNodeSetParams"), _box, "the copy", "as `hipMemcpy3D`"
)
_declare_set(
    ("hipGraphMemcpyNodeSetParams1D", "hipGraphExecMemcpyNodeSetParams1D"),
    _line,
    "the copy",
    "as `hipMemcpy`, no bytes",
)
_declare_set(
    ("hipGraphMemsetNodeSetParams", "hipGraphExecMemsetNodeSetParams"),
    _fill,
    "the fill",
    "as `hipGraphAddMemsetNode`",
)
_declare_set(
    ("hipGraphHostNodeSetParams", "hipGraphExecHostNodeSetParams"),
    _host_call,
    "the function",
    "as `hipGraphAddHostNode`",
)
_declare_set(
    ("hipGraphEventRecordNodeSetEvent", "hipGraphExecEventRecordNodeSetEvent"),
    _record,
    "the event",
    "hipErrorInvalidHandle no event",
)
_declare_set(
    ("hipGraphEventWaitNodeSetEvent", "hipGraphExecEventWaitNodeSetEvent"),
    _wait,
    "the event",
    "hipErrorInvalidHandle no event",
)
_declare_set(
    ("hipGraphBatchMemOpNodeSetParams", "hipGraphExecBatchMemOpNodeSetParams"),
    _batch,
    "the operations",
    "as `hipStreamBatchMemOp`",
)


@calls.call("hipDrvGraphExecMemcpyNodeSetParams")
def hipDrvGraphExecMemcpyNodeSetParams(hGraphExec: int, hNode: int, copyParams: Any, ctx: int) -> None:
    """Do what hipGraphExecMemcpyNodeSetParams does, with a HIP_MEMCPY3D; the context is ignored.

    Refuses: as `hipGraphExecMemcpyNodeSetParams`; as `hipDrvMemcpy3D`
    Basis: D
    """
    copy = _copy_of(described(copyParams))
    graphs.set_step(graphs.executable(hGraphExec), graphs.node(hNode), copy)


@calls.call("hipDrvGraphExecMemsetNodeSetParams")
def hipDrvGraphExecMemsetNodeSetParams(hGraphExec: int, hNode: int, memsetParams: Any, ctx: int) -> None:
    """Do what hipGraphExecMemsetNodeSetParams does; the context is ignored.

    Refuses: as `hipGraphExecMemsetNodeSetParams`
    Basis: D
    """
    graphs.set_step(graphs.executable(hGraphExec), graphs.node(hNode), _fill(memsetParams))


@calls.call("hipGraphNodeSetParams")
def hipGraphNodeSetParams(node: int, nodeParams: Any) -> None:
    """Set the parameters of a node of any type but child graphs and memory; executable graphs stay as they are.

    Refuses: as `hipGraphAddNode`; hipErrorInvalidValue not a node, a node of another type
    Basis: D
    """
    graphs.set_operation(graphs.node(node), operation_in(nodeParams))


@calls.call("hipGraphExecNodeSetParams")
def hipGraphExecNodeSetParams(graphExec: int, node: int, nodeParams: Any) -> None:
    """Set the parameters of a node of any type but memory in later launches of an executable graph.

    Refuses: as `hipGraphNodeSetParams`; hipErrorInvalidValue not an executable graph, a node of another graph, what
        an executable graph cannot change
    Basis: D
    """
    executable, on = graphs.executable(graphExec), graphs.node(node)
    child = child_in(nodeParams)
    if child is not None:
        graphs.set_child(executable, on, child)
    else:
        graphs.set_step(executable, on, operation_in(nodeParams))


def _declare_get(name: str, returned: str, kind: str, fields_of: Callable[[Any], Fields], what: str) -> None:
    """Declare the call that returns the parameters of a node: a struct, which hip-python 7.2 fills."""

    def parameters(node: int) -> Any:
        params = struct(returned)()
        put_fields(params, fields_of(_of_kind(graphs.node(node), kind)))
        return params

    doc = f"""Return {what}

    Gives: a {returned}
    Refuses: hipErrorInvalidValue not a node, a node of another type
    Basis: D{"; C for the kind" if returned == "hipMemcpy3DParms" else ""}
    """
    calls.declare(name, parameters, doc, __name__)

    @calls.declare_overload(name, "earlier")
    def fill_struct(node: int, params: Any) -> None:
        fill(refuse_no_struct(returned, "the parameters", params), parameters(node))


_declare_get(
    "hipGraphMemcpyNodeGetParams",
    "hipMemcpy3DParms",
    "MEMCPY",
    fields.of_pitched,
    "the copy of a node; its kind is hipMemcpyDefault.",
)
_declare_get("hipDrvGraphMemcpyNodeGetParams", "HIP_MEMCPY3D", "MEMCPY", fields.of_box, "the copy of a node.")
_declare_get(
    "hipGraphMemsetNodeGetParams", "hipMemsetParams", "MEMSET", fields.of_fill, "the fill of a node."
)
_declare_get(
    "hipGraphHostNodeGetParams",
    "hipHostNodeParams",
    "HOST",
    fields.of_host_call,
    "the function of a node and its argument.",
)
_declare_get(
    "hipGraphMemAllocNodeGetParams",
    "hipMemAllocNodeParams",
    "MEM_ALLOC",
    fields.of_allocation,
    "the allocation of a node, with the address.",
)


@calls.call("hipGraphMemFreeNodeGetParams")
def hipGraphMemFreeNodeGetParams(node: OnNode, dev_ptr: int) -> None:
    """Write the address that a node frees to ``dev_ptr``.

    Refuses: hipErrorInvalidValue not a node, a node of another type, NULL
    Basis: D
    """
    address = _of_kind(node, "MEM_FREE").owned.address
    if not dev_ptr:
        raise invalid("dev_ptr is NULL", "pass where to write the address")
    write(dev_ptr, address.to_bytes(_WORD, "little"))


@calls.call("hipGraphChildGraphNodeGetGraph")
def hipGraphChildGraphNodeGetGraph(node: OnNode) -> Any:
    """Return the graph of a node, which ends with it.

    Gives: graph
    Refuses: hipErrorInvalidValue not a node, a node of another type
    Basis: D
    """
    child: Child = _of_kind(node, "GRAPH")
    return graph_handle(child.graph)


def _declare_event(name: str, kind: str) -> None:
    def event_of(node: int) -> Any:
        return handle_of("ihipEvent_t", _of_kind(graphs.node(node), kind).event.handle)

    doc = """Return the event of a node.

    Gives: event
    Refuses: hipErrorInvalidValue not a node, a node of another type
    Basis: D
    """
    calls.declare(name, event_of, doc, __name__)


_declare_event("hipGraphEventRecordNodeGetEvent", "EVENT_RECORD")
_declare_event("hipGraphEventWaitNodeGetEvent", "WAIT_EVENT")


# The memory that a device has for graphs.


@calls.call("hipDeviceGetGraphMemAttribute")
def hipDeviceGetGraphMemAttribute(device: int, attr: Any, value: int) -> None:
    """Write the bytes that graphs have of a device, or the most that they had, to ``value``: 8 bytes.

    Refuses: hipErrorInvalidDevice the id; hipErrorInvalidValue NULL
    Basis: D
    """
    on = device_of(device)
    if not value:
        raise invalid("value is NULL", "pass where to write 8 bytes")
    gpu.regions.refuse_beyond("value", value, _WORD)
    write(value, graphs.memory.attribute(on, int(attr)).to_bytes(_WORD, "little"))


@calls.call("hipDeviceSetGraphMemAttribute")
def hipDeviceSetGraphMemAttribute(device: int, attr: Any, value: int) -> None:
    """Reset a high mark.

    Refuses: hipErrorInvalidDevice the id; hipErrorInvalidValue NULL, a value other than 0, another attribute
    Basis: D
    """
    on = device_of(device)
    if not value:
        raise invalid("value is NULL", "pass the address of 8 bytes of 0")
    gpu.regions.refuse_beyond("value", value, _WORD)
    graphs.memory.reset_high(on, int(attr), int.from_bytes(read(value, _WORD), "little"))


@calls.call("hipDeviceGraphMemTrim")
def hipDeviceGraphMemTrim(device: int) -> None:
    """Let memory that no launch uses count as unused; the device has it back with the end of its graph.

    Refuses: hipErrorInvalidDevice the id
    Basis: D; C for what stays reserved
    """
    graphs.memory.trim(device_of(device))
