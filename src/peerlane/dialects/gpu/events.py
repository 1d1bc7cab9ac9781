"""Events: records of streams, which other streams and the host wait for."""

from __future__ import annotations

from typing import Annotated

from peerlane import Event, Handle
from peerlane.dialects._shared.call import Check, Refusal
from peerlane.dialects._shared.machine import Context, Resource
from peerlane.dialects.gpu.machine import GpuMachine
from peerlane.dialects.gpu.reuse import Freed, Reuse
from peerlane.dialects.gpu.streams import AnyStream, Streams
from peerlane.dialects.gpu.vendor import Reason

DISABLE_TIMING, INTERPROCESS = 2, 4


class GpuEvent(Resource):
    """An event of a device.

    Attributes
    ----------
    neutral : peerlane.Event
    flags : int
    exported : Handle or None
        The handle by which other processes open it.
    freed : tuple of Freed
        The memory that was freed to pools before its newest record.
    """

    __slots__ = ("exported", "flags", "freed", "neutral")

    name = "event"

    def __init__(self, context: Context, flags: int, neutral: Event) -> None:
        super().__init__(context)
        self.flags = flags
        self.neutral = neutral
        self.exported: Handle | None = None
        self.freed: tuple[Freed, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether its record is over, or there is none."""
        return not self.neutral.is_recorded or self.neutral.is_done

    def end(self) -> None:
        """End it without waiting; streams that wait for it still wait."""
        self.neutral.close()

    abandon = end


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

    def record(self, event: GpuEvent, stream: AnyStream) -> None:
        """Record an event: it is over when all earlier work of the stream is.

        ``OTHER_DEVICE`` for a stream of another device.
        """
        if event.neutral.device is not stream.context.device:
            its, other = self._machine.ids(event.neutral.device, stream.context.device)
            raise self._refusal(
                Reason.OTHER_DEVICE,
                f"event {event.handle:#x} belongs to device {its}, and the stream to device {other}",
                "record an event on streams of the device that was current when it was created",
            )
        event.freed = self._reuse.freed_before(stream)
        stream.neutral.record(event.neutral)

    def query(self, event: GpuEvent) -> None:
        """Refuse an event that is not over, ``NOT_READY``; one that was never recorded is."""
        if not event.is_over:
            raise self._refusal(
                Reason.NOT_READY,
                f"the work before event {event.handle:#x} is not over",
                "call {event_synchronize}, or ask again",
            )

    def synchronize(self, event: GpuEvent) -> None:
        """Wait until an event is over; one that was never recorded is."""
        if event.neutral.is_recorded:
            event.neutral.sync()
            self._streams.has_waited(event.context.device)

    def wait(self, stream: AnyStream, event: GpuEvent) -> None:
        """Let later operations of a stream wait for the last record of an event so far, if there is one."""
        if event.neutral.is_recorded:
            stream.neutral.wait(event.neutral)
            if event.freed:
                self._reuse.follow(event.freed, stream)

    def elapsed_ms(self, start: GpuEvent, stop: GpuEvent) -> float:
        """Return the ms from one event to another.

        Raises
        ------
        Refusal
            ``OTHER_DEVICE`` events of two devices; ``NOT_TIMED``; ``NOT_RECORDED``; ``NOT_READY``.
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
