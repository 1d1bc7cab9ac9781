"""``hip``: events (facts/hip 3.7)."""

from __future__ import annotations

import ctypes
from typing import Annotated, Any

from peerlane.dialects._shared.call import Check
from peerlane.dialects.gpu.events import DISABLE_TIMING, INTERPROCESS, GpuEvent
from peerlane.dialects.gpu.vendor import Reason
from peerlane.dialects.hip.binding import numbers
from peerlane.dialects.hip.binding.checks import flags
from peerlane.dialects.hip.binding.convention import invalid, refusal
from peerlane.dialects.hip.binding.results import handle as handle_of
from peerlane.dialects.hip.state import calls, gpu, machine
from peerlane.dialects.hip.streams.stream import OnStream, ValidStream, streams

_BLOCKING_SYNC, _TO_DEVICE, _TO_SYSTEM = numbers(
    "hipEventBlockingSync", "hipEventReleaseToDevice", "hipEventReleaseToSystem"
)
_NO_FENCE = 0x2000_0000  # a macro of the C header, which the wheel lacks
_RELEASES = _NO_FENCE | _TO_DEVICE | _TO_SYSTEM
_FLAGS = _BLOCKING_SYNC | DISABLE_TIMING | INTERPROCESS | _RELEASES
_EXTERNAL = 1  # for graphs; a macro, too


events = gpu.events
EventHandle = Annotated[GpuEvent, Check(lambda name: events.of)]
_Flags = Annotated[int, flags(_FLAGS)]
_External = Annotated[int, flags(_EXTERNAL)]


@calls.call("hipEventCreate")
def hipEventCreate() -> Any:
    """Create an event of the current device, to order streams and to take times.

    Gives: event
    Basis: S
    """
    return handle_of("ihipEvent_t", events.create(0))


@calls.call("hipEventCreateWithFlags")
def hipEventCreateWithFlags(flags: _Flags) -> Any:
    """Create an event of the current device.

    hipEventDisableTiming: it has no time.  hipEventInterprocess, only together with that: other processes can open
    it.  The others are kept and change nothing: how to wait, and what to flush, of which one at most is set.

    Gives: event
    Refuses: hipErrorInvalidValue flags
    Basis: D
    """
    releases = flags & _RELEASES
    if releases & (releases - 1):
        raise invalid(f"flags {flags:#x} ask for two ways to flush", "choose one, or none")
    if flags & INTERPROCESS and not flags & DISABLE_TIMING:
        raise invalid(
            f"flags {flags:#x} have hipEventInterprocess (4) without hipEventDisableTiming (2)",
            "pass both: 6",
        )
    return handle_of("ihipEvent_t", events.create(flags))


@calls.call("hipEventDestroy")
def hipEventDestroy(event: int) -> None:
    """Destroy an event without waiting; streams that wait for it still wait.

    Refuses: hipErrorInvalidHandle NULL; hipErrorContextIsDestroyed not an event, or destroyed
    Basis: D
    """
    reason = Reason.DEVICE_RESET if event else Reason.NOT_AN_EVENT
    machine.remove(event, GpuEvent, reason, "hipEventDestroy").end()


@calls.call("hipEventRecord")
def hipEventRecord(event: EventHandle, stream: OnStream) -> None:
    """Record an event: it is over when all earlier work of the stream is (facts/hip 3.7).

    Refuses: hipErrorInvalidHandle NULL, no event, a stream of another device; hipErrorContextIsDestroyed not
        a stream
    Basis: S
    """
    events.record(event, stream)


@calls.call("hipEventRecordWithFlags", first=("flags",))
def hipEventRecordWithFlags(event: int, stream: int, flags: _External) -> None:
    """Do what hipEventRecord does; with hipEventRecordExternal, 1, the record becomes a node of a captured graph.

    Refuses: as `hipEventRecord`; hipErrorInvalidValue flags
    Basis: D
    """
    events.record(events.of(event), streams.of(stream), is_external=bool(flags))


@calls.call("hipEventQuery")
def hipEventQuery(event: EventHandle) -> None:
    """Tell whether an event is over; one that was never recorded is.

    Refuses: hipErrorNotReady not yet; hipErrorInvalidHandle not an event
    Basis: S
    """
    events.query(event)


@calls.call("hipEventSynchronize")
def hipEventSynchronize(event: EventHandle) -> None:
    """Wait until an event is over; one that was never recorded is (facts/hip 3.7).

    Refuses: hipErrorInvalidHandle not an event; hipErrorLaunchFailure if the record was cancelled
    Basis: S; C for a record that was cancelled
    """
    events.synchronize(event)


@calls.call("hipEventElapsedTime")
def hipEventElapsedTime(start: EventHandle, stop: EventHandle) -> float:
    """Return the ms from one event to another (facts/hip 3.7), with the precision of a C float.

    Refuses: hipErrorInvalidHandle no event, events of two devices, hipEventDisableTiming, never recorded;
        hipErrorNotReady one is not over
    Basis: S
    """
    return ctypes.c_float(events.elapsed_ms(start, stop)).value


@calls.call("hipStreamWaitEvent", first=("flags", "event"))
def hipStreamWaitEvent(stream: ValidStream, event: EventHandle, flags: _External) -> None:
    """Let later operations of a stream wait for an event, of any device (facts/hip 3.7).

    It means the last record so far; without one there is nothing to wait for.

    Refuses: hipErrorInvalidValue flags; hipErrorInvalidHandle no event, no stream, hipEventWaitExternal outside a
        graph
    Basis: S; D for hipEventWaitExternal
    """
    if flags and stream.capture is None:
        raise refusal(
            "hipErrorInvalidHandle",
            "hipEventWaitExternal (1) makes a node of the graph that the stream captures, and none is captured",
            "pass 0",
        )
    events.wait(stream, event, is_external=bool(flags))
