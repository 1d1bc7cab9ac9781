"""``hip``: executable graphs, their launches and updates, and the objects that graphs keep (facts/hip 3.15)."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from peerlane.dialects._shared.call import Check
from peerlane.dialects.gpu.graphs.executable import Executable
from peerlane.dialects.gpu.graphs.user_objects import UserObject
from peerlane.dialects.gpu.vendor import Reason
from peerlane.dialects.hip.binding import members
from peerlane.dialects.hip.binding.checks import refuse_no_struct
from peerlane.dialects.hip.binding.convention import Stopped, codes, invalid, refusal
from peerlane.dialects.hip.binding.enums import enumeration
from peerlane.dialects.hip.binding.pointers import write
from peerlane.dialects.hip.binding.results import handle as handle_of
from peerlane.dialects.hip.binding.results import put, text
from peerlane.dialects.hip.graphs.graph import OnGraph, OnNode, graphs, node_handle
from peerlane.dialects.hip.state import calls
from peerlane.dialects.hip.streams.host_functions import code_of
from peerlane.dialects.hip.streams.stream import OnStream, stream_of
from peerlane.streams.callbacks import CFunction

OnExecutable = Annotated[Executable, Check(lambda name: graphs.executable)]
OnUserObject = Annotated[UserObject, Check(lambda name: graphs.user_object)]
_FLAGS, _RESULTS = members("hipGraphInstantiateFlags"), members("hipGraphInstantiateResult")
_UPLOAD, _DEVICE_LAUNCH = (_FLAGS[f"hipGraphInstantiateFlag{each}"] for each in ("Upload", "DeviceLaunch"))
_ALL = sum(_FLAGS.values())
_ERROR, _INVALID_STRUCTURE = (
    _RESULTS[f"hipGraphInstantiate{each}"] for each in ("Error", "InvalidStructure")
)
_WORD, _INT = 8, 4


def _instantiate(graph: Any, flags: int) -> Any:
    if flags & _DEVICE_LAUNCH:
        raise refusal("hipErrorNotSupported", "virtual devices launch no graphs", "launch it from the host")
    return handle_of("hipGraphExec", graphs.instantiate(graph, flags, _ALL).handle)


@calls.call("hipGraphInstantiate")
def hipGraphInstantiate(graph: OnGraph, bufferSize: int) -> tuple[Any, Any, Any]:
    """Make an executable graph of a graph, which may change afterwards.

    Gives: executable graph, NULL, an empty text
    Refuses: hipErrorInvalidValue not a graph, one that belongs to a node or that a capture adds to, edges that form
        a cycle, a second executable graph of a graph with memory
    Basis: D
    """
    return _instantiate(graph, 0), node_handle(None), text("")


@calls.declare_overload("hipGraphInstantiate", "earlier")
def _instantiate_with_buffer(graph: OnGraph, pLogBuffer: Any, bufferSize: int) -> tuple[Any, None]:
    return _instantiate(graph, 0), None


@calls.call("hipGraphInstantiateWithFlags")
def hipGraphInstantiateWithFlags(graph: OnGraph, flags: int) -> Any:
    """Make an executable graph; with hipGraphInstantiateFlagAutoFreeOnLaunch a launch frees what earlier ones left.

    Gives: executable graph
    Refuses: as `hipGraphInstantiate`; hipErrorInvalidValue flags; hipErrorNotSupported launches by a device
    Basis: D
    """
    return _instantiate(graph, flags)


@calls.call("hipGraphInstantiateWithParams")
def hipGraphInstantiateWithParams(graph: OnGraph, instantiateParams: Any) -> Any:
    """Make an executable graph, and write to the parameters why it cannot be made.

    Gives: executable graph
    Refuses: as `hipGraphInstantiateWithFlags`; hipErrorInvalidValue NULL; the stream
    Basis: D
    """
    params = refuse_no_struct("hipGraphInstantiateParams", "instantiateParams", instantiateParams)
    cycle = graphs.unordered(graph)
    result = _ERROR if cycle is None else _INVALID_STRUCTURE
    put(params, "errNode_out", (0 if cycle is None else cycle.handle).to_bytes(_WORD, "little"))
    put(params, "result_out", result.to_bytes(_INT, "little"))
    upload = stream_of(int(params.uploadStream)) if params.flags & _UPLOAD else None
    executable = _instantiate(graph, params.flags)
    put(params, "result_out", bytes(_INT))
    if upload is not None:
        graphs.upload(graphs.executable(int(executable)), upload)
    return executable


@calls.call("hipGraphExecDestroy")
def hipGraphExecDestroy(graphExec: OnExecutable) -> None:
    """Destroy an executable graph; what it launched goes on.

    Refuses: hipErrorInvalidValue not an executable graph
    Basis: D
    """
    graphs.destroy_executable(graphExec, "hipGraphExecDestroy")


@calls.call("hipGraphExecGetFlags")
def hipGraphExecGetFlags(graphExec: OnExecutable) -> int:
    """Return the flags that an executable graph was made with.

    Gives: flags
    Refuses: hipErrorInvalidValue not an executable graph
    Basis: D
    """
    return graphExec.flags


@calls.call("hipGraphLaunch")
def hipGraphLaunch(graphExec: OnExecutable, stream: OnStream) -> None:
    """Launch an executable graph behind the work of a stream and its own earlier launches.

    Nodes without an edge between them may run concurrently.  If one is refused, none runs.  On a stream that is
    captured it becomes a child graph.

    Refuses: hipErrorInvalidValue not an executable graph, memory of an earlier launch that was not freed, memory that
        was freed; hipErrorContextIsDestroyed not a stream; hipErrorInvalidHandle an event that was destroyed; the
        capture
    Basis: D; C for a node that is refused
    """
    graphs.launch(graphExec, stream)


@calls.call("hipGraphUpload")
def hipGraphUpload(graphExec: OnExecutable, stream: OnStream) -> None:
    """Let later work of a stream follow the launches so far: there is nothing to upload.

    Refuses: hipErrorInvalidValue not an executable graph; hipErrorContextIsDestroyed not a stream
    Basis: D
    """
    graphs.upload(graphExec, stream)


def _update(executable: int, graph: int, error_node: int) -> tuple[Any, Any]:
    mismatch = graphs.update(graphs.executable(executable), graphs.of(graph))
    node, result = node_handle(mismatch.node), enumeration("hipGraphExecUpdateResult")(mismatch.result)
    if error_node:
        write(error_node, int(node).to_bytes(_WORD, "little"))
    if mismatch.result:
        code = codes[Reason.UPDATE_FAILED]
        raise Stopped(code, mismatch.cause, "instantiate the graph anew", node, result)
    return node, result


@calls.call("hipGraphExecUpdate")
def hipGraphExecUpdate(hGraphExec: int, hGraph: int, hErrorNode_out: int) -> Any:
    """Give an executable graph the parameters of a graph with the same nodes and edges, in the same order.

    ``hErrorNode_out`` is NULL, or where the node that does not fit is written.

    Gives: a hipGraphExecUpdateResult, also with the error
    Refuses: hipErrorInvalidValue not an executable graph, not a graph; hipErrorGraphExecUpdateFailure it does not fit
    Basis: D
    """
    try:
        return _update(hGraphExec, hGraph, hErrorNode_out)[1]
    except Stopped as error:
        error.outputs = error.outputs[1:]
        raise


@calls.declare_overload("hipGraphExecUpdate", "earlier")
def _update_earlier(hGraphExec: int, hGraph: int) -> tuple[Any, Any]:
    return _update(hGraphExec, hGraph, 0)


@calls.call("hipGraphExecChildGraphNodeSetParams")
def hipGraphExecChildGraphNodeSetParams(hGraphExec: OnExecutable, node: OnNode, childGraph: OnGraph) -> None:
    """Give a child graph the parameters of a graph with the same nodes and edges in later launches.

    Refuses: hipErrorInvalidValue not an executable graph, not a node of it, not a graph, one that does not fit
    Basis: D
    """
    graphs.set_child(hGraphExec, node, childGraph)


@calls.call("hipGraphNodeSetEnabled")
def hipGraphNodeSetEnabled(hGraphExec: OnExecutable, hNode: OnNode, isEnabled: int) -> None:
    """Enable or disable a copy or a fill in later launches.

    Refuses: hipErrorInvalidValue not an executable graph, not a node of it, a node of another type
    Basis: D
    """
    graphs.enable(hGraphExec, hNode, bool(isEnabled))


@calls.call("hipGraphNodeGetEnabled")
def hipGraphNodeGetEnabled(hGraphExec: OnExecutable, hNode: OnNode) -> int:
    """Tell whether a copy or a fill is enabled.

    Gives: 1 or 0
    Refuses: as `hipGraphNodeSetEnabled`
    Basis: D
    """
    return int(graphs.is_enabled(hGraphExec, hNode))


@calls.call("hipUserObjectCreate")
def hipUserObjectCreate(ptr: int, destroy: Any, initialRefcount: int, flags: int) -> Any:
    """Create an object that graphs can keep: ``destroy(ptr)`` is called, on a thread of its own, without references.

    Gives: user object
    Refuses: hipErrorInvalidValue NULL, no code, flags other than 1, no references
    Basis: D
    """
    address, kept = code_of("destroy", destroy)
    if flags != 1:
        raise invalid(f"flags are {flags}", "pass hipUserObjectNoDestructorSync, 1")
    function = CFunction(address)
    user_object = graphs.create_user_object(partial(_call, kept, function, ptr), initialRefcount)
    return handle_of("hipUserObject", user_object.handle)


def _call(_kept: object, function: CFunction, word: int) -> None:
    function(word)


@calls.call("hipUserObjectRetain")
def hipUserObjectRetain(object: OnUserObject, count: int) -> None:
    """Give the program more references.

    Refuses: hipErrorInvalidValue not a user object, the number
    Basis: D
    """
    graphs.retain_user_object(object, count)


@calls.call("hipUserObjectRelease")
def hipUserObjectRelease(object: OnUserObject, count: int) -> None:
    """Take references from the program.

    Refuses: hipErrorInvalidValue not a user object, the number
    Basis: D
    """
    graphs.release_user_object(object, count)


@calls.call("hipGraphRetainUserObject")
def hipGraphRetainUserObject(graph: OnGraph, object: OnUserObject, count: int, flags: int) -> None:
    """Give a graph references: new ones, or with hipGraphUserObjectMove those of the program.

    Refuses: hipErrorInvalidValue not a graph, not a user object, the number, flags
    Basis: D
    """
    if flags & ~1:
        raise invalid(f"flags are {flags:#x}", "pass 0 or 1")
    graphs.retain_by_graph(graph, object, count, moves=bool(flags))


@calls.call("hipGraphReleaseUserObject")
def hipGraphReleaseUserObject(graph: OnGraph, object: OnUserObject, count: int) -> None:
    """Take references from a graph.

    Refuses: hipErrorInvalidValue not a graph, not a user object, more than the graph has
    Basis: D
    """
    graphs.release_by_graph(graph, object, count)
