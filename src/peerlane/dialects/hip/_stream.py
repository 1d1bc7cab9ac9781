"""``hip``: streams, and the null stream that waits for the others (facts/hip 3.7)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from peerlane import Device, StreamGroup
from peerlane.dialects._shared.call import Check
from peerlane.dialects._shared.machine import Context, Thing
from peerlane.dialects.hip._checks import flags
from peerlane.dialects.hip._convention import refusal
from peerlane.dialects.hip._results import handle as handle_of
from peerlane.dialects.hip._state import LEGACY_STREAM, PER_THREAD_STREAM, calls, machine
from peerlane.errors import Closed, Error, Fault

_NON_BLOCKING = 1
LOWEST, HIGHEST = 1, -1
POLICY_AUTO = 1


class HipStream(Thing):
    """A stream of a device.

    Attributes
    ----------
    neutral : peerlane.Stream
    flags, priority : int
    is_blocking : bool
        Whether the null stream waits for it, and it for the null stream.
    policy : int
        How a thread should wait for it, by hipStreamSetAttribute; nothing depends on it.
    units : tuple of int
        The mask of compute units that it was made with; empty for all.
    """

    __slots__ = ("flags", "neutral", "null", "policy", "priority", "units")

    name = "stream"

    def __init__(self, null: NullStream, flags: int, priority: int) -> None:
        super().__init__(null.context)
        self.null = null
        self.flags = flags
        self.priority = priority
        self.policy = POLICY_AUTO
        self.units: tuple[int, ...] = ()
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

    def catch_up(self) -> None:
        """Wait until an operation that is submitted now could run: earlier work of the null stream counts too."""
        if self.is_blocking:
            self.neutral.record()
        self.neutral.sync()

    @property
    def is_done(self) -> bool:
        """Whether all that was submitted is over."""
        return self.neutral.is_done

    def end(self) -> None:
        """End with the device: wait for queued work and take no more; report the first failure."""
        machine.lost_streams.append(self.handle)
        self.neutral.close()

    def abandon(self) -> None:
        """Cancel queued work and take no more."""
        self.neutral.abort(close=True)


class ThreadStream(HipStream):
    """The stream of a device that one thread means by "per thread"; it ends with the device, or with the thread."""

    __slots__ = ()

    name = "stream of a thread"
    is_given = False


class NullStream(Thing):
    """The null stream of a device, with the group of the streams that it waits for.

    Attributes
    ----------
    group : StreamGroup
    neutral : peerlane.Stream
    flags, priority : int
    number : int
        By which native code knows the device.
    """

    __slots__ = (
        "flags",
        "group",
        "neutral",
        "number",
        "policy",
        "priority",
        "units",
    )

    name = "null stream"
    is_counted = False
    is_given = False
    is_blocking = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.group = StreamGroup(context.device, on_error="continue")
        self.neutral = self.group.default
        self.number = context.device.backend.number(context.device.ordinal)
        self.flags = self.priority = 0
        self.policy = POLICY_AUTO
        self.units: tuple[int, ...] = ()

    @property
    def null(self) -> NullStream:
        """Itself."""
        return self

    def wait(self) -> None:
        """Wait until all that blocking streams were given is over; report the first failure of the null stream."""
        if not self.group.is_idle:
            self.neutral.record()
        self.neutral.sync()

    catch_up = wait

    @property
    def is_done(self) -> bool:
        """Whether all that blocking streams were given is over."""
        return self.group.is_idle or self.neutral.record().is_done

    def end(self) -> None:
        """Wait for queued work and take no more; report the first failure."""
        self.group.close()

    def abandon(self) -> None:
        """Take no more, without waiting."""
        self.group.close(wait=False)


AnyStream = HipStream | NullStream
_making = threading.Lock()
_after_waiting: list[Callable[[Device], None]] = []


def after_waiting(told: Callable[[Device], None]) -> Callable[[Device], None]:
    """Let a function be told each time that a program has waited for work of a device."""
    _after_waiting.append(told)
    return told


def has_waited(device: Device) -> None:
    """Call the observers: a program has waited for work of a device."""
    for told in _after_waiting:
        told(device)


class _Streams:
    """The streams of one thread, by context; they end with it."""

    def __init__(self) -> None:
        self.by_context: dict[Context, ThreadStream] = {}

    def __del__(self) -> None:
        for each in self.by_context.values():
            with contextlib.suppress(Error):  # of a node that was left, or a process that ends
                machine.drop(each, "the end of its thread")
                each.neutral.close(wait=False)


class _Here(threading.local):
    """The streams of this thread, and whether no stream means its own: so in the calls that end in ``_spt``."""

    def __init__(self) -> None:
        self.streams = _Streams()
        self.null_is_own = False


_here = _Here()


@contextlib.contextmanager
def null_is_own() -> Iterator[None]:
    """Let the null stream mean this thread's own one meanwhile."""
    before, _here.null_is_own = _here.null_is_own, True
    try:
        yield
    finally:
        _here.null_is_own = before


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


def meaning(handle: int) -> int:
    """Return the handle that no stream stands for here: hipStreamPerThread in the calls that end in ``_spt``."""
    return PER_THREAD_STREAM if not handle and _here.null_is_own else handle


def stream_of(handle: int, code: str = "hipErrorContextIsDestroyed") -> AnyStream:
    """Return the stream of a handle: 0 and 1 the null stream of this thread's device, 2 that of the thread itself.

    ``code`` is the refusal of a handle that is not a stream (facts/hip 3.7).
    """
    meant = meaning(handle)
    if meant in (0, LEGACY_STREAM):
        return null_stream(machine.context())
    if meant == PER_THREAD_STREAM:
        return _stream_of_thread(machine.context())
    return machine.thing(meant, HipStream, code)


