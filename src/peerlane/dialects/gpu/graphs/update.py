"""Updates of executable graphs: which parameters of a node can change, and whether a graph fits."""

from __future__ import annotations

from typing import NamedTuple

from peerlane.dialects.gpu.copies import Copy
from peerlane.dialects.gpu.graphs.executable import Step, Steps
from peerlane.dialects.gpu.graphs.graph import Child, Graph, Node
from peerlane.dialects.gpu.graphs.memory import Allocation, Free
from peerlane.dialects.gpu.graphs.operation import Operation
from peerlane.dialects.gpu.memory import Fill
from peerlane.dialects.gpu.regions import Region, Regions

# Both vendors' numbers of the results.
SUCCESS, ERROR, TOPOLOGY_CHANGED, TYPE_CHANGED, _, PARAMETERS_CHANGED, NOT_SUPPORTED = range(7)


class Mismatch(NamedTuple):
    """Why a graph does not fit an executable one."""

    result: int
    node: Node | None  #: of the graph
    other: Node | None  #: the dependency of it that does not match
    cause: str


class Updates:
    """The rules of updates."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions

    def mismatch(self, steps: Steps, graph: Graph) -> Mismatch | None:
        """Return why the nodes of a graph, in their order, cannot replace steps; None if they can."""
        nodes = list(graph.nodes)
        if len(nodes) != len(steps):
            return Mismatch(
                TOPOLOGY_CHANGED,
                None,
                None,
                f"the graph has {len(nodes)} nodes, and the executable one has {len(steps)}",
            )
        numbers = {node: at for at, node in enumerate(nodes)}
        for step, node in zip(steps, nodes, strict=True):
            if len(node.dependencies) != len(step.before):
                return Mismatch(TOPOLOGY_CHANGED, node, None, f"{node.title} has other dependencies")
            wrong = next((each for each in node.dependencies if numbers[each] not in step.before), None)
            if wrong is not None:
                return Mismatch(TOPOLOGY_CHANGED, node, wrong, f"{node.title} depends on another node")
            if node.operation.kind != step.operation.kind:
                return Mismatch(
                    TYPE_CHANGED,
                    node,
                    None,
                    f"{node.title} is a {node.operation.kind} node, and was a {step.operation.kind} node",
                )
            if isinstance(node.operation, Child) and step.child is not None:
                inner = self.mismatch(step.child, node.operation.graph)
                if inner is not None:
                    return inner
            else:
                cause = self.why_not(step.operation, node.operation)
                if cause:
                    return Mismatch(PARAMETERS_CHANGED, node, None, cause)
        return None

    def apply(self, steps: Steps, graph: Graph) -> None:
        """Replace the operations of steps by those of nodes that match."""
        for step, node in zip(steps, graph.nodes, strict=True):
            if isinstance(node.operation, Child) and step.child is not None:
                self.apply(step.child, node.operation.graph)
            else:
                step.operation, step.site = node.operation, node.site

    def why_not(self, before: Operation, after: Operation) -> str:
        """Return why an operation of the same kind cannot replace another one; empty if it can."""
        if isinstance(before, Copy) and isinstance(after, Copy):
            for name, old, new in zip(("destination", "source"), before.ends, after.ends, strict=True):
                if _memory_of(old) != _memory_of(new):
                    return f"the {name} of a copy lies in other memory than before"
        elif isinstance(before, Fill) and isinstance(after, Fill):
            if _memory_of(self._regions.at(before.dst)) != _memory_of(self._regions.at(after.dst)):
                return "a fill has its destination in other memory than before"
            is_line = before.extent[1] == after.extent[1] == 1
            if not is_line and (before.extent, before.layout) != (after.extent, after.layout):
                return "of a fill of rows only the address and the value may change"
        elif (
            isinstance(before, (Allocation, Free))
            and isinstance(after, (Allocation, Free))
            and before.owned is not after.owned
        ):
            return "the memory of a graph cannot change"
        return ""

    @staticmethod
    def why_not_line(before: Step, after: Operation) -> str:
        """Return why a call for one node refuses a copy of rows; empty for others."""
        old = before.operation
        if isinstance(old, Copy) and isinstance(after, Copy) and not (old.is_plain and after.is_plain):
            return "a copy of rows or slices cannot change, and none can become one"
        return ""


def _memory_of(region: Region | None) -> tuple[bool, int] | None:
    """Return what may not change: whether memory lies on a device, and on which; None for ordinary memory."""
    return None if region is None else (region.is_device, region.ordinal if region.is_device else 0)
