"""All that a vendor's program does with graphs and captures, by handle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from peerlane.diagnostics.log import event_log
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects._shared.machine import Context
from peerlane.dialects.gpu.captures import MODES
from peerlane.dialects.gpu.events import EventOperation
from peerlane.dialects.gpu.graphs import dot
from peerlane.dialects.gpu.graphs.executable import AUTO_FREE, Executable, Step, Steps
from peerlane.dialects.gpu.graphs.graph import Child, Empty, Graph, Node
from peerlane.dialects.gpu.graphs.memory import Allocation, Free, MemoryOfGraphs
from peerlane.dialects.gpu.graphs.operation import Operation
from peerlane.dialects.gpu.graphs.update import SUCCESS, Mismatch, Updates
from peerlane.dialects.gpu.graphs.user_objects import UserObject
from peerlane.dialects.gpu.machine import GpuMachine
from peerlane.dialects.gpu.peers import Peers
from peerlane.dialects.gpu.regions import Regions
from peerlane.dialects.gpu.streams import AnyStream, GpuStream, NullStream, Streams
from peerlane.dialects.gpu.vendor import Reason

_MOST_REFERENCES = (1 << 31) - 1


class Graphs:
    """The graphs of a vendor's program."""

    def __init__(self, machine: GpuMachine, streams: Streams, regions: Regions, peers: Peers) -> None:
        self.machine, self.streams = machine, streams
        self.memory = MemoryOfGraphs(machine, peers)
        self._updates = Updates(regions)
        streams.captures.discard, streams.captures.memory = self.discard, self.memory

    def of(self, handle: int) -> Graph:
        """Return the graph of a handle; ``INVALID_VALUE`` for other numbers."""
        return self.machine.resource(handle, Graph, Reason.INVALID_VALUE)

    def node(self, handle: int) -> Node:
        """Return the node of a handle; ``INVALID_VALUE`` for other numbers."""
        return self.machine.resource(handle, Node, Reason.INVALID_VALUE)

    def executable(self, handle: int) -> Executable:
        """Return the executable graph of a handle; ``INVALID_VALUE`` for other numbers."""
        return self.machine.resource(handle, Executable, Reason.INVALID_VALUE)

    def user_object(self, handle: int) -> UserObject:
        """Return the user object of a handle; ``INVALID_VALUE`` for other numbers."""
        return self.machine.resource(handle, UserObject, Reason.INVALID_VALUE)

    def nodes(self, handles: Iterable[int] | None) -> tuple[Node, ...]:
        """Return the nodes of handles."""
        return tuple(map(self.node, handles or ()))

    def create(self, parent: Node | None = None) -> Graph:
        """Create an empty graph."""
        graph = Graph(self.machine, self.machine.context(), parent)
        self.machine.issue(graph)
        return graph

    def destroy(self, graph: Graph, call: str) -> None:
        """Destroy a graph with its nodes; executable graphs stay.

        ``INVALID_VALUE`` for one that belongs to a node, or that a capture adds to.
        """
        if graph.parent is not None or graph.is_captured_into:
            why = "a capture adds to it" if graph.is_captured_into else "it belongs to a node"
            raise self._invalid(f"the graph cannot be destroyed: {why}", "destroy what created it")
        self.discard(graph, call)

    def discard(self, graph: Graph, call: str = "the end of its capture") -> None:
        """Destroy a graph with its nodes, also one that belongs to a node."""
        for node in graph.nodes:
            self._discard_node(node, call)
        self.machine.drop(graph, call)
        self._release_all(graph.user_objects)

    def _discard_node(self, node: Node, call: str) -> None:
        self.machine.drop(node, call)
        operation = node.operation
        if isinstance(operation, Child):
            self.discard(operation.graph, call)
        elif isinstance(operation, Free) and operation.owned.is_freed_by is node.graph:
            operation.owned.is_freed_by = None
        elif isinstance(operation, Allocation):
            operation.owned.release()

    def _release_all(self, objects: dict[UserObject, int], when: Callable[[], object] | None = None) -> None:
        for each, count in objects.items():
            each.release(self.machine, count, when)
        objects.clear()

    def clone(self, graph: Graph, parent: Node | None = None) -> Graph:
        """Return a copy of a graph with copies of its child graphs; ``INVALID_VALUE`` for one with memory."""
        graph.refuse_memory("it cannot be cloned")
        return self._copy(graph, parent)

    def _copy(self, graph: Graph, parent: Node | None) -> Graph:
        copy = self.create(parent)
        for node in graph.nodes:
            operation = node.operation
            if isinstance(operation, Child):
                operation = Child(self._copy(operation.graph, None))
            copied = copy.originals[node] = self._add(copy, operation, (), node.context)
            copied.site = node.site
        for node in graph.nodes:
            for each in node.dependencies:
                copy.originals[node].depend(copy.originals[each])
        self._retain_all(copy, graph.user_objects)
        return copy

    def find_in_clone(self, node: Node, clone: Graph) -> Node:
        """Return the node of a clone that was made of a node: ``INVALID_VALUE`` without one."""
        copy = clone.originals.get(node)
        if copy is None or copy not in clone:
            raise self._invalid("the graph has no copy of the node", "pass a clone of the node's graph")
        return copy

    def add(
        self, graph: Graph, dependencies: Iterable[Node], operation: Operation, context: Context | None = None
    ) -> Node:
        """Add a node that runs on the device of a context: that of its event, else the thread's by default."""
        if context is None and isinstance(operation, EventOperation):
            context = operation.event.context
        context = context or self.machine.context()
        operation.prepared(context.device)
        return self._add(graph, operation, tuple(dependencies), context)

    @staticmethod
    def _add(graph: Graph, operation: Operation, dependencies: Sequence[Node], context: Context) -> Node:
        node = graph.add(operation, dependencies, context)
        if isinstance(operation, Child):
            operation.graph.parent = node
        return node

    def add_child(
        self, graph: Graph, dependencies: Iterable[Node], child: Graph, *, moves: bool = False
    ) -> Node:
        """Add a node that runs a copy of a graph, or the graph itself, which then belongs to the node."""
        before = tuple(dependencies)
        if not moves:
            copy = self.clone(child)
            try:
                return self.add(graph, before, Child(copy))
            except BaseException:
                self.discard(copy)
                raise
        if child.parent is not None or child.is_captured_into or child.executables or child is graph:
            raise self._invalid(
                "the child graph belongs to a node, a capture or an executable graph",
                "pass a graph of its own",
            )
        return self.add(graph, before, Child(child))

    def remove_node(self, node: Node, call: str) -> None:
        """Remove a node with its edges."""
        node.graph.remove(node)
        self._discard_node(node, call)

    def set_operation(self, node: Node, operation: Operation) -> None:
        """Change what a node does; executable graphs stay as they are.

        ``INVALID_VALUE`` for a node of another kind.
        """
        self._refuse_other_kind(node.operation, operation)
        operation.prepared(node.context.device)
        node.operation, node.site = operation, event_log.site()

    def _refuse_other_kind(self, before: Operation, after: Operation) -> None:
        if before.kind != after.kind:
            raise self._invalid(
                f"the node is a {before.kind} node, and these are parameters of a {after.kind} node",
                "pass the parameters of its type",
            )

    # Executable graphs.

    def unordered(self, graph: Graph) -> Node | None:
        """Return a node of a cycle, also of a child graph; None if there is no cycle."""
        ordered = set(graph.ordered())
        for node in graph.nodes:
            if node not in ordered:
                return node
            if isinstance(node.operation, Child):
                inner = self.unordered(node.operation.graph)
                if inner is not None:
                    return inner
        return None

    def instantiate(self, graph: Graph, flags: int, valid: int) -> Executable:
        """Make an executable graph.

        Raises Refusal: ``INVALID_VALUE`` flags, a cycle, a graph that belongs to a node or a capture, one with memory
            that has an executable graph; ``UNSUPPORTED`` launches by a device.
        """
        if flags & ~valid:
            raise self._invalid(f"flags are {flags:#x}", f"pass bits of {valid:#x}")
        if graph.is_permanent:
            raise self._invalid(
                "the graph belongs to a node, or a capture adds to it",
                "instantiate the whole graph, after the capture",
            )
        if graph.executables and graph.has_memory:
            raise self._invalid(
                "the graph allocates memory and has an executable graph already", "destroy that one before"
            )
        if self.unordered(graph) is not None:
            raise self._invalid("the edges of the graph form a cycle", "remove one of its edges")
        executable = Executable(graph, self.machine.context(), flags, self.streams)
        self.machine.issue(executable)
        graph.executables += 1
        for each in executable.allocations():
            each.owned.users += 1
        self._retain_all(executable, graph.user_objects)
        return executable

    def destroy_executable(self, executable: Executable, call: str) -> None:
        """Destroy an executable graph; what it launched goes on."""
        if not self.machine.drop(executable, call):
            return
        executable.end()
        executable.graph.executables -= 1
        for each in executable.allocations():
            each.owned.release()
        self._release_all(executable.user_objects, executable.await_newest)

    def launch(self, executable: Executable, stream: AnyStream) -> None:
        """Launch an executable graph behind the work of a stream and its own earlier launches, or capture it.

        ``INVALID_VALUE`` if memory of an earlier launch was not freed.  Nothing runs if a node is refused.
        """
        if stream.capture is not None:
            if executable.graph.has_memory:
                raise stream.capture.fail(
                    Reason.CAPTURE_UNSUPPORTED,
                    "the executable graph allocates memory, which no child graph can",
                    "launch it outside of the capture",
                )
            stream.capture.refuse_invalidated()
            child = self._graph_of(executable.steps, executable.user_objects)
            child.parent = stream.capture.add(stream, Child(child))
            return
        unfreed = [each.owned for each in executable.allocations() if each.owned.is_allocated]
        if unfreed and not executable.flags & AUTO_FREE:
            raise self._invalid(
                f"memory of an earlier launch was not freed: {unfreed[0].buffer.size:,} bytes at "
                f"{unfreed[0].address:#x}",
                "free it, or instantiate the graph so that a launch frees it",
            )
        executable.follow(stream)
        for owned in unfreed:
            owned.free(stream, "the next launch of its graph")
        executable.launch(stream)

    def _graph_of(self, steps: Steps, user_objects: dict[UserObject, int]) -> Graph:
        """Return a graph of steps, with references to user objects."""
        graph = self.create()
        nodes: list[Node] = []
        for step in steps:
            operation = step.operation if step.is_enabled else Empty()
            if step.child is not None:
                operation = Child(self._graph_of(step.child, {}))
            node = self._add(graph, operation, (), step.node.context)
            node.site = step.site
            nodes.append(node)
        for step, node in zip(steps, nodes, strict=True):
            for number in step.before:
                node.depend(nodes[number])
        self._retain_all(graph, user_objects)
        return graph

    @staticmethod
    def _retain_all(owner: Graph | Executable, objects: dict[UserObject, int]) -> None:
        """Give a graph new references to user objects."""
        for user_object, count in objects.items():
            user_object.retain(count)
        owner.user_objects = dict(objects)

    def upload(self, executable: Executable, stream: AnyStream) -> None:
        """Let later work of a stream follow the launches so far: there is nothing to upload."""
        executable.follow(stream)

    def update(self, executable: Executable, graph: Graph) -> Mismatch:
        """Give an executable graph the parameters and user objects of a graph that fits; return why it does not.

        Nothing was changed then.  References to other user objects end with the newest launch.
        """
        mismatch = self._updates.mismatch(executable.steps, graph)
        if mismatch is not None:
            return mismatch
        self._updates.apply(executable.steps, graph)
        before = executable.user_objects
        self._retain_all(executable, graph.user_objects)
        self._release_all(before, executable.await_newest)
        return Mismatch(SUCCESS, None, None, "")

    def step(self, executable: Executable, node: Node) -> Step:
        """Return the step of a node; ``INVALID_VALUE`` for a node of another graph."""
        for each in executable.steps.all():
            if each.node is node:
                return each
        raise self._invalid(
            f"{node.title} is not of the graph that the executable one was made of", "pass a node of it"
        )

    def set_step(self, executable: Executable, node: Node, operation: Operation) -> None:
        """Change what a node does in later launches: ``INVALID_VALUE`` for what cannot change."""
        step = self.step(executable, node)
        self._refuse_other_kind(step.operation, operation)
        operation.prepared(node.context.device)
        if isinstance(operation, Child):
            self.set_child(executable, node, operation.graph)
            return
        cause = self._updates.why_not_line(step, operation) or self._updates.why_not(
            step.operation, operation
        )
        if cause:
            raise self._invalid(cause, "make the executable graph anew")
        step.operation, step.site = operation, event_log.site()

    def set_child(self, executable: Executable, node: Node, child: Graph) -> None:
        """Give the steps of a child graph the parameters of a graph that fits."""
        step = self.step(executable, node)
        if step.child is None:
            raise self._invalid(f"{node.title} is not a child graph", "pass a child graph's node")
        mismatch = self._updates.mismatch(step.child, child)
        if mismatch is not None:
            raise self._invalid(mismatch.cause, "pass a graph with the same nodes and edges")
        self._updates.apply(step.child, child)

    def enable(self, executable: Executable, node: Node, is_enabled: bool) -> None:
        """Enable or disable a copy, a fill or a batch of words in later launches.

        ``INVALID_VALUE`` for a node of another kind.
        """
        step = self._switchable(executable, node)
        step.is_enabled = is_enabled
        executable.change()

    def is_enabled(self, executable: Executable, node: Node) -> bool:
        """Tell whether a node is enabled; refused as :meth:`enable`."""
        return self._switchable(executable, node).is_enabled

    def _switchable(self, executable: Executable, node: Node) -> Step:
        step = self.step(executable, node)
        if step.operation.kind not in ("MEMCPY", "MEMSET"):
            raise self._invalid(
                f"{node.title} is a {step.operation.kind} node, which cannot be disabled",
                "pass a copy or a fill",
            )
        return step

    def print(self, graph: Graph, path: str, *, has_details: bool, has_handles: bool) -> None:
        """Write a graph to a file as Graphviz reads it; ``FILE_NOT_WRITTEN``."""
        text = dot.text_of(graph, has_details=has_details, has_handles=has_handles)
        try:
            Path(path).write_text(text)
        except OSError as error:
            raise self.machine.vendor.refusal(
                Reason.FILE_NOT_WRITTEN, f"{path!r}: {error.strerror}", "name a file that can be written"
            ) from None

    # User objects.

    def create_user_object(self, destroy: Callable[[], object], references: int) -> UserObject:
        """Create a user object."""
        self._refuse_count(references)
        user_object = UserObject(self.machine.context(), destroy, references)
        self.machine.issue(user_object)
        return user_object

    def retain_user_object(self, user_object: UserObject, count: int) -> None:
        """Give the program more references."""
        self._refuse_count(count)
        user_object.retain(count)

    def release_user_object(self, user_object: UserObject, count: int) -> None:
        """Take references from the program."""
        self._refuse_count(count)
        user_object.release(self.machine, count)

    def retain_by_graph(self, graph: Graph, user_object: UserObject, count: int, *, moves: bool) -> None:
        """Give a graph references, new ones or the program's."""
        self._refuse_count(count)
        if not moves:
            user_object.retain(count)
        graph.user_objects[user_object] = graph.user_objects.get(user_object, 0) + count

    def release_by_graph(self, graph: Graph, user_object: UserObject, count: int) -> None:
        """Take references from a graph: ``INVALID_VALUE`` for more than it has."""
        self._refuse_count(count)
        has = graph.user_objects.get(user_object, 0)
        if count > has:
            raise self._invalid(f"the graph has {has} references", "release no more")
        graph.user_objects[user_object] = has - count
        if has == count:
            del graph.user_objects[user_object]
        user_object.release(self.machine, count)

    def _refuse_count(self, count: int) -> None:
        if not 0 < count <= _MOST_REFERENCES:
            raise self._invalid(f"the count is {count}", f"pass 1 to {_MOST_REFERENCES}")

    # Captures.

    def begin_capture(
        self, stream: AnyStream, mode: int, graph: Graph | None = None, dependencies: Iterable[Node] = ()
    ) -> None:
        """Record later operations of a stream as nodes, of a new graph or of one that is there.

        Raises Refusal: ``CAPTURE_UNSUPPORTED`` the null stream; ``ILLEGAL_STATE`` a stream that is captured;
            ``INVALID_VALUE`` a mode.
        """
        if mode not in MODES:
            raise self._invalid(f"mode is {mode}", "pass 0 global, 1 thread-local or 2 relaxed")
        if isinstance(stream, NullStream):
            raise self.machine.vendor.refusal(
                Reason.CAPTURE_UNSUPPORTED, "the null stream cannot be captured", "pass another stream"
            )
        if stream.capture is not None:
            raise self._illegal(f"{stream.title} is captured already", "end that capture before")
        before = tuple(dependencies)
        if graph is not None and (graph.is_permanent or any(each not in graph for each in before)):
            raise self._invalid("the graph or a dependency does not fit", "pass a graph and nodes of it")
        into = graph or self.create()
        into.is_captured_into = True
        self.streams.captures.begin(stream, into, mode, before, owns_graph=graph is None)

    def end_capture(self, stream: AnyStream) -> Graph:
        """End a capture and return its graph; refused as :meth:`Capture.finish`, ``ILLEGAL_STATE`` without one."""
        if stream.capture is None:
            raise self._illegal(f"{stream.title} is not captured", "begin a capture before")
        graph = stream.capture.finish(stream)
        graph.is_captured_into = False
        return graph

    def captured(self, stream: AnyStream) -> GpuStream | None:
        """Return a stream that is captured, None for one that is not.

        ``CAPTURE_IMPLICIT`` for the null stream while a blocking stream is captured, which stays valid.
        """
        if isinstance(stream, NullStream):
            if stream.captures:
                raise self.streams.captures.implicit()
            return None
        return stream if stream.capture is not None else None

    def change_dependencies(self, stream: AnyStream, nodes: Sequence[Node], *, replaces: bool) -> None:
        """Change what the next operation of a captured stream depends on; ``ILLEGAL_STATE`` if it is not captured."""
        captured = self.captured(stream)
        if captured is None or captured.capture is None:
            raise self._illegal(f"{stream.title} is not captured", "begin a capture before")
        capture = captured.capture
        capture.refuse_invalidated()
        if any(each not in capture.graph for each in nodes):
            raise self._invalid("a node is not of the captured graph", "pass nodes of it")
        capture.depend(captured, nodes, replaces=replaces)

    def exchange_mode(self, mode: int) -> int:
        """Set the mode of this thread, and return the one before; ``INVALID_VALUE`` for another number."""
        if mode not in MODES:
            raise self._invalid(f"mode is {mode}", "pass 0 global, 1 thread-local or 2 relaxed")
        return self.streams.captures.exchange_mode(mode)

    def _illegal(self, cause: str, remedy: str) -> Refusal:
        return self.machine.vendor.refusal(Reason.ILLEGAL_STATE, cause, remedy)

    def _invalid(self, cause: str, remedy: str) -> Refusal:
        return self.machine.vendor.invalid(cause, remedy)
