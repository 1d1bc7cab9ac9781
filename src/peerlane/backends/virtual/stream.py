"""Streams and their groups: native queues."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator
from operator import attrgetter
from types import TracebackType
from typing import Any, cast

from peerlane import _core
from peerlane.backends.virtual.awaiting import until_over
from peerlane.backends.virtual.event import VirtualEvent
from peerlane.backends.virtual.messages import streams as stream_messages
from peerlane.backends.virtual.native_classes import number_of, show_as
from peerlane.backends.virtual.notify import VirtualNotify
from peerlane.diagnostics import live_objects
from peerlane.diagnostics.log import observers
from peerlane.diagnostics.waits import progress, stream_waits, wait_texts
from peerlane.errors import BadArgument, Closed, Error, Fault, InvalidValue, Refused, WaitTimeout, was_closed
from peerlane.streams import callbacks
from peerlane.streams.event import Event
from peerlane.streams.notify import Notify
from peerlane.streams.stream import Stream, StreamGroup
from peerlane.support.timeouts import checked_timeout, in_nanoseconds

_ON_ERROR = {"stop": True, "continue": False}


class VirtualStream(_core.Stream, Stream):
    __slots__ = ("__weakref__", "_on_error", "_device")
    _device: Any
    _on_error: str

    def __init__(self, *args: object) -> None:
        Stream.__init__(self, *args)

    @classmethod
    def _make(
        cls, device: Any, on_error: str, group: _core.Group | None = None, *, legacy: bool = False
    ) -> VirtualStream:
        if not isinstance(on_error, str) or on_error not in _ON_ERROR:
            raise InvalidValue(
                f"create_stream: on_error is {on_error!r}; valid are 'stop' and 'continue'",
                call="create_stream",
                detail=BadArgument("on_error", on_error, choices=("stop", "continue")),
            )
        stream = cls.__new__(cls)
        _core.Stream.__init__(stream, number_of(device), _ON_ERROR[on_error], group, legacy)
        stream._device, stream._on_error = device, on_error
        if observers.active:
            observers.created(stream)
        if live_objects.active:
            live_objects.created(stream)
        return stream

    @property
    def on_error(self) -> str:
        return self._on_error

    @on_error.setter
    def on_error(self, value: str) -> None:
        if not isinstance(value, str) or value not in _ON_ERROR:
            raise InvalidValue(
                f"Stream.on_error: {value!r}; valid are 'stop' and 'continue'",
                call="Stream.on_error",
                detail=BadArgument("on_error", value, choices=("stop", "continue")),
            )
        self._set_stops(_ON_ERROR[value])
        self._on_error = value

    @property
    def is_closed(self) -> bool:
        return not self._is_live

    @property
    def is_done(self) -> bool:
        sequence = self.submitted
        done = self._query()
        if done and observers.active:
            observers.send("query", self, stream=self.id, sequence=sequence)
        return done

    def record(self, event: Event | None = None) -> Event:
        if event is None:
            return VirtualEvent._make(self.device, self)
        if not isinstance(event, VirtualEvent):
            raise TypeError(f"Stream.record: the event must be an Event, not {type(event).__name__}")
        event._check_open("Stream.record")
        if event.device is not self.device:
            where = self.device.name
            if event.device.is_closed:
                where += " of the node that was entered later"
            raise InvalidValue(
                f"Stream.record: the event belongs to {event.device.name}, the stream to {where}",
                fault=Fault.WRONG_DEVICE,
                call="Stream.record",
                device=self.device.name,
                detail=Refused(
                    reason="wrong_device",
                    event=event.id,
                    event_device=event.device.name,
                    stream=self.id,
                    stream_device=self.device.name,
                ),
            )
        self._record_event(event)
        event._publish(self)
        return event

    def wait(self, other: Event | Stream | Notify, *, timeout: float | None = None) -> None:
        deadline = in_nanoseconds("Stream.wait", timeout)
        if isinstance(other, VirtualNotify):
            other._check_open("Stream.wait")
            self._wait_notify(other, deadline)
            return
        if isinstance(other, VirtualStream):
            other = other.record()
        if not isinstance(other, VirtualEvent):
            raise TypeError(
                f"Stream.wait: wait for an Event, a Stream or a Notify, not {type(other).__name__}"
            )
        foreign = other._foreign
        if foreign:
            other._check_open("Stream.wait")
            self._wait_notify(other._foreign_record(foreign), deadline)
            return
        if other._is_closed or not self._wait_event(other, deadline):
            other._recorded("Stream.wait")

    def notify(self, notify: Notify) -> None:
        if not isinstance(notify, VirtualNotify):
            raise TypeError(f"Stream.notify: needs a Notify, not {type(notify).__name__}")
        notify._check_open("Stream.notify")
        self._record_notify(notify)

    def launch_callback(self, function: Callable[..., object], /, *args: object) -> None:
        if not callable(function):
            raise TypeError(f"Stream.launch_callback: {type(function).__name__} cannot be called")
        if type(function) is callbacks.CFunction:
            self._call_code(callbacks.runner.queue(), function.code, cast("tuple[int, ...]", args))
            return
        token = callbacks.keep(function, args)
        try:
            self._callback(callbacks.runner.queue(), token)
        except BaseException:
            callbacks.forget(token)
            raise

    def sync(self, timeout: float | None = None) -> None:
        sequence = self.submitted
        if not self._synchronize(checked_timeout("Stream.sync", timeout)):
            raise _timed_out("Stream.sync", self.id, self.device, timeout)
        self._reached(sequence)

    def __await__(self) -> Generator[Any, Any, None]:
        sequence = self.submitted
        yield from until_over(self, self._query, sequence)
        self._reached(sequence)

    def _reached(self, sequence: int) -> None:
        if observers.active:
            observers.send("sync", self, stream=self.id, sequence=sequence)
        self._report()

    def abort(self, *, close: bool = False) -> None:
        sequence = self.submitted
        self._cancel(bool(close))
        if observers.active:
            observers.send("abort", self, stream=self.id, sequence=sequence)
            if close:
                observers.closed(self)

    def close(self, *, wait: bool = True) -> None:
        sequence = self.submitted
        self._close(wait=bool(wait))
        if observers.active:
            if wait and self.completed >= sequence:  # false if its own callback closes it
                observers.send("sync", self, stream=self.id, sequence=sequence)
            observers.closed(self)
        if wait:
            self._report()

    def __enter__(self) -> Stream:
        if self.is_closed:
            raise Closed(
                f"stream {self.id} on {self.device.name} was closed",
                device=self.device.name,
                detail=Refused(reason="closed", what=repr(self), stream=self.id),
            )
        _core.check_usable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abort(close=True)

    def _report(self) -> None:
        _raise(self._take_failure())

    def __repr__(self) -> str:
        queued = self.submitted - self.completed
        state = "closed" if self.is_closed else f"{queued:,} queued" if queued else "idle"
        return f"<Stream {self.id} on {self.device.name}: {state}>"


def _timed_out(call: str, stream: int, device: Any, timeout: float | None) -> WaitTimeout:
    """Return the error of a wait for a stream that was not over in time."""
    state = stream_waits.of_stream("timeout", stream, seconds=timeout)
    return WaitTimeout(
        wait_texts.reason(f"stream {stream} on {device.name}", state),
        call=call,
        device=device.name,
        detail=state,
    )


def _raise(failure: Any) -> None:
    """Raise the error of a failure that a synchronization reports, if there is one."""
    if failure is not None:
        progress.note_reported(failure)
        raise stream_messages.as_error(failure)


def sync_device(device: Any, timeout: float | None) -> None:
    """Wait for all streams of a device, those that the program dropped too; raise the first failure."""
    number, seconds = number_of(device), checked_timeout("Device.sync", timeout)
    late, reached = _core.synchronize_device(number, seconds)
    if observers.active:
        for stream, sequence in reached:
            observers.send_id("sync", Stream.__name__, stream, stream=stream, sequence=sequence)
    if late:
        raise _timed_out("Device.sync", late, device, timeout)
    _raise(_core.take_failure_on(number))


class VirtualStreamGroup(StreamGroup):
    __slots__ = ("__weakref__", "_group", "_is_closed", "_streams", "_default", "_device")
    _device: Any
    _default: VirtualStream
    _group: _core.Group
    _is_closed: bool
    _streams: weakref.WeakValueDictionary[int, VirtualStream]

    @classmethod
    def _make(cls, device: Any, on_error: str) -> VirtualStreamGroup:
        streams = object.__new__(cls)
        streams._device = device
        streams._group = _core.Group()
        streams._is_closed = False
        streams._default = VirtualStream._make(device, on_error, streams._group, legacy=True)
        streams._streams = weakref.WeakValueDictionary({streams._default.id: streams._default})
        return streams

    def create_stream(self, *, on_error: str = "stop") -> VirtualStream:
        self._check_open("StreamGroup.create_stream")
        stream = VirtualStream._make(self.device, on_error, self._group)
        self._streams[stream.id] = stream
        if self._is_closed:  # by another thread, which may have missed the new stream
            stream.close(wait=False)
            self._check_open("StreamGroup.create_stream")
        return stream

    @property
    def is_idle(self) -> bool:
        return self._group.is_idle

    @property
    def is_closed(self) -> bool:
        return self._is_closed or self.device.is_closed

    def close(self, *, wait: bool = True) -> None:
        self._is_closed = True
        streams = self._living()
        for stream in streams:
            stream._close(wait=False)
        first: Error | None = None
        for stream in streams if wait else ():
            try:
                stream._close(wait=True)
            except Error as error:  # for example, a stream that waits for itself
                first = first or error
        if first is not None:
            raise first
        for stream in streams if wait else ():
            stream._report()

    def __enter__(self) -> StreamGroup:
        self._check_open("StreamGroup")
        _core.check_usable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        self._abort()

    def _abort(self) -> None:
        """Close all streams and cancel their queued operations."""
        self._is_closed = True
        for stream in self._living():
            stream.abort(close=True)

    def _living(self) -> list[VirtualStream]:
        """Return the streams that are still referenced, oldest first."""
        living = [stream for each in self._streams.valuerefs() if (stream := each()) is not None]
        return sorted(living, key=attrgetter("id"))

    def _check_open(self, call: str) -> None:
        if self._is_closed:
            raise was_closed(call, self, self.device.name)
        number_of(self.device)  # raises if the node was left

    def __repr__(self) -> str:
        streams = self._living()
        queued = sum(stream.submitted - stream.completed for stream in streams)
        state = f"{len(streams):,} stream{'s' * (len(streams) != 1)}, {queued:,} queued"
        if self.is_closed:
            state = "closed"
        return f"<StreamGroup on {self.device.name}: {state}>"


show_as(Stream, VirtualStream)
show_as(StreamGroup, VirtualStreamGroup)
