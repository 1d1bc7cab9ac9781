"""``hip``: events (facts/hip 3.7)."""

from __future__ import annotations

import ctypes
from typing import Any

from peerlane import Event, Handle
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects._shared.machine import Context, Thing
from peerlane.dialects.hip._convention import invalid, refusal
from peerlane.dialects.hip._pool_reuse import Freed, follow, freed_before
from peerlane.dialects.hip._results import handle as handle_of
from peerlane.dialects.hip._state import calls, machine
from peerlane.dialects.hip._stream import has_waited, refuse_flags, stream_of, submits

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
        What was freed to pools before its newest record.
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
        """End it, without waiting; who waits for it goes on doing so."""
        self.neutral.close()

    abandon = end


def give_event(event: HipEvent) -> Any:
    """Give an event out."""
    return handle_of("ihipEvent_t", machine.give(event))


def event_of(handle: int) -> HipEvent:
    """Return the event of a handle; hipErrorInvalidHandle for what is none."""
    return machine.thing(handle, HipEvent, "hipErrorInvalidHandle")


@calls.call("hipEventCreate")
def hipEventCreate() -> Any:
    """Create an event of the current device, to order streams and to take times.

    Gives: event
    Basis: S
    """
    return _create(0)


@calls.call("hipEventCreateWithFlags")
def hipEventCreateWithFlags(flags: int) -> Any:
    """Create an event of the current device.

    hipEventDisableTiming: it has no time.  hipEventInterprocess, only together with that: other processes can have
    it.  The others tell how to wait and what to flush, and change nothing here; at most one is about flushing.

    Gives: event
    Refuses: hipErrorInvalidValue flags
    Basis: D
    """
    refuse_flags(flags, _FLAGS)
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
    """Destroy, without waiting; who waits for it goes on doing so.

    Refuses: hipErrorInvalidHandle NULL; hipErrorContextIsDestroyed what is no event, or was destroyed
    Basis: D
    """
    code = "hipErrorContextIsDestroyed" if event else "hipErrorInvalidHandle"
    machine.remove(event, HipEvent, code, "hipEventDestroy").end()


@calls.call("hipEventRecord")
def hipEventRecord(event: int, stream: int) -> None:
    """Record: the event is over when all that was submitted to the stream so far is (facts/hip 3.7).

    Refuses: hipErrorInvalidHandle NULL, no event, a stream of another device; hipErrorContextIsDestroyed for what is
        no stream
    Basis: S
    """
    _record(event, stream)


@calls.call("hipEventRecordWithFlags")
def hipEventRecordWithFlags(event: int, stream: int, flags: int) -> None:
    """Do what hipEventRecord does; hipEventRecordExternal, 1, means something only while a graph is captured.

    Refuses: as `hipEventRecord`; hipErrorInvalidValue flags
    Basis: D
    """
    refuse_flags(flags, _EXTERNAL)
    _record(event, stream)


def _record(event: int, stream: int) -> None:
    found = event_of(event)
    target = stream_of(stream)
    if found.neutral.device is not target.context.device:
        its, other = machine.ids(found.neutral.device, target.context.device)
        raise refusal(
            "hipErrorInvalidHandle",
            f"event {event:#x} belongs to device {its}, and the stream to device {other}",
            "record an event on streams of the device that was current when it was created",
        )
    found.frees = freed_before(target)
    submits(target).record(found.neutral)


@calls.call("hipEventQuery")
def hipEventQuery(event: int) -> None:
    """Tell whether an event is over; one that was never recorded is.

    Refuses: hipErrorNotReady not yet; hipErrorInvalidHandle for what is no event
    Basis: S
    """
    if not event_of(event).is_over:
        raise _not_ready(event)


@calls.call("hipEventSynchronize")
def hipEventSynchronize(event: int) -> None:
    """Wait until an event is over; one that was never recorded is (facts/hip 3.7).

    Refuses: hipErrorInvalidHandle for what is no event; hipErrorLaunchFailure if the record was cancelled
    Basis: S; C for a record that was cancelled
    """
    found = event_of(event)
    if found.neutral.is_recorded:
        found.neutral.sync()
        has_waited(found.context.device)


@calls.call("hipEventElapsedTime")
def hipEventElapsedTime(start: int, stop: int) -> float:
    """Return the ms from one event to another (facts/hip 3.7), with the precision of a C float.

    Refuses: hipErrorInvalidHandle no event, events of two devices, hipEventDisableTiming, never recorded;
        hipErrorNotReady one is not over
    Basis: S
    """
    both = {handle: event_of(handle) for handle in (start, stop)}
    ids = machine.ids(*(each.context.device for each in both.values()))
    if len(set(ids)) > 1:
        raise refusal(
            "hipErrorInvalidHandle",
            f"the events belong to devices {ids[0]} and {ids[1]}, each with a clock of its own",
            "take both times on one device",
        )
    for handle, each in both.items():
        if each.flags & DISABLE_TIMING:
            raise refusal(
                "hipErrorInvalidHandle",
                f"event {handle:#x} was created with hipEventDisableTiming, so it has no time",
                "create it with hipEventCreate",
            )
        if not each.neutral.is_recorded:
            raise refusal(
                "hipErrorInvalidHandle", f"event {handle:#x} was never recorded", "call hipEventRecord first"
            )
    for handle, each in both.items():
        if not each.is_over:
            raise _not_ready(handle)
    return ctypes.c_float((both[stop].neutral.time_ns - both[start].neutral.time_ns) / 1e6).value


@calls.call("hipStreamWaitEvent")
def hipStreamWaitEvent(stream: int, event: int, flags: int) -> None:
    """Let what is submitted to a stream from now on wait for an event, of any device (facts/hip 3.7).

    It means the last record so far; without one there is nothing to wait for.

    Refuses: hipErrorInvalidValue flags; hipErrorInvalidHandle no event, no stream, hipEventWaitExternal outside a
        graph
    Basis: S; D for hipEventWaitExternal
    """
    refuse_flags(flags, _EXTERNAL)
    found = event_of(event)
    target = stream_of(stream, "hipErrorInvalidHandle")
    if flags:
        raise refusal(
            "hipErrorInvalidHandle",
            "hipEventWaitExternal (1) makes a node of the graph that the stream captures, and none is captured",
            "pass 0",
        )
    if found.neutral.is_recorded:
        submits(target).wait(found.neutral)
        if found.frees:
            follow(found.frees, target)


def _not_ready(handle: int) -> Refusal:
    return refusal(
        "hipErrorNotReady",
        f"what was submitted before event {handle:#x} is not over",
        "call hipEventSynchronize, or ask again",
    )
