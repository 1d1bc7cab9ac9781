"""``hip``: streams that are captured into graphs (facts/hip 3.15)."""

from __future__ import annotations

import ctypes
from typing import Any

from peerlane.dialects.gpu.captures import ACTIVE, NONE
from peerlane.dialects.gpu.streams import AnyStream
from peerlane.dialects.hip.binding import members
from peerlane.dialects.hip.binding.checks import refuse_bits, refuse_null
from peerlane.dialects.hip.binding.convention import invalid
from peerlane.dialects.hip.binding.enums import enumeration
from peerlane.dialects.hip.binding.pointers import read, write
from peerlane.dialects.hip.binding.results import handle as handle_of
from peerlane.dialects.hip.graphs.graph import graph_handle, graphs, nodes_at
from peerlane.dialects.hip.state import calls, gpu
from peerlane.dialects.hip.streams.stream import OnStream

_WORD, _INT = 8, 4
_SET = members("hipStreamUpdateCaptureDependenciesFlags")["hipStreamSetCaptureDependencies"]


def _status(number: int) -> Any:
    return enumeration("hipStreamCaptureStatus")(number)


def _mode(number: int) -> Any:
    return enumeration("hipStreamCaptureMode")(number)


@calls.call("hipStreamBeginCapture")
def hipStreamBeginCapture(stream: OnStream, mode: Any) -> None:
    """Record the later operations of a stream as nodes of a graph, instead of running them.

    A stream that waits for an event of it is captured, too.

    Refuses: hipErrorStreamCaptureUnsupported the null stream; hipErrorContextIsDestroyed not a stream;
        hipErrorIllegalState a stream that is captured
    Basis: S
    """
    graphs.begin_capture(stream, int(mode))


def _begin_to_graph(
    stream: AnyStream, graph: int, dependencies: int, data: Any, count: int, mode: Any
) -> None:
    on = graphs.of(graph)
    if data is not None and count:
        size = data.c_sizeof()
        gpu.regions.refuse_beyond("dependencyData", int(data), size * min(count, len(on.nodes)))
        if any(read(int(data), size * min(count, len(on.nodes)))):
            raise invalid("edges have data, which is for kernels", "pass zeros")
    before = nodes_at("dependencies", dependencies, count, len(on.nodes))
    graphs.begin_capture(stream, int(mode), on, before)


@calls.call("hipStreamBeginCaptureToGraph")
def hipStreamBeginCaptureToGraph(
    stream: OnStream, graph: int, dependencies: int, dependencyData: Any, numDependencies: int, mode: Any
) -> None:
    """Do what hipStreamBeginCapture does with a graph that is there; the first operation depends on nodes of it.

    Refuses: as `hipStreamBeginCapture`; hipErrorInvalidValue not a graph, not a node of it, data of edges other than
        0
    Basis: D
    """
    _begin_to_graph(stream, graph, dependencies, dependencyData, numDependencies, mode)


@calls.declare_overload("hipStreamBeginCaptureToGraph", "earlier")
def _begin_without_dependencies(
    stream: OnStream, graph: int, dependencyData: Any, numDependencies: int, mode: Any
) -> None:
    _begin_to_graph(stream, graph, 0, dependencyData, numDependencies, mode)


@calls.call("hipStreamEndCapture")
def hipStreamEndCapture(stream: OnStream) -> Any:
    """End a capture.

    Gives: graph
    Refuses: hipErrorIllegalState a stream that is not captured; hipErrorStreamCaptureUnmatched it began on another
        stream; hipErrorStreamCaptureWrongThread in another thread; hipErrorStreamCaptureInvalidated an earlier call
        made it invalid; hipErrorStreamCaptureUnjoined a forked stream was not joined; hipErrorContextIsDestroyed
        not a stream
    Basis: S
    """
    return graph_handle(graphs.end_capture(stream))


@calls.call("hipStreamIsCapturing")
def hipStreamIsCapturing(stream: OnStream) -> Any:
    """Tell whether a stream is captured (facts/hip 3.7).

    Gives: a hipStreamCaptureStatus
    Refuses: hipErrorContextIsDestroyed not a stream; hipErrorStreamCaptureImplicit the null stream while a blocking
        one is captured
    Basis: S
    """
    captured = graphs.captured(stream)
    return _status(NONE if captured is None or captured.capture is None else captured.capture.state)


