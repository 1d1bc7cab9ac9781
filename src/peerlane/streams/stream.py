"""Streams: ordered queues of operations that run by themselves."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from operator import attrgetter
from types import TracebackType
from typing import TYPE_CHECKING

from peerlane import _core
from peerlane.backends.virtual.messages import streams as stream_messages
from peerlane.diagnostics import live_objects, observers, trace, wait_state, wait_texts
from peerlane.errors import Closed, Error, Fault, InvalidValue, WaitTimeout
from peerlane.streams import callbacks
from peerlane.streams.event import Event
from peerlane.streams.notify import Notify
from peerlane.support.timeouts import checked_timeout, in_nanoseconds

if TYPE_CHECKING:
    from peerlane.devices.device import Device

_ON_ERROR = {"stop": True, "continue": False}


class Stream(_core.Stream):
    """Operations that run one after the other, beside the program.

    Made by :meth:`Device.create_stream`.  Whatever takes ``stream=`` is queued and returns; what an operation
    needs (buffers, host objects) is kept until it is over.  Failures surface at :meth:`sync`.  A look at memory waits
    for no stream: before a synchronization it shows what is there.

    Close it, or use it in a ``with``.  One that is dropped takes no more operations and runs what is queued, but a
    wait that nothing submitted so far would satisfy is cancelled.  A failure that nobody was told of, that one too,
    is a ``ResourceWarning`` then; one that comes later is, at a later call of peerlane.

    Attributes
    ----------
    device : Device
    id : int
        Unique in the process.
    submitted, completed : int
        Number of the last operation that was submitted, and of the last that is over.
    """

    __slots__ = ("__weakref__", "_on_error", "device")

    device: Device
    _on_error: str

    def __init__(self, *_: object) -> None:
        raise TypeError("a Stream is made by Device.create_stream or StreamGroup.create_stream")

    @classmethod
    def _make(
        cls, device: Device, on_error: str, group: _core.Group | None = None, *, legacy: bool = False
    ) -> Stream:
        if not isinstance(on_error, str) or on_error not in _ON_ERROR:
            raise InvalidValue(
                f"create_stream: on_error is {on_error!r}; valid are 'stop' and 'continue'",
                call="create_stream",
            )
        made = cls.__new__(cls)
        _core.Stream.__init__(made, device._native_number(), _ON_ERROR[on_error], group, legacy)
        made.device, made._on_error = device, on_error
        trace.created(made)
        if observers.active:
            observers.created(made)
        if live_objects.active:
            live_objects.made(made)
        return made

    @property
    def on_error(self) -> str:
        """What a failing operation does to those behind it: ``"stop"`` cancels them, ``"continue"`` runs them."""
        return self._on_error

    @on_error.setter
    def on_error(self, value: str) -> None:
        if not isinstance(value, str) or value not in _ON_ERROR:
            raise InvalidValue(
                f"Stream.on_error: {value!r}; valid are 'stop' and 'continue'", call="Stream.on_error"
            )
        self._set_stops(_ON_ERROR[value])
        self._on_error = value

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more operations."""
        return not self._is_live

    @property
    def is_done(self) -> bool:
        """Whether everything submitted is over; does not block and reports no failure."""
        sequence = self.submitted
        done = self._query()
        if done and observers.active:
            observers.tell("query", self, stream=self.id, sequence=sequence)
        return done

    def record(self, event: Event | None = None) -> Event:
        """Record an event: it is done when everything submitted so far is.

        Parameters
        ----------
        event : Event, optional
            One of the same device to be recorded again; a new one by default.

        Raises
        ------
        Closed, InvalidValue
            ``WRONG_DEVICE``.  Nothing was queued then.
        """
        if event is None:
            return Event._make(self.device, self._record_mark())
        if not isinstance(event, Event):
            raise TypeError(f"Stream.record: the event must be an Event, not {type(event).__name__}")
        event._check_open("Stream.record")
        if event.device is not self.device:
            where = self.device.name
            if event.device.is_closed:
                where += " of the node that was entered since"
            raise InvalidValue(
                f"Stream.record: the event belongs to {event.device.name}, the stream to {where}",
                fault=Fault.WRONG_DEVICE,
                call="Stream.record",
                device=self.device.name,
            )
        event._mark = self._record_mark()
        event._publish(self)
        return event

    def wait(self, other: Event | Stream | Notify, *, timeout: float | None = None) -> None:
        """Let what is submitted from now on wait, on the device; the program does not.

        Parameters
        ----------
        other : Event, Stream or Notify
            The event's last record so far; everything in the stream so far; a record of the notify, which is
            consumed and may be submitted later.  Of any device of the node.
        timeout : float, optional
            Seconds from when this stream comes to it; None waits for ever.  Beyond it the wait fails with
            ``WaitTimeout``, at the next synchronization.

        Raises
        ------
        InvalidValue
            ``NOT_RECORDED``: the event was never recorded, and the wait would never end.
        Closed
            The stream, or what it should wait for, is closed.  Nothing was queued then.
        """
        deadline = in_nanoseconds("Stream.wait", timeout)
        if isinstance(other, Notify):
            other._check_open("Stream.wait")
            self._wait_notify(other, deadline)
            return
        if isinstance(other, Stream):
            other = other.record()
        if not isinstance(other, Event):
            raise TypeError(
                f"Stream.wait: wait for an Event, a Stream or a Notify, not {type(other).__name__}"
            )
        foreign = other._foreign
        if foreign:
            other._check_open("Stream.wait")
            self._wait_notify(other._foreign_record(foreign), deadline)
            return
        mark = other._recorded("Stream.wait")
        number = self._wait_mark(mark, deadline)
        if trace.active is not None:
            trace.waited(self.id, number, mark.stream_id, mark.sequence)

    def notify(self, notify: Notify) -> None:
        """Record a notify when everything submitted so far is done; cancelled operations do not notify.

        Raises
        ------
        Closed
            Nothing was queued then.
        """
        if not isinstance(notify, Notify):
            raise TypeError(f"Stream.notify: needs a Notify, not {type(notify).__name__}")
        notify._check_open("Stream.notify")
        self._record_notify(notify)

    def launch_callback(self, function: Callable[..., object], /, *args: object) -> None:
        """Call ``function(*args)`` when everything submitted so far is done; what follows waits for its return.

        It runs on a thread of its own that serves all streams in turn.  What it raises is a failure of this
        stream.  It may submit to any stream, and must not wait for what waits for it, nor for a callback of another
        stream that has not returned: one thread makes all calls (``Busy``, ``DEADLOCK``).  Whether that one has
        returned is up to the schedule: under ``lazy`` it has not unless something asked for it before, or the process
        rested for 1 s.

        Raises
        ------
        Closed
            Nothing was queued then.
        """
        if not callable(function):
            raise TypeError(f"Stream.launch_callback: {type(function).__name__} cannot be called")
        token = callbacks.keep(function, args)
        try:
            self._callback(callbacks.runner.queue(), token)
        except BaseException:
            callbacks.forget(token)
            raise

    def sync(self, timeout: float | None = None) -> None:
        """Wait until everything submitted so far is over, running it if nobody else does; report a failure.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.  Ctrl-C is seen within 0.1 s; the operations go on then.

        Raises
        ------
        Error
            The first failure since the last report, with the operation's number: what the operation would have
            raised, ``Cancelled`` for what was abandoned, ``DeviceFault`` (``CALLBACK_FAILED``) for a callback
            that raised.  The stream can be used again.
        WaitTimeout
            Not everything was over in time; the text tells who waits for what.
        Deadlock
            The stream waits for itself, or for the callback that asks; or nothing that was submitted records the
            notify that it waits for, and every thread of this process waits.
        """
        sequence = self.submitted
        if not self._synchronize(checked_timeout("Stream.sync", timeout)):
            state = wait_state.of_stream("timeout", self.id, seconds=timeout)
            raise WaitTimeout(
                wait_texts.told(f"stream {self.id} on {self.device.name}", state),
                call="Stream.sync",
                device=self.device.name,
                detail=state,
            )
        if observers.active:
            observers.tell("sync", self, stream=self.id, sequence=sequence)
        self._report()

    def abort(self, *, close: bool = False) -> None:
        """Cancel what is queued; a running copy ends at its next MiB.  Does not block; the next sync reports it.

        Waits of other streams for events that were not reached end as ``Cancelled``.

        Parameters
        ----------
        close : bool
            Also take no more operations.
        """
        sequence = self.submitted
        self._cancel(bool(close))
        if observers.active:
            observers.tell("abort", self, stream=self.id, sequence=sequence)
            if close:
                observers.closed(self)

    def close(self, *, wait: bool = True) -> None:
        """Take no more operations and wait for what is queued; then report the first failure.  Idempotent.

        A wait that nothing submitted so far would satisfy is cancelled, with what is behind it; for a notify that
        other processes have too it waits as long as one of them lives.  Called by a callback of the stream itself,
        it does not wait.

        Parameters
        ----------
        wait : bool
            False returns at once and reports nothing; :meth:`sync`, or closing once more, still does.

        Raises
        ------
        Error
            As :meth:`sync`; the stream is closed all the same.
        """
        sequence = self.submitted
        self._close(wait=bool(wait))
        if observers.active:
            if wait and self.completed >= sequence:  # not so when its own callback closes it
                observers.tell("sync", self, stream=self.id, sequence=sequence)
            observers.closed(self)
        if wait:
            self._report()

    def __enter__(self) -> Stream:
        if self.is_closed:
            raise Closed(f"stream {self.id} on {self.device.name} was closed", device=self.device.name)
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
        failure = self._take_failure()
        if failure is not None:
            raise stream_messages.as_error(failure)

    def __repr__(self) -> str:
        queued = self.submitted - self.completed
        state = "closed" if self.is_closed else f"{queued:,} queued" if queued else "idle"
        return f"<Stream {self.id} on {self.device.name}: {state}>"


