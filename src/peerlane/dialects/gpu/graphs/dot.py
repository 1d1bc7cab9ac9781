"""Graphs as text in the language of Graphviz."""

from __future__ import annotations

from collections.abc import Iterator

from peerlane.dialects.gpu.callbacks import HostCall
from peerlane.dialects.gpu.copies import Copy
from peerlane.dialects.gpu.events import EventOperation
from peerlane.dialects.gpu.graphs.graph import Child, Graph, Node
from peerlane.dialects.gpu.graphs.memory import Allocation, Free
from peerlane.dialects.gpu.memory import Fill
from peerlane.dialects.gpu.values import WordBatch


def text_of(graph: Graph, *, has_details: bool, has_handles: bool) -> str:
    """Return a graph as a digraph; a child graph is a cluster of its own."""
    lines = [f"digraph graph_{graph.number} {{", *_body(graph, has_details, has_handles), "}"]
    return "\n".join(lines) + "\n"


def _body(graph: Graph, has_details: bool, has_handles: bool) -> Iterator[str]:
    for node in graph.nodes:
        lines = [f"{node.number} {node.operation.kind}"]
        if has_handles:
            lines.append(f"{node.handle:#x}")
        if has_details:
            lines += [*_details(node), f"{node.created_at or ''}"]
        label = "\\n".join(each.replace("\\", "\\\\").replace('"', '\\"') for each in lines if each)
        yield f'  {_name(node)} [label="{label}"];'
        if isinstance(node.operation, Child):
            yield f"  subgraph cluster_{node.operation.graph.number} {{"
            yield f'  label="graph of {_name(node)}";'
            yield from _body(node.operation.graph, has_details, has_handles)
            yield "  }"
    for before, behind in graph.edges:
        yield f"  {_name(before)} -> {_name(behind)};"


def _name(node: Node) -> str:
    return f"graph_{node.graph.number}_node_{node.number}"


def _details(node: Node) -> Iterator[str]:
    operation = node.operation
    if isinstance(operation, Copy):
        width, height, depth = operation.extent
        yield f"{operation.src.address:#x} to {operation.dst.address:#x}, {width} x {height} x {depth} bytes"
    elif isinstance(operation, Fill):
        nbytes, height, _ = operation.extent
        yield f"{operation.dst:#x}, {nbytes} x {height} bytes of {operation.value:#x}"
    elif isinstance(operation, HostCall):
        yield ", ".join(f"{word:#x}" for word in operation.words)
    elif isinstance(operation, EventOperation):
        yield f"event {operation.event.handle:#x}"
    elif isinstance(operation, (Allocation, Free)):
        yield f"{operation.owned.buffer.size} bytes at {operation.owned.address:#x}"
    elif isinstance(operation, WordBatch):
        for word in operation.words:
            yield f"{'wait for' if word.is_wait else 'write'} {word.value:#x} at {word.address:#x}"
