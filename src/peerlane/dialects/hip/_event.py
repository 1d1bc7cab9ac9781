"""``hip``: events (facts/hip 3.7)."""

from __future__ import annotations

import ctypes
from typing import Annotated, Any

from peerlane import Event, Handle
from peerlane.dialects._shared.call import Check, Refusal
from peerlane.dialects._shared.machine import Context, Thing
from peerlane.dialects.hip._checks import flags
from peerlane.dialects.hip._convention import invalid, refusal
from peerlane.dialects.hip._pool_reuse import Freed, follow, freed_before
from peerlane.dialects.hip._results import handle as handle_of
from peerlane.dialects.hip._state import calls, machine
from peerlane.dialects.hip._stream import OnStream, ValidStream, has_waited

DISABLE_TIMING, INTERPROCESS = 2, 4
_BLOCKING_SYNC = 1
_NO_FENCE, _TO_DEVICE, _TO_SYSTEM = 0x2000_0000, 0x4000_0000, 0x8000_0000
_RELEASES = _NO_FENCE | _TO_DEVICE | _TO_SYSTEM
_FLAGS = _BLOCKING_SYNC | DISABLE_TIMING | INTERPROCESS | _RELEASES
_EXTERNAL = 1  # for graphs


class HipEvent(Thing):
    """An event of a device.

    Attributes
    ----------
    neutral : peerlane.Event
    flags : int
    exported : Handle or None
        What lets other processes have it.
    frees : tuple of Freed
        The memory that was freed to pools before its newest record.
    """

    __slots__ = ("exported", "flags", "frees", "neutral")

    name = "event"

    def __init__(self, context: Context, flags: int, neutral: Event) -> None:
        super().__init__(context)
        self.flags = flags
        self.neutral = neutral
        self.exported: Handle | None = None
        self.frees: tuple[Freed, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether its record is over, or there is none."""
        return not self.neutral.is_recorded or self.neutral.is_done

    def end(self) -> None:
        """End it without waiting; streams that wait for it go on waiting."""
        self.neutral.close()

    abandon = end


def give_event(event: HipEvent) -> Any:
    """Give an event out."""
    return handle_of("ihipEvent_t", machine.give(event))


def event_of(handle: int) -> HipEvent:
    """Return the event of a handle; hipErrorInvalidHandle for other numbers."""
    return machine.thing(handle, HipEvent, "hipErrorInvalidHandle")


EventHandle = Annotated[HipEvent, Check(lambda name: event_of)]
_Flags = Annotated[int, flags(_FLAGS)]
_External = Annotated[int, flags(_EXTERNAL)]


@calls.call("hipEventCreate")
def hipEventCreate() -> Any:
    """Create an event of the current device, to order streams and to take times.

    Gives: event
    Basis: S
    """
    return _create(0)


@calls.call("hipEventCreateWithFlags")
def hipEventCreateWithFlags(flags: _Flags) -> Any:
    """Create an event of the current device.

    hipEventDisableTiming: it has no time.  hipEventInterprocess, only together with that: other processes can have
    it.  The others tell how to wait and what to flush, and change nothing here; at most one is about flushing.

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
    return _create(flags)


def _create(flags: int) -> Any:
    context = machine.context()
    return give_event(HipEvent(context, flags, context.device.create_event()))


@calls.call("hipEventDestroy")
def hipEventDestroy(event: int) -> None:
    """Destroy an event without waiting; streams that wait for it go on waiting.

    Refuses: hipErrorInvalidHandle NULL; hipErrorContextIsDestroyed not an event, or destroyed
    Basis: D
    """
    code = "hipErrorContextIsDestroyed" if event else "hipErrorInvalidHandle"
    machine.remove(event, HipEvent, code, "hipEventDestroy").end()


@calls.call("hipEventRecord")
def hipEventRecord(event: EventHandle, stream: OnStream) -> None:
    """Record: the event is over when all that was submitted to the stream so far is (facts/hip 3.7).

    Refuses: hipErrorInvalidHandle NULL, no event, a stream of another device; hipErrorContextIsDestroyed not
        a stream
    Basis: S
    """
    if event.neutral.device is not stream.context.device:
        its, other = machine.ids(event.neutral.device, stream.context.device)
        raise refusal(
            "hipErrorInvalidHandle",
            f"event {event.handle:#x} belongs to device {its}, and the stream to device {other}",
            "record an event on streams of the device that was current when it was created",
        )
    event.frees = freed_before(stream)
    stream.neutral.record(event.neutral)


@calls.call("hipEventRecordWithFlags", first=("flags",))
def hipEventRecordWithFlags(event: int, stream: int, flags: _External) -> None:
    """Do what hipEventRecord does; hipEventRecordExternal, 1, means something only while a graph is captured.

    Refuses: as `hipEventRecord`; hipErrorInvalidValue flags
    Basis: D
    """
    calls.bodies["hipEventRecord"](event, stream)


@calls.call("hipEventQuery")
def hipEventQuery(event: EventHandle) -> None:
    """Tell whether an event is over; one that was never recorded is.

    Refuses: hipErrorNotReady not yet; hipErrorInvalidHandle not an event
    Basis: S
    """
    if not event.is_over:
        raise _not_ready(event)


@calls.call("hipEventSynchronize")
def hipEventSynchronize(event: EventHandle) -> None:
    """Wait until an event is over; one that was never recorded is (facts/hip 3.7).

    Refuses: hipErrorInvalidHandle not an event; hipErrorLaunchFailure if the record was cancelled
    Basis: S; C for a record that was cancelled
    """
    if event.neutral.is_recorded:
        event.neutral.sync()
        has_waited(event.context.device)


@calls.call("hipEventElapsedTime")
def hipEventElapsedTime(start: EventHandle, stop: EventHandle) -> float:
    """Return the ms from one event to another (facts/hip 3.7), with the precision of a C float.

    Refuses: hipErrorInvalidHandle no event, events of two devices, hipEventDisableTiming, never recorded;
        hipErrorNotReady one is not over
    Basis: S
    """
    ids = machine.ids(start.context.device, stop.context.device)
    if ids[0] != ids[1]:
        raise refusal(
            "hipErrorInvalidHandle",
            f"the events belong to devices {ids[0]} and {ids[1]}, each with a clock of its own",
            "take both times on one device",
        )
    for each in (start, stop):
        if each.flags & DISABLE_TIMING:
            raise refusal(
                "hipErrorInvalidHandle",
                f"event {each.handle:#x} was created with hipEventDisableTiming, so it has no time",
                "create it with hipEventCreate",
            )
        if not each.neutral.is_recorded:
            raise refusal(
                "hipErrorInvalidHandle",
                f"event {each.handle:#x} was never recorded",
                "call hipEventRecord first",
            )
    for each in (start, stop):
        if not each.is_over:
            raise _not_ready(each)
    return ctypes.c_float((stop.neutral.time_ns - start.neutral.time_ns) / 1e6).value


@calls.call("hipStreamWaitEvent", first=("flags", "event"))
def hipStreamWaitEvent(stream: ValidStream, event: EventHandle, flags: _External) -> None:
    """Let later operations of a stream wait for an event, of any device (facts/hip 3.7).

    It means the last record so far; without one there is nothing to wait for.

    Refuses: hipErrorInvalidValue flags; hipErrorInvalidHandle no event, no stream, hipEventWaitExternal outside a
        graph
    Basis: S; D for hipEventWaitExternal
    """
    if flags:
        raise refusal(
            "hipErrorInvalidHandle",
            "hipEventWaitExternal (1) makes a node of the graph that the stream captures, and none is captured",
            "pass 0",
        )
    if event.neutral.is_recorded:
        stream.neutral.wait(event.neutral)
        if event.frees:
            follow(event.frees, stream)


def _not_ready(event: HipEvent) -> Refusal:
    return refusal(
        "hipErrorNotReady",
        f"the work before event {event.handle:#x} is not over",
        "call hipEventSynchronize, or ask again",
    )
