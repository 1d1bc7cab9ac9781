"""Graphs, their nodes and edges."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from peerlane import Device
from peerlane.diagnostics.log import event_log
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects._shared.machine import Context, Resource
from peerlane.dialects.gpu.graphs.operation import Operation
from peerlane.dialects.gpu.graphs.user_objects import UserObject
from peerlane.dialects.gpu.machine import GpuMachine

#: The kinds of nodes that bind a graph to its memory.
MEMORY_KINDS = ("MEM_ALLOC", "MEM_FREE")
#: Of graphs and executable graphs: no two have one.
numbers = itertools.count(1)


class Empty:
    """No operation: a node of edges alone."""

    kind = "EMPTY"

    def prepared(self, _: Device) -> Callable[[Any], None]:
        """Return what does nothing."""
        return lambda stream: None


class Child:
    """The nodes of another graph."""

    __slots__ = ("graph",)

    kind = "GRAPH"

    def __init__(self, graph: Graph) -> None:
        self.graph = graph  #: it belongs to the node

    def prepared(self, _: Device) -> Callable[[Any], None]:
        """Return what does nothing: the nodes of the graph are steps of their own."""
        return lambda stream: None


class Node(Resource):
    """A node of a graph."""

    __slots__ = ("dependencies", "dependents", "graph", "number", "operation", "site")

    name = "graph node"
    is_counted = False
    is_owned = False

    def __init__(self, graph: Graph, operation: Operation, context: Context) -> None:
        super().__init__(context)
        self.graph, self.operation = graph, operation
        #: ``dependencies``, ``dependents``: the nodes before and behind it, in the order of the edges.
        self.dependencies: dict[Node, None] = {}
        self.dependents: dict[Node, None] = {}
        self.number = graph.count_node()  #: unique in its graph
        self.site = event_log.site()  #: of the call that added its operation, in the event log

    def depend(self, on: Node) -> None:
        """Add an edge from another node."""
        self.dependencies[on] = None
        on.dependents[self] = None

    def release(self, on: Node) -> None:
        """Remove the edge from another node."""
        del self.dependencies[on], on.dependents[self]


class Graph(Resource):
    """A graph."""

    name = "graph"
    is_counted = False

    def __init__(self, machine: GpuMachine, context: Context, parent: Node | None = None) -> None:
        super().__init__(context)
        self.machine, self.parent = machine, parent  #: ``parent``: the node that it belongs to
        self.nodes: dict[Node, None] = {}  #: in the order in which they were added
        #: Of a clone: its node of each node of the graph that it was made of.
        self.originals: dict[Node, Node] = {}
        self.user_objects: dict[UserObject, int] = {}  #: how many references to each it has
        self.is_captured_into = False  #: whether a capture adds nodes that only its end makes the program's
        self.executables = 0  #: how many executable graphs were made of it and live
        self.number = next(numbers)  #: unique in the process
        self._next_number = 0

    def __contains__(self, node: object) -> bool:
        return node in self.nodes

    @property
    def is_permanent(self) -> bool:
        """Whether something else ends it: the node that it belongs to, or a capture."""
        return self.parent is not None or self.is_captured_into

    @property
    def has_memory(self) -> bool:
        """Whether it allocates or frees memory."""
        return any(
            node.operation.kind in MEMORY_KINDS
            or (isinstance(node.operation, Child) and node.operation.graph.has_memory)
            for node in self.nodes
        )

    @property
    def roots(self) -> list[Node]:
        """The nodes that depend on none."""
        return [node for node in self.nodes if not node.dependencies]

    @property
    def edges(self) -> list[tuple[Node, Node]]:
        """Pairs of a node and one that depends on it."""
        return [(node, each) for node in self.nodes for each in node.dependents]

    def count_node(self) -> int:
        """Return the number of a new node."""
        self._next_number += 1
        return self._next_number - 1

    def add(self, operation: Operation, dependencies: Sequence[Node], context: Context) -> Node:
        """Add a node: ``INVALID_VALUE`` a dependency of another graph, or one twice."""
        self._refuse_foreign(dependencies)
        if len(set(dependencies)) < len(dependencies):
            raise self._invalid("a dependency is there twice", "pass each node once")
        node = Node(self, operation, context)
        self.machine.issue(node)
        self.nodes[node] = None
        for each in dependencies:
            node.depend(each)
        return node

    def connect(self, pairs: Sequence[tuple[Node, Node]]) -> None:
        """Add edges, or none: ``INVALID_VALUE`` of another graph, of a node to itself, an edge that is there."""
        self._refuse_foreign(each for pair in pairs for each in pair)
        for at, (before, behind) in enumerate(pairs):
            if before is behind:
                raise self._invalid(f"edge {at} is of a node to itself", "pass two nodes")
            if before in behind.dependencies or pairs.index((before, behind)) < at:
                raise self._invalid(f"edge {at} is there already", "add each edge once")
        for before, behind in pairs:
            behind.depend(before)

    def disconnect(self, pairs: Sequence[tuple[Node, Node]]) -> None:
        """Remove edges, or none: ``INVALID_VALUE`` an edge that is not there, a graph with memory."""
        self._refuse_foreign(each for pair in pairs for each in pair)
        self.refuse_memory("edges cannot be removed")
        for at, (before, behind) in enumerate(pairs):
            if before not in behind.dependencies or pairs.index((before, behind)) < at:
                raise self._invalid(f"there is no edge {at}", "remove an edge that is there, once")
        for before, behind in pairs:
            behind.release(before)

    def remove(self, node: Node) -> None:
        """Remove a node and its edges: ``INVALID_VALUE`` a graph with memory."""
        self.refuse_memory("nodes cannot be removed")
        for each in tuple(node.dependencies):
            node.release(each)
        for each in tuple(node.dependents):
            each.release(node)
        del self.nodes[node]

    def ordered(self) -> list[Node]:
        """Return the nodes, each behind those that it depends on; those of a cycle are missing."""
        waits = {node: len(node.dependencies) for node in self.nodes}
        ready = [node for node, count in waits.items() if not count]
        for node in ready:
            for each in node.dependents:
                waits[each] -= 1
                if not waits[each]:
                    ready.append(each)
        return ready

    def refuse_memory(self, what: str) -> None:
        """Refuse what a graph with nodes for memory cannot do."""
        if self.has_memory:
            raise self._invalid(f"the graph allocates or frees memory, so {what}", "make another graph")

    def _refuse_foreign(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if node not in self.nodes:
                raise self._invalid(f"{node.title} is not a node of this graph", "pass nodes of the graph")

    def _invalid(self, cause: str, remedy: str) -> Refusal:
        return self.machine.vendor.invalid(cause, remedy)
