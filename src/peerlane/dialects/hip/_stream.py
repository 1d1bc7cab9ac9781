"""``hip``: streams, and the null stream that waits for the others (spec hip 3.7)."""

from __future__ import annotations

import threading

from peerlane import Stream, StreamGroup
from peerlane.dialects._machine import Context, Thing
from peerlane.dialects.hip._convention import refusal
from peerlane.dialects.hip._results import struct
from peerlane.dialects.hip._state import LEGACY_STREAM, PER_THREAD_STREAM, calls, machine
from peerlane.errors import Error

_NON_BLOCKING = 1
_LOWEST, _HIGHEST = 1, -1


class HipStream(Thing):
    """A stream of a device.

    Attributes
    ----------
    neutral : peerlane.Stream
    flags, priority : int
    is_blocking : bool
        Whether the null stream waits for it, and it for the null stream.
    """

    __slots__ = ("flags", "neutral", "null", "priority")

    name = "stream"

    def __init__(self, null: NullStream, flags: int, priority: int) -> None:
        super().__init__(null.context)
        self.null = null
        self.flags = flags
        self.priority = priority
        if flags & _NON_BLOCKING:
            self.neutral = null.context.device.create_stream(on_error="continue")
        else:
            self.neutral = null.group.create_stream(on_error="continue")

    @property
    def is_blocking(self) -> bool:
        """Whether the null stream waits for it, and it for the null stream."""
        return not self.flags & _NON_BLOCKING

    def wait(self) -> None:
        """Wait until all that was submitted is over; report the first failure."""
        self.neutral.sync()

    def end(self) -> None:
        """Wait for what is queued and take no more; report the first failure."""
        self.neutral.close()

    def abandon(self) -> None:
        """Cancel what is queued and take no more."""
        self.neutral.abort(close=True)


class ThreadStream(HipStream):
    """The stream of a device that one thread means by "per thread"; it ends with the device."""

    __slots__ = ()

    is_given = False


class NullStream(Thing):
    """The null stream of a device, with the group of those that it waits for.

    Attributes
    ----------
    group : StreamGroup
    neutral : peerlane.Stream
    flags, priority : int
    number : int
        By which native code knows the device.
    submissions : int
        How often something was given to a stream of the device that may run beside the program.
    settled : int
        ``submissions`` when the last wait for all of them began: equal when there is no failure to report.  A count
        that is written before the submission may come too early, so a copy also asks whether the group is idle.
    """

    __slots__ = ("flags", "group", "neutral", "number", "priority", "settled", "submissions")

    name = "null stream"
    is_counted = False
    is_blocking = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.group = StreamGroup(context.device, on_error="continue")
        self.neutral = self.group.default
        self.number = context.device.backend.number(context.device.ordinal)
        self.flags = self.priority = 0
        self.submissions = self.settled = 0

    @property
    def null(self) -> NullStream:
        """Itself."""
        return self

    def wait(self) -> None:
        """Wait until all that blocking streams were given is over; report the first failure of the null stream."""
        seen = self.submissions
        if self.settled == seen and self.group.is_idle:
            return
        self.neutral.record()
        self.neutral.sync()
        self.settled = seen

    @property
    def is_done(self) -> bool:
        """Whether all that blocking streams were given is over."""
        return self.group.is_idle or self.neutral.record().is_done

    def end(self) -> None:
        """Wait for what is queued and take no more; report the first failure."""
        self.group.close()

    def abandon(self) -> None:
        """Take no more, without waiting."""
        self.group.close(wait=False)


AnyStream = HipStream | NullStream
_making = threading.Lock()


class _PerThread(threading.local):
    """The streams that mean "of this thread", by context."""

    def __init__(self) -> None:
        self.streams: dict[Context, HipStream] = {}


_own = _PerThread()


def null_stream(context: Context) -> NullStream:
    """Return the null stream of a device."""
    found = context.default_stream
    if found is None:
        with _making:
            found = context.default_stream
            if found is None:
                found = NullStream(context)
                machine.give(found)
                context.default_stream = found
    stream: NullStream = found
    return stream


def stream_of(handle: int, code: str = "hipErrorContextIsDestroyed") -> AnyStream:
    """Return the stream of a handle: 0 and 1 the null stream of this thread's device, 2 that of the thread itself.

    ``code`` is for what is no stream (spec hip 3.7).
    """
    if handle in (0, LEGACY_STREAM):
        return null_stream(machine.context())
    if handle == PER_THREAD_STREAM:
        return _stream_of_thread(machine.context())
    return machine.thing(handle, HipStream, code)


def _stream_of_thread(context: Context) -> HipStream:
    found = _own.streams.get(context)
    if found is None:
        _own.streams = {each: stream for each, stream in _own.streams.items() if each.is_live}
        found = _own.streams[context] = ThreadStream(null_stream(context), 0, 0)
        machine.give(found)
    return found


def submits(stream: AnyStream) -> Stream:
    """Return the neutral stream of one that something is given to now, which the device's null stream notes."""
    stream.null.submissions += 1
    return stream.neutral


def await_turn(stream: AnyStream) -> None:
    """Wait until a copy by the program may follow what a stream was given, and what that must follow itself.

    A blocking stream follows the null stream also when it was given nothing since; so it gets an event.
    """
    if isinstance(stream, HipStream):
        stream.neutral.record()
    stream.wait()


def create(flags: int, priority: int = 0) -> object:
    """Make a stream on this thread's device."""
    stream = HipStream(null_stream(machine.context()), flags, priority)
    return struct("ihipStream_t").fromObj(machine.give(stream))


@calls.call("hipStreamCreate")
def hipStreamCreate() -> object:
    """Create a stream on the current device, which the null stream waits for (spec hip 3.7).

    Basis: S
    """
    return create(0)


@calls.call("hipStreamSynchronize")
def hipStreamSynchronize(stream: int) -> None:
    """Wait until all that was submitted is over (spec hip 3.7).

    Refuses: hipErrorContextIsDestroyed for what is no stream; what its work failed with
    Basis: S
    """
    stream_of(stream).wait()


@calls.call("hipDeviceSynchronize")
def hipDeviceSynchronize() -> None:
    """Wait for all streams of the current device; report the first failure.

    Refuses: what their work failed with
    Basis: S
    """
    synchronize(machine.context())


def await_device(context: Context) -> None:
    """Wait for all streams of a device; what their work failed with stays for their own synchronization."""
    with machine.lock:
        streams = [thing for thing in machine.things.values() if thing.context.device is context.device]
    for each in streams:
        if isinstance(each, (HipStream, NullStream)):
            each.neutral.record().sync()


def synchronize(context: Context) -> None:
    """Wait for all streams of a device; report the first failure."""
    first: Error | None = None
    streams: list[AnyStream] = [null_stream(context), *machine.things_on(context.device, HipStream)]
    for each in streams:
        try:
            each.wait()
        except Error as error:
            first = first or error
    if first is not None:
        raise first


def refuse_flags(given: int, valid: int) -> None:
    """Refuse flags that there are not: hipErrorInvalidValue."""
    if given & ~valid:
        raise refusal(
            "hipErrorInvalidValue", f"flags are {given:#x}; valid are the bits of {valid:#x}", "pass 0"
        )
