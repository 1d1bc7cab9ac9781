"""Events: records of streams, which other streams and the host wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from peerlane import Device, Event, Handle
from peerlane.backend import host
from peerlane.dialects._shared.call import Check, Refusal
from peerlane.dialects._shared.machine import Context, Resource
from peerlane.dialects.gpu.captures import Capture
from peerlane.dialects.gpu.graphs.graph import Node
from peerlane.dialects.gpu.machine import GpuMachine
from peerlane.dialects.gpu.reuse import Reuse
from peerlane.dialects.gpu.streams import AnyStream, Streams
from peerlane.dialects.gpu.vendor import Reason

DISABLE_TIMING, INTERPROCESS = 2, 4


class GpuEvent(Resource):
    """An event of a device."""

    __slots__ = ("captured", "exported", "flags", "freed", "neutral")

    name = "event"

    def __init__(self, context: Context, flags: int, neutral: Event) -> None:
        super().__init__(context)
        self.flags = flags
        self.neutral = neutral
        self.exported: Handle | None = None  #: the handle by which other processes open it
        #: For native code: the memory that was freed to pools before its newest record.
        self.freed: Any = host.FreedBefore()
        #: Of a newest record that was captured: the capture, and the nodes before it.
        self.captured: tuple[Capture, tuple[Node, ...]] | None = None

    @property
    def is_over(self) -> bool:
        """Whether its record is over, or there is none."""
        return not self.neutral.is_recorded or self.neutral.is_done

    def end(self) -> None:
        """End it without waiting; streams that wait for it still wait."""
        self.neutral.close()

    abandon = end


class EventOperation:
    """A record of an event, or a wait for one, as an operation of a graph."""

    __slots__ = ("_events", "event", "kind")

    def __init__(self, events: Events, kind: str, event: GpuEvent) -> None:
        #: ``kind``: ``"EVENT_RECORD"`` or ``"WAIT_EVENT"``.
        self._events, self.kind, self.event = events, kind, event

    def prepared(self, _: Device) -> Callable[[AnyStream], None]:
        """Refuse an event that was destroyed; return what queues the operation."""
        event = self._events.of(self.event.handle)
        if self.kind == "WAIT_EVENT":
            return lambda stream: self._events.queue_wait(stream, event)
        return lambda stream: self._events.record(event, stream)


class Events:
    """The events of a vendor's program, by handle."""

    def __init__(self, machine: GpuMachine, streams: Streams, reuse: Reuse) -> None:
        self._machine, self._streams, self._reuse = machine, streams, reuse

    def of(self, handle: int) -> GpuEvent:
        """Return the event of a handle; ``NOT_AN_EVENT`` for other numbers."""
        return self._machine.resource(handle, GpuEvent, Reason.NOT_AN_EVENT)

    @property
    def checked(self) -> object:
        """The annotation of a parameter that a call gets as an event, refused as :meth:`of` does."""
        return Annotated[GpuEvent, Check(lambda name: self.of)]

    def create(self, flags: int) -> int:
        """Create an event of this thread's device and return its number."""
        context = self._machine.context()
        return self._machine.issue(GpuEvent(context, flags, context.device.create_event()))

    def record(self, event: GpuEvent, stream: AnyStream, *, is_external: bool = False) -> None:
        """Record an event: it is over when all earlier work of the stream is.

        In a capture it marks what was captured so far; an external one becomes a node.  ``OTHER_DEVICE`` for a
        stream of another device, or of another context where programs have contexts of their own.
        """
        if self._is_elsewhere(event, stream):
            its, other = self._machine.ids(event.neutral.device, stream.context.device)
            raise self._refusal(
                Reason.OTHER_DEVICE,
                f"event {event.handle:#x} belongs to device {its}, and the stream to {_other(its, other)}",
                "record an event on streams of the device and context that were current when it was created",
            )
        capture = stream.capture
        if capture is None:
            event.freed.record(self._reuse.native, stream.neutral.id)
            stream.neutral.record(event.neutral)
            event.captured = None
        elif is_external:
            capture.add(stream, EventOperation(self, "EVENT_RECORD", event))
        else:
            capture.refuse_invalidated()
            event.captured = capture, capture.dependencies[stream]

    def _is_elsewhere(self, event: GpuEvent, stream: AnyStream) -> bool:
        if event.neutral.device is not stream.context.device:
            return True
        return self._machine.vendor.policy.own_contexts and event.context is not stream.context

    def query(self, event: GpuEvent) -> None:
        """Refuse an event that is not over, ``NOT_READY``; report the failure of the work before it.

        One that was never recorded is over.
        """
        self._refuse_captured(event)
        self._streams.captures.refuse_unsafe()
        if not event.is_over or host.awaits_abort(event.neutral):
            raise self._refusal(
                Reason.NOT_READY,
                f"the work before event {event.handle:#x} is not over",
                "call {event_synchronize}, or ask again",
            )
        self._report(event)

    def synchronize(self, event: GpuEvent) -> None:
        """Wait until an event is over, and report the failure of the work before it.

        One that was never recorded is over.
        """
        self._refuse_captured(event)
        self._streams.captures.refuse_unsafe()
        if event.neutral.is_recorded:
            self._report(event)
            self._streams.has_waited(event.context.device)

    def _report(self, event: GpuEvent) -> None:
        if event.neutral.is_recorded:
            event.neutral.sync()
            self._streams.report_before(event.neutral)

    def _refuse_captured(self, event: GpuEvent) -> None:
        """Refuse an event whose last record was captured, ``CAPTURED_EVENT``; that capture becomes invalid."""
        if event.captured is not None:
            raise event.captured[0].fail(
                Reason.CAPTURED_EVENT,
                f"the last record of event {event.handle:#x} was captured, and never runs",
                "record it outside of a capture, or as an external event",
            )

    def wait(self, stream: AnyStream, event: GpuEvent, *, is_external: bool = False) -> None:
        """Let later operations of a stream wait for the last record of an event so far, if there is one.

        A captured record pulls the stream into the capture; an external wait becomes a node of the stream's one.

        Raises Refusal: ``CAPTURED_EVENT`` its capture is over; ``CAPTURE_ISOLATION`` a captured stream, and a record
            outside of its capture; as :meth:`Capture.join`.
        """
        capture = stream.capture
        if capture is not None and is_external:
            capture.add(stream, EventOperation(self, "WAIT_EVENT", event))
            return
        if event.captured is not None:
            of, nodes = event.captured
            if of not in self._streams.captures.active:
                self._refuse_captured(event)
            of.join(stream, nodes)
            return
        if capture is not None:
            capture.refuse_invalidated()
            if event.neutral.is_recorded:
                raise capture.fail(
                    Reason.CAPTURE_ISOLATION,
                    f"event {event.handle:#x} was recorded outside of the capture that {stream.title} is in",
                    "wait before the capture, or make it an external event",
                )
            return
        self.queue_wait(stream, event)

    def queue_wait(self, stream: AnyStream, event: GpuEvent) -> None:
        """Queue a wait for the last record that ran, if there is one."""
        neutral = stream.neutral  # refused for a null stream while a blocking stream is captured
        if event.neutral.is_recorded:
            neutral.wait(event.neutral)
            event.freed.wait(self._reuse.native, neutral.id)

    def elapsed_ms(self, start: GpuEvent, stop: GpuEvent) -> float:
        """Return the ms from one event to another.

        Raises Refusal: ``OTHER_DEVICE`` events of two devices; ``NOT_TIMED``; ``NOT_RECORDED``; ``NOT_READY``.
        """
        first, second = self._machine.ids(start.context.device, stop.context.device)
        if first != second:
            raise self._refusal(
                Reason.OTHER_DEVICE,
                f"the events belong to devices {first} and {second}, each with a clock of its own",
                "take both times on one device",
            )
        for each in (start, stop):
            if each.flags & DISABLE_TIMING:
                raise self._refusal(
                    Reason.NOT_TIMED,
                    f"event {each.handle:#x} was created with {self._machine.vendor.calls['disable_timing']}, "
                    "so it has no time",
                    "create it with {create_event}",
                )
            if not each.neutral.is_recorded:
                raise self._refusal(
                    Reason.NOT_RECORDED, f"event {each.handle:#x} was never recorded", "call {record} first"
                )
        for each in (start, stop):
            self.query(each)
        return (stop.neutral.time_ns - start.neutral.time_ns) / 1e6

    def _refusal(self, reason: Reason, cause: str, remedy: str) -> Refusal:
        return self._machine.vendor.refusal(reason, cause, remedy)


def _other(its: int, other: int) -> str:
    return "another context of it" if its == other else f"device {other}"
