"""``hip``: graphs and their edges (facts/hip 3.15)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from peerlane.dialects._shared.call import Check
from peerlane.dialects.gpu.graphs.graph import Graph, Node
from peerlane.dialects.hip.binding import members
from peerlane.dialects.hip.binding.checks import NoFlags, refuse_null
from peerlane.dialects.hip.binding.convention import invalid
from peerlane.dialects.hip.binding.enums import enumeration
from peerlane.dialects.hip.binding.pointers import read, write
from peerlane.dialects.hip.binding.results import handle as handle_of
from peerlane.dialects.hip.state import calls, gpu

graphs = gpu.graphs
OnGraph = Annotated[Graph, Check(lambda name: graphs.of)]
OnNode = Annotated[Node, Check(lambda name: graphs.node)]
_WORD = 8
_DOT = members("hipGraphDebugDotFlags")
_HANDLES = _DOT["hipGraphDebugDotFlagsHandles"]
_DETAILS = sum(
    _DOT[f"hipGraphDebugDotFlags{each}"]
    for each in (
        "Verbose",
        *(f"{kind}NodeParams" for kind in ("Kernel", "Memcpy", "Memset", "Host", "Event")),
    )
)


def graph_handle(graph: Graph) -> Any:
    """Return the handle of a graph."""
    return handle_of("ihipGraph", graph.handle)


def node_handle(node: Node | None) -> Any:
    """Return the handle of a node, NULL for None."""
    return handle_of("hipGraphNode", 0 if node is None else node.handle)


def nodes_at(name: str, address: int, count: int, most: int) -> tuple[Node, ...]:
    """Return the nodes of an array; ``most`` is how many there can be."""
    if not count:
        return ()
    refuse_null(name, address)
    if count > most:
        raise invalid(
            f"{count:,} are announced, and the graph has room for {most:,}", "pass the number of them"
        )
    gpu.regions.refuse_beyond(name, address, _WORD * count)
    words = memoryview(read(address, _WORD * count)).cast("Q")
    return tuple(map(graphs.node, words))


def kind_name(kind: str) -> str:
    """Return HIP's name of a kind of nodes: ``hipGraphNodeTypeWaitEvent``."""
    return "hipGraphNodeType" + "".join(each.capitalize() for each in kind.split("_"))


@calls.call("hipGraphCreate")
def hipGraphCreate(flags: NoFlags) -> Any:
    """Create an empty graph.

    Gives: graph
    Refuses: hipErrorInvalidValue flags
    Basis: D
    """
    return graph_handle(graphs.create())


@calls.call("hipGraphDestroy")
def hipGraphDestroy(graph: OnGraph) -> None:
    """Destroy a graph with its nodes; executable graphs that were made of it stay.

    Refuses: hipErrorInvalidValue not a graph, one that belongs to a node or that a capture adds to
    Basis: D
    """
    graphs.destroy(graph, "hipGraphDestroy")


@calls.call("hipGraphClone")
def hipGraphClone(originalGraph: OnGraph) -> Any:
    """Copy a graph, with its child graphs.

    Gives: graph
    Refuses: hipErrorInvalidValue not a graph, one with nodes that allocate or free memory
    Basis: D
    """
    return graph_handle(graphs.clone(originalGraph))


@calls.call("hipGraphNodeFindInClone")
def hipGraphNodeFindInClone(originalNode: OnNode, clonedGraph: OnGraph) -> Any:
    """Return the node of a clone that was made of a node.

    Gives: node
    Refuses: hipErrorInvalidValue not a node, not a graph, a graph that is not a clone of the node's
    Basis: D
    """
    return node_handle(graphs.find_in_clone(originalNode, clonedGraph))


def _fill(count_address: int, columns: Sequence[tuple[int, Sequence[Node]]]) -> int:
    """Write handles to arrays of as many elements as the count says; return how many there are."""
    refuse_null("the number", count_address)
    total = len(columns[0][1])
    wanted = int.from_bytes(read(count_address, _WORD), "little")
    if not any(address for address, _ in columns):
        write(count_address, total.to_bytes(_WORD, "little"))
        return total
    for address, nodes in columns:
        words = [each.handle for each in nodes[:wanted]]
        words += [0] * (
            min(wanted, total + 1) - len(words)
        )  # one NULL behind the last: more may be no memory
        if address and words:
            write(address, bytes((ctypes.c_uint64 * len(words))(*words)))
    write(count_address, min(wanted, total).to_bytes(_WORD, "little"))
    return min(wanted, total)