class StreamGroup:
    """Streams of a device with a legacy barrier: the rule of vendors' default streams.

    What :attr:`default` is given waits for everything the group's other streams were given before, and what
    they are given afterwards waits for it.  The cost does not depend on the number of streams.

    Parameters
    ----------
    device : Device
    on_error : str
        Of the default stream: ``"stop"`` or ``"continue"``.

    Attributes
    ----------
    device : Device
    default : Stream
    """

    __slots__ = ("__weakref__", "_group", "_is_closed", "_streams", "default", "device")

    device: Device
    default: Stream

    def __init__(self, device: Device, *, on_error: str = "stop") -> None:
        from peerlane.devices.device import Device

        if not isinstance(device, Device):
            raise TypeError(f"StreamGroup: the device must be a Device, not {type(device).__name__}")
        self.device = device
        self._group = _core.Group()
        self._is_closed = False
        self.default = Stream._make(device, on_error, self._group, legacy=True)
        self._streams = weakref.WeakValueDictionary({self.default.id: self.default})

    def create_stream(self, *, on_error: str = "stop") -> Stream:
        """Return a new stream of the group.

        Raises
        ------
        Closed, InvalidValue
            The group is closed; as :meth:`Device.create_stream`.
        """
        self._check_open("StreamGroup.create_stream")
        made = Stream._make(self.device, on_error, self._group)
        self._streams[made.id] = made
        if self._is_closed:  # by another thread, which may have missed this one
            made.close(wait=False)
            self._check_open("StreamGroup.create_stream")
        return made

    @property
    def is_idle(self) -> bool:
        """Whether all that its streams were given is over; does not block, lets nothing run, reports no failure."""
        return self._group.is_idle

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called, or the node was left."""
        return self._is_closed or self.device.is_closed

    def close(self, *, wait: bool = True) -> None:
        """Close the default stream and all that were created, as :meth:`Stream.close` does.  Idempotent.

        None of them takes operations any more before the first is waited for.

        Parameters
        ----------
        wait : bool
            False returns at once and reports nothing; closing once more still does.

        Raises
        ------
        Error
            The first failure of one of the streams; all are closed all the same.  What others have to report
            stays for their own :meth:`Stream.sync`, or for closing once more.
        """
        self._is_closed = True
        streams = self._living()
        for stream in streams:
            stream._close(wait=False)
        first: Error | None = None
        for stream in streams if wait else ():
            try:
                stream._close(wait=True)
            except Error as error:  # it waits for itself, say
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
        self._is_closed = True
        for stream in self._living():
            stream.abort(close=True)

    def _living(self) -> list[Stream]:
        """Return the streams that somebody holds, oldest first."""
        found = [stream for each in self._streams.valuerefs() if (stream := each()) is not None]
        return sorted(found, key=attrgetter("id"))

    def _check_open(self, call: str) -> None:
        if self._is_closed:
            raise Closed(f"{call}: {self!r} was closed", call=call, device=self.device.name)
        self.device._native_number()  # raises when the node was left

    def __repr__(self) -> str:
        streams = self._living()
        queued = sum(stream.submitted - stream.completed for stream in streams)
        state = f"{len(streams):,} stream{'s' * (len(streams) != 1)}, {queued:,} queued"
        if self.is_closed:
            state = "closed"
        return f"<StreamGroup on {self.device.name}: {state}>"


def checked_stream(call: str, stream: object) -> Stream | None:
    """Return a stream or None; TypeError for anything else."""
    if stream is None or isinstance(stream, Stream):
        return stream
    raise TypeError(f"{call}: stream must be a Stream or None, not {type(stream).__name__}")
