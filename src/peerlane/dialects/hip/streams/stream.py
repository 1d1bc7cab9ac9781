"""``hip``: streams, and the null stream that waits for the others (facts/hip 3.7)."""

from __future__ import annotations

from typing import Annotated, Any

from peerlane.dialects._shared.call import Check
from peerlane.dialects.gpu.streams import NON_BLOCKING, AnyStream
from peerlane.dialects.gpu.vendor import Reason
from peerlane.dialects.hip.binding.checks import flags
from peerlane.dialects.hip.binding.results import handle as handle_of
from peerlane.dialects.hip.state import calls, gpu

streams = gpu.streams
stream_of = streams.of


def valid_stream_of(handle: int) -> AnyStream:
    """Return the stream of a handle; hipErrorInvalidHandle for other numbers."""
    return streams.of(handle, Reason.INVALID_HANDLE)


OnStream = Annotated[AnyStream, Check(lambda name: streams.of)]
ValidStream = Annotated[AnyStream, Check(lambda name: valid_stream_of)]


def create(flags: int, priority: int = 0, units: tuple[int, ...] = ()) -> Any:
    """Create a stream on this thread's device."""
    return handle_of("ihipStream_t", streams.create(flags, priority, units))


_Flags = Annotated[int, flags(NON_BLOCKING)]


@calls.call("hipStreamCreate")
def hipStreamCreate() -> Any:
    """Create a stream on the current device, which the null stream waits for (facts/hip 3.7).

    Gives: stream
    Basis: S
    """
    return create(0)


@calls.call("hipStreamCreateWithFlags")
def hipStreamCreateWithFlags(flags: _Flags) -> Any:
    """Create a stream; with hipStreamNonBlocking it and the null stream do not wait for each other.

    Gives: stream
    Refuses: hipErrorInvalidValue flags
    Basis: S
    """
    return create(flags)


@calls.call("hipStreamCreateWithPriority")
def hipStreamCreateWithPriority(flags: _Flags, priority: int) -> Any:
    """Create a stream with a priority, which is kept and cut to the valid range.

    Gives: stream
    Refuses: hipErrorInvalidValue flags
    Basis: S
    """
    return create(flags, priority)


@calls.call("hipStreamDestroy")
def hipStreamDestroy(stream: int) -> None:
    """Wait for queued work, then destroy the stream (facts/hip 3.7), also if that work failed.

    A word that the stream waits for is waited for, whoever will write it.  Called by a callback of the stream, it
    does not wait.

    Refuses: hipErrorInvalidHandle the null stream, that of a thread, one that ended with hipDeviceReset;
        hipErrorContextIsDestroyed not a stream, or destroyed; the code of its failed work
    Basis: S; D for waiting; C in a callback
    """
    streams.destroy(stream, "hipStreamDestroy")


@calls.call("hipStreamQuery")
def hipStreamQuery(stream: OnStream) -> None:
    """Tell whether all that was submitted is over; the null stream asks for all blocking streams (facts/hip 3.7).

    Refuses: hipErrorNotReady not yet; hipErrorContextIsDestroyed not a stream
    Basis: S
    """
    streams.query(stream)


@calls.call("hipStreamSynchronize")
def hipStreamSynchronize(stream: OnStream) -> None:
    """Wait until all that was submitted is over; the null stream waits for all blocking streams (facts/hip 3.7).

    Refuses: hipErrorContextIsDestroyed not a stream; the code of its failed work
    Basis: S
    """
    streams.synchronize(stream)


@calls.call("hipDeviceSynchronize")
def hipDeviceSynchronize() -> None:
    """Wait for all streams of the current device, non-blocking ones too; report the first failure.

    Refuses: what their work failed with
    Basis: S
    """
    streams.synchronize_device()
