"""Events: places in a stream that others wait for."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from peerlane import _core, failures, observers
from peerlane.errors import Busy, Closed, Fault, InvalidValue, WaitTimeout
from peerlane.timeouts import checked_timeout

if TYPE_CHECKING:
    from peerlane.device import Device


_numbers = itertools.count(1)


class Event:
    """A place in a stream's order: what was submitted before it is done when the event is.

    Made by :meth:`Stream.record`, or empty by :meth:`Device.create_event`.  Recorded again it means the new
    place; who waited for the old one goes on waiting for that.

    Attributes
    ----------
    device : Device
        Whose streams record it.
    id : int
        Unique in the process.
    """

    __slots__ = ("__weakref__", "_is_closed", "_mark", "device", "id")

    _mark: _core.Mark | None
    device: Device
    id: int

    def __init__(self, *_: object) -> None:
        raise TypeError("an Event is made by Stream.record or Device.create_event")

    @classmethod
    def _make(cls, device: Device, mark: _core.Mark | None) -> Event:
        made = cls.__new__(cls)
        made.device, made._mark, made._is_closed, made.id = device, mark, False, next(_numbers)
        if observers.active:
            observers.created(made)
        return made

    @property
    def is_recorded(self) -> bool:
        """Whether it has been recorded."""
        return self._mark is not None

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._is_closed

    @property
    def is_done(self) -> bool:
        """Whether the record is over, by success, failure or cancellation; does not block.

        Raises
        ------
        InvalidValue
            ``NOT_RECORDED``.
        """
        mark = self._recorded("Event.is_done")
        done = mark.query()
        if done and observers.active:
            observers.tell("query", self, stream=mark.stream_id, sequence=mark.sequence)
        return done

    @property
    def time_ns(self) -> int:
        """When the record was over, in nanoseconds of the monotonic clock.

        Raises
        ------
        InvalidValue, Busy, Cancelled
            ``NOT_RECORDED``, ``NOT_READY``; what was before it failed or was cancelled.
        """
        mark = self._recorded("Event.time_ns")
        _core.check_usable()
        found = mark.time_ns
        if found is None:
            raise Busy(
                f"{self!r} is not done, so it has no time yet; wait with sync()",
                fault=Fault.NOT_READY,
                call="Event.time_ns",
                device=self.device.name,
            )
        self._raise_failure(mark)
        return found

    def sync(self, timeout: float | None = None) -> None:
        """Wait until the record is over, running its stream if nobody else does.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.  Ctrl-C is seen within 0.1 s.

        Raises
        ------
        InvalidValue
            ``NOT_RECORDED``: it would never be done.
        WaitTimeout
            It was not over in time.
        Cancelled
            The record was cancelled, because something before it failed, or its stream was aborted.
        Busy
            ``DEADLOCK``: what it waits for waits in a circle, or for the callback that asks.
        """
        mark = self._recorded("Event.sync")
        if not mark.synchronize(checked_timeout("Event.sync", timeout)):
            raise WaitTimeout(
                f"{self!r} was not done after {timeout:g} s: {failures.waits(mark.stream_id)}",
                call="Event.sync",
                device=self.device.name,
            )
        if observers.active:
            observers.tell("sync", self, stream=mark.stream_id, sequence=mark.sequence)
        self._raise_failure(mark)

    def fileno(self) -> int:
        """Return a descriptor that is readable once the record is over: for ``select`` and asyncio's ``add_reader``.

        It belongs to the record: do not read or close it, and keep the event.

        Raises
        ------
        InvalidValue
            ``NOT_RECORDED``.
        OutOfMemory
            ``OUT_OF_RESOURCES``: no descriptor is left.
        """
        return self._recorded("Event.fileno").fileno()

    def close(self) -> None:
        """End the event; idempotent.  Who waits for it goes on waiting for its record."""
        self._is_closed = True
        if observers.active:
            observers.closed(self)

    def __sub__(self, earlier: Event) -> float:
        """Return the seconds from another event to this one; errors as :attr:`time_ns`."""
        if not isinstance(earlier, Event):
            return NotImplemented
        return (self.time_ns - earlier.time_ns) / 1e9

    def __enter__(self) -> Event:
        self._check_open("Event")
        _core.check_usable()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_open(self, call: str) -> None:
        if self._is_closed:
            raise Closed(f"{call}: {self!r} was closed; record another", call=call, device=self.device.name)

    def _recorded(self, call: str) -> _core.Mark:
        self._check_open(call)
        if self._mark is None:
            raise InvalidValue(
                f"{call}: the event was never recorded, so nothing would ever end the wait; record it with "
                "stream.record(event) first",
                fault=Fault.NOT_RECORDED,
                call=call,
                device=self.device.name,
            )
        return self._mark

    def _raise_failure(self, mark: _core.Mark) -> None:
        failure = mark.failure()
        if failure is not None:
            raise failures.as_error(failure)

    def __repr__(self) -> str:
        if self._is_closed:
            state = "closed"
        elif self._mark is None:
            state = "not recorded"
        else:
            done = "done" if self._mark.time_ns is not None else "pending"
            state = f"operation {self._mark.sequence} of stream {self._mark.stream_id}, {done}"
        return f"<Event on {self.device.name}: {state}>"