def _declare_list(
    name: str, of: Callable[[int], list[list[Node]]], does: str, what: str, refuses: str
) -> None:
    """Declare a call that returns nodes: the first of each column and their number, or all of them in C."""

    def first(handle: int) -> tuple[Any, ...]:
        columns = of(handle)
        return *(node_handle(each[0] if each else None) for each in columns), len(columns[0])

    doc = f"""{does}

    The call of hip-python has room for one.  With the arguments of C, the addresses of arrays and of their number,
    it fills them; NULL for the arrays asks for the number alone.

    Gives: {what}, their number
    Refuses: {refuses}; NULL for the number
    Basis: D; C for what hip-python's call returns
    """
    calls.declare(name, first, doc, __name__)

    @calls.declare_overload(name, "C")
    def fill(handle: int, *addresses: int) -> tuple[Any, ...]:
        columns = of(handle)
        count = _fill(addresses[-1], list(zip(addresses[:-1], columns, strict=True)))
        return *(node_handle(each[0] if each else None) for each in columns), count


_declare_list(
    "hipGraphGetNodes",
    lambda graph: [list(graphs.of(graph).nodes)],
    "Return the nodes of a graph, in the order in which they were added.",
    "the first",
    "hipErrorInvalidValue not a graph",
)
_declare_list(
    "hipGraphGetRootNodes",
    lambda graph: [graphs.of(graph).roots],
    "Return the nodes of a graph that depend on none.",
    "the first",
    "hipErrorInvalidValue not a graph",
)


def _edges(graph: int) -> list[list[Node]]:
    edges = graphs.of(graph).edges
    return [[one for one, _ in edges], [other for _, other in edges]]


_declare_list(
    "hipGraphGetEdges",
    _edges,
    "Return the edges of a graph: the nodes that they come from, and those that they go to.",
    "both nodes of the first",
    "hipErrorInvalidValue not a graph",
)
_declare_list(
    "hipGraphNodeGetDependencies",
    lambda node: [list(graphs.node(node).dependencies)],
    "Return the nodes that a node depends on.",
    "the first",
    "hipErrorInvalidValue not a node",
)
_declare_list(
    "hipGraphNodeGetDependentNodes",
    lambda node: [list(graphs.node(node).dependents)],
    "Return the nodes that depend on a node.",
    "the first",
    "hipErrorInvalidValue not a node",
)


def _declare_edges(name: str, change: Callable[[Graph, Sequence[tuple[Node, Node]]], None], doc: str) -> None:
    def pairs(graph: int, before: int, behind: int, count: int) -> None:
        on = graphs.of(graph)
        most = len(on.nodes) ** 2
        columns = [nodes_at(each, at, count, most) for each, at in (("from", before), ("to", behind))]
        change(on, list(zip(*columns, strict=True)))

    calls.declare(name, pairs, doc, __name__)

    @calls.declare_overload(name, "earlier")
    def without_nodes(graph: int, count: int) -> tuple[None, None]:
        pairs(graph, 0, 0, count)
        return None, None


_declare_edges(
    "hipGraphAddDependencies",
    Graph.connect,
    """Add edges, or none if one is refused; the call of hip-python 7.2 has no nodes, and adds none.

    Refuses: hipErrorInvalidValue not a graph, not a node of it, NULL, an edge of a node to itself, one that is there
    Basis: D
    """,
)
_declare_edges(
    "hipGraphRemoveDependencies",
    Graph.disconnect,
    """Remove edges, or none if one is refused; the call of hip-python 7.2 has no nodes, and removes none.

    Refuses: hipErrorInvalidValue not a graph, not a node of it, NULL, an edge that is not there, a graph with nodes
        that allocate or free memory
    Basis: D
    """,
)


@calls.call("hipGraphNodeGetType")
def hipGraphNodeGetType(node: OnNode) -> Any:
    """Return the type of a node.

    Gives: a hipGraphNodeType
    Refuses: hipErrorInvalidValue not a node
    Basis: D
    """
    return enumeration("hipGraphNodeType")[kind_name(node.operation.kind)]


@calls.call("hipGraphDestroyNode")
def hipGraphDestroyNode(node: OnNode) -> None:
    """Remove a node with its edges.

    Refuses: hipErrorInvalidValue not a node, a graph with nodes that allocate or free memory
    Basis: D
    """
    graphs.remove_node(node, "hipGraphDestroyNode")


@calls.call("hipGraphDebugDotPrint")
def hipGraphDebugDotPrint(graph: OnGraph, path: str | None, flags: int) -> None:
    """Write a graph to a file, in the language of Graphviz; flags add parameters and handles.

    Refuses: hipErrorInvalidValue not a graph, NULL, a file that cannot be written
    Basis: D; C for the labels
    """
    if not path:
        raise invalid("path is NULL or empty", "name a file")
    graphs.print(graph, path, has_details=bool(flags & _DETAILS), has_handles=bool(flags & _HANDLES))
