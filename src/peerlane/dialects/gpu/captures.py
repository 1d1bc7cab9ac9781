"""Captures: streams whose operations become nodes of a graph instead of running."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

from peerlane.backend import host
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.gpu.graphs.graph import Graph, Node
from peerlane.dialects.gpu.graphs.operation import Operation
from peerlane.dialects.gpu.machine import GpuMachine
from peerlane.dialects.gpu.vendor import Reason

#: A `GpuStream` or a `NullStream`, whose module imports this one.
Stream: TypeAlias = Any

GLOBAL, THREAD_LOCAL, RELAXED = MODES = range(3)  # both vendors' numbers
NONE, ACTIVE, INVALIDATED = range(3)  # the state of a stream


class CapturedMemory(Protocol):
    """The memory that a captured stream allocates and frees."""

    def capture_allocation(self, stream: Any, nbytes: int, pool: Any) -> int:
        """Capture an allocation on a stream, with the location and the access of a pool; return the address."""

    def capture_free(self, stream: Any, address: int) -> None:
        """Capture a free on a stream."""


class Capture:
    """A capture: the streams in it, each with the nodes that its next operation depends on."""

    def __init__(
        self,
        captures: Captures,
        origin: Stream,
        graph: Graph,
        mode: int,
        dependencies: Iterable[Node],
        *,
        owns_graph: bool,
    ) -> None:
        self._captures, self._owns_graph = captures, owns_graph
        self._origin, self.graph, self.mode = origin, graph, mode
        self.memory = captures.memory
        self.number = next(_numbers)  #: unique in the process
        self.thread = threading.get_ident()  #: the one that began it
        self.is_valid = True
        #: By stream.
        self.dependencies: dict[Stream, tuple[Node, ...]] = {origin: tuple(dict.fromkeys(dependencies))}
        self._nodes: list[Node] = []
        self._excused: set[Node] = set()

    @property
    def state(self) -> int:
        """ACTIVE or INVALIDATED."""
        return ACTIVE if self.is_valid else INVALIDATED

    def add(self, stream: Stream, operation: Operation) -> Node:
        """Record an operation of a stream: ``CAPTURE_INVALIDATED``, or refused as the operation is."""
        self.refuse_invalidated()
        operation.prepared(stream.context.device)
        node = self.graph.add(operation, self.dependencies[stream], stream.context)
        self._nodes.append(node)
        self.dependencies[stream] = (node,)
        return node

    def join(self, stream: Stream, nodes: tuple[Node, ...]) -> None:
        """Let later operations of a stream depend on nodes; the stream enters the capture if it is in none.

        Raises Refusal: ``CAPTURE_MERGE`` the stream is in another capture; ``CAPTURE_UNSUPPORTED`` the null stream.
        """
        self.refuse_invalidated()
        other = stream.capture
        if other is not None and other is not self:
            other.invalidate()
            raise self.fail(
                Reason.CAPTURE_MERGE,
                f"{stream.title} is in a capture of its own, and the event was recorded in another one",
                "capture both with one stream of origin",
            )
        if stream is stream.null:
            if stream.null.captures:
                raise self.implicit(stream.null)
            raise self.fail(
                Reason.CAPTURE_UNSUPPORTED, "the null stream cannot be captured", "fork to another stream"
            )
        if other is None:
            self.enter(stream)
        mine = self.dependencies[stream]
        self.dependencies[stream] = tuple(dict.fromkeys((*mine, *nodes)))

    def enter(self, stream: Stream) -> None:
        """Capture a stream, too."""
        self.dependencies.setdefault(stream, ())
        stream.enter(self)
        host.forget_c_threads()  # which would queue copies of the stream without asking

    def drop(self, stream: Stream) -> None:
        """End the capture with its origin, or without a stream that ends."""
        if stream is self._origin:
            self.end()
            self._discard()
        else:
            del self.dependencies[stream]
            stream.leave()

    def depend(self, stream: Stream, nodes: Iterable[Node], *, replaces: bool) -> None:
        """Change the nodes that the next operation of a stream depends on; those that it drops need no join."""
        before = self.dependencies[stream]
        after = tuple(dict.fromkeys(nodes if replaces else (*before, *nodes)))
        self._excused.update(set(before).difference(after))
        self.dependencies[stream] = after

    def end(self) -> None:
        """Let all its streams run operations again."""
        self._captures.remove(self)
        for stream in self.dependencies:
            stream.leave()

    def finish(self, stream: Stream) -> Graph:
        """End the capture and return its graph.

        Raises Refusal: ``CAPTURE_UNMATCHED``, ``CAPTURE_WRONG_THREAD``: it goes on.  ``CAPTURE_INVALIDATED``,
            ``CAPTURE_UNJOINED``: it is over.
        """
        if stream is not self._origin:
            raise self._refusal(
                Reason.CAPTURE_UNMATCHED,
                f"the capture began on {self._origin.title}",
                "end it there, and join this stream with an event before",
            )
        if self.mode != RELAXED and self.thread != threading.get_ident():
            raise self._refusal(
                Reason.CAPTURE_WRONG_THREAD,
                "another thread began the capture",
                "end it in that thread, or begin it in the relaxed mode",
            )
        self.end()
        unjoined = self._unjoined()
        if self.is_valid and not unjoined:
            return self.graph
        self._discard()
        self.refuse_invalidated()
        raise self._refusal(
            Reason.CAPTURE_UNJOINED,
            f"{len(unjoined)} captured operations are not before the end of {stream.title}; the first is a "
            f"{unjoined[0].operation.kind} node, made at {unjoined[0].created_at}",
            "record an event on each forked stream, and wait for it on the stream where the capture began",
        )

    def _discard(self) -> None:
        """Destroy the graph, if the capture made it."""
        self.graph.is_captured_into = False
        if self._owns_graph:
            self._captures.discard(self.graph)

    def _unjoined(self) -> list[Node]:
        behind = set(self._excused)
        left = [*self.dependencies[self._origin], *self._excused]
        while left:
            node = left.pop()
            behind.add(node)
            left += [each for each in node.dependencies if each not in behind]
        return [each for each in self._nodes if each not in behind and each in self.graph]

    def invalidate(self) -> None:
        """Make it invalid; its origin has to end it."""
        self.is_valid = False

    def refuse_invalidated(self) -> None:
        """Refuse an operation of an invalid capture."""
        if not self.is_valid:
            raise self._refusal(
                Reason.CAPTURE_INVALIDATED,
                "an earlier call made the capture invalid",
                "end it, and look at the first call that failed",
            )

    def refused(self, stream: Stream) -> Refusal:
        """Return the refusal of a call that no capture can record, which makes it invalid."""
        if not self.is_valid:
            return self._refusal(
                Reason.CAPTURE_INVALIDATED, "an earlier call made the capture invalid", "end it"
            )
        return self.fail(
            Reason.CAPTURE_UNSUPPORTED,
            f"{stream.title} is captured, and the call is not an operation that a graph can have",
            "call it before the capture, or after it",
        )

    def implicit(self, null: Stream) -> Refusal:
        """Return the refusal of the null stream, which a blocking stream makes unusable."""
        for each in null.captures:
            each.invalidate()
        return self._captures.implicit()

    def fail(self, reason: Reason, cause: str, remedy: str) -> Refusal:
        """Make the capture invalid, and return the refusal."""
        self.invalidate()
        return self._refusal(reason, cause, remedy)

    def _refusal(self, reason: Reason, cause: str, remedy: str) -> Refusal:
        return self.graph.machine.vendor.refusal(reason, cause, remedy)


class _Mode(threading.local):
    """How a thread is affected by captures, on one node."""

    node: object = None
    number = GLOBAL


class Captures:
    """The captures that have not ended."""

    discard: Callable[[Graph], None]  #: Destroys the graph of a capture that failed
    memory: CapturedMemory

    def __init__(self, machine: GpuMachine) -> None:
        self._machine = machine
        self._mode = _Mode()
        #: Those that have not ended; some may belong to a node that the process left.
        self.begun: tuple[Capture, ...] = ()

    @property
    def active(self) -> tuple[Capture, ...]:
        """The captures of this node."""
        handles = self._machine.resources
        if any(handles.get(each.graph.handle) is not each.graph for each in self.begun):
            self.begun = tuple(each for each in self.begun if handles.get(each.graph.handle) is each.graph)
        return self.begun

    def begin(
        self, stream: Stream, graph: Graph, mode: int, dependencies: Iterable[Node], *, owns_graph: bool
    ) -> None:
        """Begin to capture a stream."""
        capture = Capture(self, stream, graph, mode, dependencies, owns_graph=owns_graph)
        self.begun = (*self.active, capture)
        capture.enter(stream)

    def remove(self, capture: Capture) -> None:
        """Forget a capture that ended."""
        self.begun = tuple(each for each in self.begun if each is not capture)

    def exchange_mode(self, mode: int) -> int:
        """Set how captures affect calls of this thread that are unsafe beside them; return what was set before."""
        self._machine.devices()  # a node that is entered later would forget it
        before = self._mode_of_thread
        self._mode.node, self._mode.number = self._machine.thread, mode
        return before

    @property
    def _mode_of_thread(self) -> int:
        return self._mode.number if self._mode.node is self._machine.thread else GLOBAL

    def refuse_unsafe(self) -> None:
        """Refuse a call that no stream orders, as an allocation, where a capture forbids it: that becomes invalid."""
        if not self.begun:
            return
        mode, mine = self._mode_of_thread, threading.get_ident()
        forbidding = [
            each
            for each in self.active
            if mode != RELAXED
            and (
                (each.thread == mine and each.mode != RELAXED)
                or (mode == each.mode == GLOBAL and each.thread != mine)
            )
        ]
        for each in forbidding:
            each.invalidate()
        if forbidding:
            raise self._machine.vendor.refusal(
                Reason.CAPTURE_UNSUPPORTED,
                "the call is not ordered by a stream, so the capture that is going on would miss it",
                "call it before the capture, or let this thread's mode be relaxed",
            )

    def implicit(self) -> Refusal:
        """Return the refusal of the null stream while a blocking stream is captured."""
        return self._machine.vendor.refusal(
            Reason.CAPTURE_IMPLICIT,
            "the null stream waits for all blocking streams, and one of them is captured",
            "use another stream, or capture streams that are not blocking",
        )


_numbers = itertools.count(1)