#: The arrays of dependencies that a program may read until its next call about the stream.
_arrays: dict[int, Any] = {}


def _info(stream: AnyStream, dependencies_out: int) -> tuple[Any, int, Any, int]:
    captured = graphs.captured(stream)
    capture = None if captured is None else captured.capture
    if captured is None or capture is None or capture.state != ACTIVE:
        return _status(NONE if capture is None else capture.state), 0, handle_of("ihipGraph", 0), 0
    nodes = [each.handle for each in capture.dependencies[captured]]
    array = _arrays[stream.handle] = (ctypes.c_uint64 * max(len(nodes), 1))(*nodes)
    if dependencies_out:
        write(dependencies_out, ctypes.addressof(array).to_bytes(_WORD, "little"))
    return _status(ACTIVE), capture.number, graph_handle(capture.graph), len(nodes)


@calls.call("hipStreamGetCaptureInfo")
def hipStreamGetCaptureInfo(stream: OnStream) -> tuple[Any, int]:
    """Return the state of a stream, and the number of its capture.

    Gives: a hipStreamCaptureStatus, number
    Refuses: as `hipStreamIsCapturing`
    Basis: D
    """
    return _info(stream, 0)[:2]


@calls.call("hipStreamGetCaptureInfo_v2")
def hipStreamGetCaptureInfo_v2(stream: OnStream, dependencies_out: int) -> tuple[Any, int, Any, int]:
    """Return the state of a stream, its capture's number and graph, and how many nodes the next one depends on.

    The address of an array of them is written to ``dependencies_out``, unless that is NULL; it stays until the next
    such call for the stream.

    Gives: a hipStreamCaptureStatus, number, graph, number of nodes
    Refuses: as `hipStreamIsCapturing`; hipErrorInvalidValue memory that cannot be written
    Basis: D
    """
    return _info(stream, dependencies_out)


def _change(stream: AnyStream, dependencies: int, count: int, flags: int) -> None:
    refuse_bits(_SET, "flags", flags)
    captured = graphs.captured(stream)
    capture = None if captured is None else captured.capture
    most = 0 if capture is None else len(capture.graph.nodes)
    nodes = nodes_at("dependencies", dependencies, count, most) if capture is not None else ()
    graphs.change_dependencies(stream, nodes, replaces=flags == _SET)


@calls.call("hipStreamUpdateCaptureDependencies")
def hipStreamUpdateCaptureDependencies(
    stream: OnStream, dependencies: int, numDependencies: int, flags: int
) -> None:
    """Change what the next captured operation depends on: add nodes, or with 1 set them.

    Refuses: hipErrorIllegalState a stream that is not captured; hipErrorInvalidValue flags, NULL, not a node of the
        graph; hipErrorStreamCaptureInvalidated; as `hipStreamIsCapturing`
    Basis: D
    """
    _change(stream, dependencies, numDependencies, flags)


@calls.declare_overload("hipStreamUpdateCaptureDependencies", "earlier")
def _change_without_nodes(stream: OnStream, numDependencies: int, flags: int) -> None:
    _change(stream, 0, numDependencies, flags)


@calls.call("hipThreadExchangeStreamCaptureMode")
def hipThreadExchangeStreamCaptureMode() -> Any:
    """Set how captures affect this thread to hipStreamCaptureModeGlobal, and return what was set before.

    With the argument of C, the address of a mode, it exchanges the two.

    Gives: a hipStreamCaptureMode
    Refuses: hipErrorInvalidValue NULL, not a mode
    Basis: D; C for the call of hip-python, which cannot pass a mode
    """
    return _mode(graphs.exchange_mode(0))


@calls.declare_overload("hipThreadExchangeStreamCaptureMode", "C")
def _exchange(mode: int) -> Any:
    refuse_null("mode", mode)
    before = graphs.exchange_mode(int.from_bytes(read(mode, _INT), "little"))
    write(mode, before.to_bytes(_INT, "little"))
    return _mode(before)
