"""Events: native marks, and the pages that show them to other processes."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from typing import Any

from peerlane import _core
from peerlane.backend.facts import Caps, HandleKind
from peerlane.backends.virtual.awaiting import until_over
from peerlane.backends.virtual.handle import VirtualHandle
from peerlane.backends.virtual.messages import streams as stream_messages
from peerlane.backends.virtual.native_classes import number_of, show_as
from peerlane.diagnostics import live_objects
from peerlane.diagnostics.log import event_log, observers
from peerlane.diagnostics.ranks import losses
from peerlane.diagnostics.waits import stream_waits, wait_texts
from peerlane.errors import Busy, Cancelled, Closed, Fault, InvalidValue, Refused, Unsupported, WaitTimeout
from peerlane.memory.dispatch import lacks
from peerlane.sharing.handle import Allow, Handle
from peerlane.streams.event import Event
from peerlane.support.timeouts import checked_timeout

_numbers = itertools.count(1)


class VirtualEvent(_core.Event, Event):
    __slots__ = ("__weakref__", "_is_closed", "_mine", "_slots", "_relays", "_signal", "_device", "_id")
    _mine: int  # the number of this object's own record among those of all processes
    _slots: dict[
        int, tuple[int, int]
    ]  # by slot of the page: this process's record in it, and that record's stream
    _relays: list[Any]
    _signal: _core.Signal | None
    _device: Any
    _id: int

    @classmethod
    def _make(cls, device: Any, stream: _core.Stream | None = None) -> VirtualEvent:
        """Make an event, recorded by a stream if there is one."""
        event = cls.__new__(cls)
        _core.Event.__init__(event)
        if stream is not None:
            stream._record_event(event)
        event._device, event._is_closed, event._id = device, False, next(_numbers)
        event._mine, event._slots, event._relays, event._signal = 0, {}, [], None
        if observers.active:
            observers.created(event)
        if live_objects.active:
            live_objects.created(event)
        return event

    @classmethod
    def _adopt(cls, offer: _core.Offer, device: Any) -> VirtualEvent:
        event = cls._make(device)
        event._end_quick_calls()
        event._signal = offer.signal(device.backend.ledger)
        if observers.active:
            observers.send("import", event)
        return event

    def export(self, *, allow: Allow = ()) -> Handle:
        self._check_open("Event.export")
        backend, ordinal = self.device.backend, self.device.ordinal
        if Caps.SHARE not in backend.caps:
            raise lacks("Event.export", backend, Caps.SHARE)
        signal = self._signal
        if signal is None:
            signal = _core.Signal(backend.ledger)
            self._end_quick_calls()  # which would not publish a record
            mark = self._mark
            if mark is not None:
                self._mine = signal.issue()
                self._relayed(mark)._record_notify(self._record(signal, self._mine))
            self._signal = signal
        return VirtualHandle._make(
            self, allow, lambda pids: backend.offer_signal(HandleKind.EVENT, signal, ordinal, pids)
        )

    @property
    def is_recorded(self) -> bool:
        return self._mark is not None or (self._signal is not None and self._signal.issued > 0)

    def _publish(self, stream: Any) -> None:
        """Publish a record that was just submitted, for other processes."""
        signal, mark = self._signal, self._mark
        if signal is None or mark is None:
            return
        self._mine = number = signal.issue()
        slot, before = number % _core.SHARED_RECORDS, number - _core.SHARED_RECORDS
        is_ordered = self._slots.get(slot) == (before, stream.id)
        if before > 0 and not is_ordered and not signal.is_done(before):
            # An earlier record still uses this slot of the page, and the new one must not end it.
            stream = self._relayed(mark)
            stream._wait_notify(self._record(signal, before), 0)
        self._slots[slot] = number, stream.id
        stream._record_notify(self._record(signal, number))

    def _relayed(self, mark: _core.Mark) -> Any:
        """Return a new stream that waits for a record."""
        with event_log.quiet():  # the query is not the program's
            self._relays = [relay for relay in self._relays if not relay.is_done]
        relay: Any = self.device.create_stream(on_error="continue")
        if live_objects.active:
            live_objects.disown(relay)
        relay._wait_mark(mark, 0)
        self._relays.append(relay)
        return relay

    def _record(self, signal: _core.Signal, number: int) -> _core.Notify:
        return signal.record_of(number, number_of(self.device))

    @property
    def _foreign(self) -> int:
        """The number of the last record if another process made it, else 0."""
        if self._signal is None:
            return 0
        newest = self._signal.issued
        return newest if newest != self._mine else 0

    def _foreign_record(self, number: int) -> _core.Notify:
        assert self._signal is not None
        return self._record(self._signal, number)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def is_done(self) -> bool:
        foreign = self._foreign
        if foreign:
            self._check_open("Event.is_done")
            return self._foreign_end(foreign)[0]
        done = None if self._is_closed else self._query()
        if done is None:
            done = self._recorded("Event.is_done").query()
        if done and observers.active:
            mark = self._recorded("Event.is_done")
            observers.send("query", self, stream=mark.stream_id, sequence=mark.sequence)
        return done

    @property
    def time_ns(self) -> int:
        foreign = self._foreign
        if foreign:
            return self._foreign_time(foreign)
        mark = self._recorded("Event.time_ns")
        _core.check_usable()
        nanoseconds = mark.time_ns
        if nanoseconds is None:
            raise self._not_ready()
        self._raise_failure(mark)
        return nanoseconds

    def sync(self, timeout: float | None = None) -> None:
        foreign = self._foreign
        if foreign:
            self._sync_foreign(foreign, timeout)
            return
        seconds = checked_timeout("Event.sync", timeout)
        in_time = None if self._is_closed or observers.active else self._synchronize(seconds)
        if in_time:
            return
        mark = self._recorded("Event.sync")
        if in_time is False or not mark.synchronize(seconds):
            state = stream_waits.of_stream("timeout", mark.stream_id, mark.sequence, timeout)
            raise WaitTimeout(
                wait_texts.reason(repr(self), state), call="Event.sync", device=self.device.name, detail=state
            )
        self._reached(mark)

    def __await__(self) -> Generator[Any, Any, None]:
        foreign = self._foreign
        if foreign:
            self._check_open("Event.__await__")
            with self._behind(foreign) as stream:
                yield from stream.__await__()
            return
        mark = self._recorded("Event.__await__")
        yield from until_over(mark, mark.query, mark.sequence)
        self._reached(mark)

    def _reached(self, mark: _core.Mark) -> None:
        if observers.active:
            observers.send("sync", self, stream=mark.stream_id, sequence=mark.sequence)
        self._raise_failure(mark)

    def fileno(self) -> int:
        if self._foreign:
            raise Unsupported(
                f"Event.fileno: another process recorded {self!r}; let a stream wait for it, and record an event "
                "behind the wait",
                call="Event.fileno",
                device=self.device.name,
                detail=Refused(reason="foreign_event", event=self.id),
            )
        return self._recorded("Event.fileno").fileno()

    def close(self) -> None:
        self._is_closed = True
        self._end_quick_calls()
        if self._signal is not None:
            self._signal.let_go()
        if observers.active:
            observers.closed(self)

    def __sub__(self, earlier: Event) -> float:
        if not isinstance(earlier, VirtualEvent):
            return NotImplemented
        return (self.time_ns - earlier.time_ns) / 1e9

    def __enter__(self) -> Event:
        self._check_open("Event")
        _core.check_usable()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _foreign_time(self, number: int) -> int:
        call = "Event.time_ns"
        self._check_open(call)
        assert self._signal is not None
        is_over, lost = self._foreign_end(number)
        if lost:
            raise losses.recorder_lost(lost, self.device.name, call)
        if not is_over:
            raise self._not_ready()
        if self._signal.has_failed(number):
            raise Cancelled(
                f"{self!r}: the record of another process was cancelled",
                call=call,
                detail=Refused(reason="cancelled_elsewhere", event=self.id),
            )
        return self._signal.time_ns(number)

    def _foreign_end(self, number: int) -> tuple[bool, int]:
        """Return whether another process's record is over, and the pid if the end of a process ended it, else 0."""
        assert self._signal is not None
        signal = self._signal
        if signal.is_done(number):
            return True, 0
        lost = signal.lost_to
        # Look again: the record may have come between the two checks.
        return (True, 0) if signal.is_done(number) else (lost != 0, lost)

    def _sync_foreign(self, number: int, timeout: float | None) -> None:
        self._check_open("Event.sync")
        seconds = checked_timeout("Event.sync", timeout)
        with self._behind(number) as stream:
            try:
                stream.sync(None if seconds < 0 else seconds)
            except WaitTimeout:
                raise WaitTimeout(
                    f"{self!r} was not done after {timeout:g} s: another process recorded it, and the stream there "
                    "has not reached the record",
                    call="Event.sync",
                    device=self.device.name,
                    detail=Refused(reason="wait_timeout", event=self.id, seconds=timeout),
                ) from None

    def _behind(self, number: int) -> Any:
        """Return a new stream that waits for another process's record; use it in a ``with``."""
        stream: Any = self.device.create_stream()
        if live_objects.active:
            live_objects.disown(stream)
        stream._wait_notify(self._foreign_record(number), 0)
        return stream

    def _not_ready(self) -> Busy:
        return Busy(
            f"{self!r} is not done, so it has no time yet; wait with sync()",
            fault=Fault.NOT_READY,
            call="Event.time_ns",
            device=self.device.name,
            detail=Refused(reason="not_ready", event=self.id),
        )

    def _check_open(self, call: str) -> None:
        if self._is_closed:
            raise Closed(
                f"{call}: {self!r} was closed; record another",
                call=call,
                device=self.device.name,
                detail=Refused(reason="closed", what=repr(self)),
            )

    def _recorded(self, call: str) -> _core.Mark:
        self._check_open(call)
        mark = self._mark
        if mark is None:
            raise InvalidValue(
                f"{call}: the event was never recorded, so nothing would ever end the wait; record it with "
                "stream.record(event) first",
                fault=Fault.NOT_RECORDED,
                call=call,
                device=self.device.name,
                detail=Refused(reason="not_recorded", event=self.id),
            )
        return mark

    def _raise_failure(self, mark: _core.Mark) -> None:
        failure = mark.failure()
        if failure is not None:
            raise stream_messages.as_error(failure)

    def __repr__(self) -> str:
        if self._is_closed:
            state = "closed"
        elif self._foreign:
            state = f"record {self._foreign}, of another process"
        elif (mark := self._mark) is None:
            state = "not recorded"
        else:
            with event_log.quiet():  # a repr orders nothing in the program
                done = "done" if mark.time_ns is not None else "pending"
            state = f"operation {mark.sequence} of stream {mark.stream_id}, {done}"
        return f"<Event on {self.device.name}: {state}>"


show_as(Event, VirtualEvent)