def valid_stream_of(handle: int) -> AnyStream:
    """Return the stream of a handle as `stream_of` does, but refuse others with hipErrorInvalidHandle."""
    return stream_of(handle, "hipErrorInvalidHandle")


OnStream = Annotated[AnyStream, Check(lambda name: stream_of)]
ValidStream = Annotated[AnyStream, Check(lambda name: valid_stream_of)]


def _stream_of_thread(context: Context) -> ThreadStream:
    streams = _here.streams.by_context
    found = streams.get(context)
    if found is None:
        for ended in [each for each in streams if not each.is_live]:
            del streams[ended]
        found = streams[context] = ThreadStream(null_stream(context), 0, 0)
        machine.give(found)
    return found


def create(flags: int, priority: int = 0, units: tuple[int, ...] = ()) -> Any:
    """Make a stream on this thread's device."""
    stream = HipStream(null_stream(machine.context()), flags, priority)
    stream.units = units
    return handle_of("ihipStream_t", machine.give(stream))


_Flags = Annotated[int, flags(_NON_BLOCKING)]


@calls.call("hipStreamCreate")
def hipStreamCreate() -> Any:
    """Create a stream on the current device, which the null stream waits for (facts/hip 3.7).

    Gives: stream
    Basis: S
    """
    return create(0)


@calls.call("hipStreamCreateWithFlags")
def hipStreamCreateWithFlags(flags: _Flags) -> Any:
    """Create a stream; of hipStreamNonBlocking neither it waits for the null stream, nor the null stream for it.

    Gives: stream
    Refuses: hipErrorInvalidValue flags
    Basis: S
    """
    return create(flags)


@calls.call("hipStreamCreateWithPriority")
def hipStreamCreateWithPriority(flags: _Flags, priority: int) -> Any:
    """Create a stream with a priority, which is remembered, and brought into the range that there is.

    Gives: stream
    Refuses: hipErrorInvalidValue flags
    Basis: S
    """
    return create(flags, min(max(priority, HIGHEST), LOWEST))


@calls.call("hipStreamDestroy")
def hipStreamDestroy(stream: int) -> None:
    """Wait for queued work, then destroy the stream (facts/hip 3.7), also if that work failed.

    A word that the stream waits for is waited for, whoever will write it.  Called by a callback of the stream, it
    does not wait.

    Refuses: hipErrorInvalidHandle the null stream, that of a thread, one that ended with hipDeviceReset;
        hipErrorContextIsDestroyed not a stream, or destroyed; the code of its failed work
    Basis: S; D for waiting; C in a callback
    """
    if stream in (0, LEGACY_STREAM, PER_THREAD_STREAM):
        raise refusal(
            "hipErrorInvalidHandle",
            f"{stream} was not created: it stands for a stream that every device or thread has",
            "leave it: it ends with its device or its thread",
        )
    code = "hipErrorInvalidHandle" if stream in machine.lost_streams else "hipErrorContextIsDestroyed"
    neutral = machine.remove(stream, HipStream, code, "hipStreamDestroy").neutral
    with contextlib.ExitStack() as ending:
        ending.callback(neutral.close)
        try:
            neutral.sync()  # closing it would cancel a wait for a word
        except Error as error:
            if error.fault is not Fault.DEADLOCK:  # its own callback asks, which close does not wait for
                raise
        except BaseException:  # close would report a cancelled operation instead of Ctrl-C
            ending.pop_all()
            neutral.abort(close=True)
            raise


@calls.call("hipStreamQuery")
def hipStreamQuery(stream: OnStream) -> None:
    """Tell whether all that was submitted is over; the null stream asks for all blocking streams (facts/hip 3.7).

    Refuses: hipErrorNotReady not yet; hipErrorContextIsDestroyed not a stream
    Basis: S
    """
    if not stream.is_done:
        raise refusal(
            "hipErrorNotReady", f"{stream.name} has work that is not over", "synchronize, or ask again"
        )


@calls.call("hipStreamSynchronize")
def hipStreamSynchronize(stream: OnStream) -> None:
    """Wait until all that was submitted is over; the null stream waits for all blocking streams (facts/hip 3.7).

    Refuses: hipErrorContextIsDestroyed not a stream; the code of its failed work
    Basis: S
    """
    stream.wait()
    has_waited(stream.context.device)


@calls.call("hipDeviceSynchronize")
def hipDeviceSynchronize() -> None:
    """Wait for all streams of the current device, non-blocking ones too; report the first failure.

    Refuses: what their work failed with
    Basis: S
    """
    context, first = machine.context(), None
    streams: list[AnyStream] = [null_stream(context), *machine.things_on(context.device, HipStream)]
    for each in streams:
        try:
            each.wait()
        except Error as error:
            first = first or error
    has_waited(context.device)
    if first is not None:
        raise first


def await_device(context: Context) -> None:
    """Wait for all streams of a device; what their work failed with stays for their own synchronization."""
    with machine.lock:
        streams = [thing for thing in machine.things.values() if thing.context.device is context.device]
    for each in streams:
        if isinstance(each, (HipStream, NullStream)):
            # Another thread may end it meanwhile: hipStreamDestroy waits, and the null stream for those of threads.
            with contextlib.suppress(Closed):
                await_stream(each)
    has_waited(context.device)


def await_stream(stream: AnyStream) -> None:
    """Wait for all work of a stream; a failure stays for the stream's own synchronization."""
    stream.neutral.record().sync()
