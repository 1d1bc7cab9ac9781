"""Streams, the null stream that waits for the others, and the stream that each thread has of its own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from peerlane import Device, Event, Stream, StreamGroup
from peerlane.backend import host
from peerlane.dialects._shared.call import Check, Refusal
from peerlane.dialects._shared.machine import Context, Resource
from peerlane.dialects.gpu.captures import Capture, Captures
from peerlane.dialects.gpu.machine import GpuMachine
from peerlane.dialects.gpu.vendor import Reason
from peerlane.errors import Closed, Deadlock, Error, Fault, WaitTimeout

LEGACY_STREAM, PER_THREAD_STREAM = 1, 2  # the numbers by which programs name these two
NON_BLOCKING = 1
LOWEST, HIGHEST = 1, -1  # priorities
POLICY_AUTO = 1  # of how a thread waits for a stream


class GpuStream(Resource):
    """A stream of a device.

    ``queue``: the same, captured or not.
    """

    __slots__ = ("capture", "flags", "neutral", "null", "policy", "priority", "queue", "units")

    name = "stream"
    neutral: Stream  #: asking for it is refused while the stream is captured

    def __init__(self, null: NullStream, flags: int, priority: int) -> None:
        super().__init__(null.context)
        self.capture: Capture | None = None  #: what records its operations instead of running them
        self.null = null  #: of its device
        self.flags = flags
        self.priority = priority
        self.policy = POLICY_AUTO  #: how a thread should wait for it; nothing depends on it
        self.units: tuple[int, ...] = ()  #: the mask of compute units at its creation; empty for all
        if flags & NON_BLOCKING:
            self.queue = null.context.device.create_stream(on_error="continue")
            if null.last_peer_copy is not None:
                self.queue.wait(null.last_peer_copy)
        else:
            self.queue = null.group.create_stream(on_error="continue")
        self.neutral = self.queue

    if not TYPE_CHECKING:  # any name would be an attribute then

        def __getattr__(self, name: str) -> Any:
            # Python comes here for an attribute that is missing: a capture takes `neutral` away.
            if name == "neutral" and self.capture is not None:
                raise self.capture.refused(self)
            raise AttributeError(name)

    def enter(self, capture: Capture) -> None:
        """Let a capture record the operations from now on."""
        self.capture = capture
        del self.neutral
        if self.is_blocking:
            self.null.stop(capture)

    def leave(self) -> None:
        """Run operations again."""
        if self.capture is not None:
            self.null.resume(self.capture)
        self.capture = None
        self.neutral = self.queue

    @property
    def is_blocking(self) -> bool:
        """Whether the null stream waits for it, and it for the null stream."""
        return not self.flags & NON_BLOCKING

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
        self.null.lost.append(self.handle)
        self.queue.close()

    def abandon(self) -> None:
        """Cancel queued work and take no more."""
        self.queue.abort(close=True)


class EndingStream(Resource):
    """A stream that was destroyed while it had work: the program has no handle of it."""

    __slots__ = ("stream",)

    name = "destroyed stream"
    is_counted = False
    is_owned = False

    def __init__(self, stream: GpuStream) -> None:
        super().__init__(stream.context)
        self.stream = stream

    @property
    def queue(self) -> Stream:
        """Its queue."""
        return self.stream.queue

    @property
    def is_over(self) -> bool:
        """Whether its work is over; to ask orders nothing, unlike a query of the program."""
        return self.queue.completed >= self.queue.submitted

    def wait(self) -> None:
        """Wait until its work is over; report the first failure."""
        self.queue.sync()

    def end(self) -> None:
        """Wait for its work; report the first failure."""
        self.queue.close()

    def abandon(self) -> None:
        """Cancel its work."""
        self.queue.abort(close=True)


class ThreadStream(GpuStream):
    """The stream of one thread on a device, its "per thread" one; it ends with the device, or with the thread."""

    __slots__ = ()

    name = "stream of a thread"
    is_owned = False


class LibraryStream(GpuStream):
    """A stream of a library in this process, which never ends it."""

    __slots__ = ()

    is_counted = False
    is_owned = False


class NullStream(Resource):
    """The null stream of a device, with the group of the streams that it waits for."""

    name = "null stream"
    neutral: Stream  #: asking for it is refused while a blocking stream is captured
    capture = None
    is_counted = False
    is_owned = False
    is_blocking = True

    def __init__(self, context: Context, lost: deque[int]) -> None:
        super().__init__(context)
        self.group = StreamGroup(context.device, on_error="continue")
        self.neutral = self.queue = self.group.default  #: ``queue``: the same at any time
        self._captures: list[Capture] = []
        self.lost = lost  #: the numbers of streams that ended with the reset of a device
        #: The end of the newest copy between two devices, for streams that are made later.
        self.last_peer_copy: Event | None = None
        #: By which native code knows the device.
        self.number = context.device.backend.number(context.device.ordinal)
        self.flags = self.priority = 0
        self.policy = POLICY_AUTO
        self.units: tuple[int, ...] = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name == "neutral":
                raise self._captures[0].implicit(self)
            raise AttributeError(name)

    @property
    def captures(self) -> tuple[Capture, ...]:
        """The captures that its blocking streams are in."""
        return tuple(self._captures)

    def stop(self, capture: Capture) -> None:
        """Refuse operations until the capture is over that a blocking stream is in."""
        if not self._captures:
            del self.neutral
        self._captures.append(capture)

    def resume(self, capture: Capture) -> None:
        """Take operations again, if no other capture has a blocking stream."""
        if capture in self._captures:
            self._captures.remove(capture)
            if not self._captures:
                self.neutral = self.queue

    @property
    def null(self) -> NullStream:
        """Itself."""
        return self

    def wait(self) -> None:
        """Wait until the work of all blocking streams is over; report the first failure of the null stream."""
        if not self.group.is_idle:
            self.neutral.record()
        self.neutral.sync()

    catch_up = wait

    @property
    def is_done(self) -> bool:
        """Whether the work of all blocking streams is over."""
        neutral = self.neutral  # refused while a blocking stream is captured
        return self.group.is_idle or neutral.record().is_done

    def end(self) -> None:
        """Wait for queued work and take no more; report the first failure."""
        self.group.close()

    def abandon(self) -> None:
        """Take no more, without waiting."""
        self.group.close(wait=False)


AnyStream: TypeAlias = GpuStream | NullStream
_STREAMS = GpuStream, NullStream, EndingStream


class _Lanes(list[GpuStream]):
    """The streams that executable graphs have."""


class _Ending(list[EndingStream]):
    """The streams that were destroyed while they had work."""


class _OfThread:
    """The streams of one thread, by context; they end with it."""

    def __init__(self, machine: GpuMachine) -> None:
        self._machine = machine
        self.by_context: dict[Context, ThreadStream] = {}

    def __del__(self) -> None:
        for each in self.by_context.values():
            with contextlib.suppress(Error):  # of a node that was left, or a process that ends
                self._machine.drop(each, "the end of its thread")
                each.queue.close(wait=False)


class _StateOfThread(threading.local):
    """The streams of this thread, and whether handle 0 means its own one."""

    def __init__(self, machine: GpuMachine) -> None:
        self.streams = _OfThread(machine)
        self.null_is_own = False


class Streams:
    """The streams of a vendor's program, by handle.

    0 and 1 are the null stream of the thread's device, 2 is the stream of the thread itself.
    """

    def __init__(self, machine: GpuMachine) -> None:
        self._machine = machine
        self._thread = _StateOfThread(machine)
        self._making = threading.Lock()
        self._after_waiting: list[Callable[[Device], None]] = []
        self.captures = Captures(machine)

    @property
    def checked(self) -> object:
        """The annotation of a parameter that a call gets as a stream, refused as :meth:`of` does."""
        return Annotated[AnyStream, Check(lambda name: self.of)]

    def of(self, handle: int, reason: Reason = Reason.NOT_A_STREAM) -> AnyStream:
        """Return the stream of a handle; refuse a handle that is not a stream for a reason."""
        if handle > PER_THREAD_STREAM:
            return self._machine.resource(handle, GpuStream, reason)
        handle = self.meaning(handle)
        if handle in (0, LEGACY_STREAM):
            return self.null(self._machine.context())
        if handle == PER_THREAD_STREAM:
            return self._of_thread(self._machine.context())
        return self._machine.resource(handle, GpuStream, reason)

    def meaning(self, handle: int) -> int:
        """Return the handle that a program means: the thread's own stream for 0 within :meth:`null_is_own`."""
        return PER_THREAD_STREAM if not handle and self._thread.null_is_own else handle

    @contextlib.contextmanager
    def null_is_own(self) -> Iterator[None]:
        """Let handle 0 mean this thread's own stream while the context is entered."""
        of_thread = self._thread
        before, of_thread.null_is_own = of_thread.null_is_own, True
        try:
            yield
        finally:
            of_thread.null_is_own = before

    def null(self, context: Context) -> NullStream:
        """Return the null stream of a device."""
        null = context.default_stream
        if null is None:
            with self._making:
                null = context.default_stream
                if null is None:
                    null = NullStream(context, self._machine.lost_streams)
                    self._machine.issue(null)
                    context.default_stream = null
        stream: NullStream = null
        return stream

    def null_of(self, ordinal: int) -> NullStream:
        """Return the null stream of a device by the node's number."""
        return self.null(self._machine.context_of(ordinal))

    def _of_thread(self, context: Context) -> ThreadStream:
        streams = self._thread.streams.by_context
        stream = streams.get(context)
        if stream is None:
            for ended in [each for each in streams if not each.is_live]:
                del streams[ended]
            stream = streams[context] = ThreadStream(self.null(context), 0, 0)
            self._machine.issue(stream)
        return stream

    def create(self, flags: int, priority: int = 0, units: tuple[int, ...] = ()) -> int:
        """Create a stream on this thread's device and return its number; the priority is cut to the range."""
        stream = GpuStream(self.null(self._machine.context()), flags, min(max(priority, HIGHEST), LOWEST))
        stream.units = units
        return self._machine.issue(stream)

    def of_library(self, device: Device) -> LibraryStream:
        """Return a new stream of a device for a library in this process; the null stream does not wait for it."""
        stream = LibraryStream(self.null_of(device.ordinal), NON_BLOCKING, 0)
        self._machine.issue(stream)
        return stream

    def others_on(self, device: Device) -> list[Stream]:
        """Return the streams of a device but those of libraries, and but null streams."""
        return [each.queue for each in self._on(device) if not isinstance(each, LibraryStream)]

    def destroy(self, handle: int, call: str) -> None:
        """Wait for queued work, also for a word that the stream waits for, then destroy the stream.

        By the policy it does not wait: the stream takes no more, and ends with its work.  Called by a callback of the
        stream, it does not wait either.  ``call`` is the vendor's name of the call.

        Raises Refusal: ``INVALID_HANDLE`` a number that stands for a stream which nobody created, a stream that ended
            with the reset of its device; ``NOT_A_STREAM`` other numbers.
        Raises Error: the queued work failed; the stream has ended.
        """
        machine = self._machine
        if handle in (0, LEGACY_STREAM, PER_THREAD_STREAM):
            raise machine.vendor.refusal(
                Reason.INVALID_HANDLE,
                f"{handle} was not created: it stands for a stream that every device or thread has",
                "leave it: it ends with its device or its thread",
            )
        reason = Reason.INVALID_HANDLE if handle in machine.lost_streams else Reason.NOT_A_STREAM
        stream = machine.remove(handle, GpuStream, reason, call)
        if stream.capture is not None:
            stream.capture.drop(stream)
        neutral = stream.queue
        if machine.vendor.policy.stream_destroy == "returns":
            self._let_end(EndingStream(stream))
            return
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

    def _let_end(self, stream: EndingStream) -> None:
        """Let a stream end with its work, and forget those whose work is over."""
        ending = self._machine.table(_Ending)
        self._machine.issue(stream)
        ending.append(stream)
        if not stream.is_over:
            host.forget_c_threads()
        for each in list(ending):
            if each.is_over:
                self._forget(each)

    def _forget(self, stream: EndingStream) -> None:
        """Forget a stream that was destroyed and whose work is over."""
        machine = self._machine
        with machine.lock:
            ending = machine.table(_Ending)
            ending[:] = [each for each in ending if each is not stream]
        if machine.drop(stream, "the end of its work"):
            stream.queue.close(wait=False)

    def with_queue(self, number: int) -> AnyStream | EndingStream | None:
        """Return the stream of a number of the core; None for one that the program never had."""
        streams = [*self._all(), *self.lanes]
        return next((each for each in streams if each.queue.id == number), None)

    def report_before(self, event: Event) -> None:
        """Report the failure of the work that a record waited for, if no call has."""
        failed = host.failed_before(event)
        stream = self.with_queue(failed) if failed else None
        if stream is not None:
            stream.queue._report()  # sync() would wait for later work, too

    @property
    def lanes(self) -> list[GpuStream]:
        """The streams on which executable graphs run their branches."""
        return self._machine.table(_Lanes)

    def query(self, stream: AnyStream) -> None:
        """Refuse work that is not over, ``NOT_READY``; report the first failure of work that is.

        Work that failed with a communicator is not over for some seconds, in which the program can abort it.
        """
        if not stream.is_done or host.awaits_abort(stream.neutral):
            raise self.not_ready(f"{stream.name} has work that is not over")
        stream.wait()

    def not_ready(self, cause: str) -> Refusal:
        """Return the refusal of a question about work that is not over."""
        return self._machine.vendor.refusal(Reason.NOT_READY, cause, "synchronize, or ask again")

    def synchronize(self, stream: AnyStream) -> None:
        """Wait until all that was submitted is over; report the first failure."""
        stream.wait()
        self.has_waited(stream.context.device)

    def synchronize_device(self) -> None:
        """Wait for all streams of the thread's device, non-blocking ones too; report the first failure."""
        context = self._machine.context()
        self._synchronize(context.device, [self.null(context), *self._on(context.device)])

    def synchronize_context(self, context: Context) -> None:
        """Wait for all streams of a context; report the first failure."""
        streams = (each for each in self._on(context.device) if each.context is context)
        self._synchronize(context.device, [self.null(context), *streams])

    def _on(self, device: Device) -> list[GpuStream | EndingStream]:
        """Return the streams of a device, those that end with their work too, but no null stream."""
        ending = (
            each
            for each in self._machine.table(_Ending)
            if each.context.device is device and each.context.is_live
        )
        return [*self._machine.resources_on(device, GpuStream), *ending]

    def _synchronize(self, device: Device, streams: Sequence[AnyStream | EndingStream]) -> None:
        self.captures.refuse_unsafe()
        first = None
        for each in streams:
            try:
                each.wait()
            except Error as error:
                first = first or error
        self.has_waited(device)
        if first is not None:
            raise first

    def await_device(self, context: Context) -> None:
        """Wait for all streams of a device; what their work failed with stays for their own synchronization."""
        for each in self._all():
            if each.context.device is context.device:
                # Another thread may end it now: destroy waits, and the null stream waits for the streams of threads.
                with contextlib.suppress(Closed):
                    self.await_stream(each)
        self.has_waited(context.device)

    def await_queued(self, seconds: float) -> list[str]:
        """Wait for the work that all streams have now, so long at most; they keep their failures.

        Return the names of the streams whose work is not over.
        """
        until, ends, running = time.monotonic() + seconds, [], []
        for each in self._all():
            with contextlib.suppress(Closed):
                ends.append((each, each.queue.record()))
        for stream, end in ends:
            try:
                end.sync(max(0.0, until - time.monotonic()))
            except (WaitTimeout, Deadlock):
                running.append(str(stream))
        return running

    def _all(self) -> list[AnyStream | EndingStream]:
        with self._machine.lock:
            return [each for each in self._machine.resources.values() if isinstance(each, _STREAMS)]

    def non_blocking(self, nulls: Sequence[AnyStream]) -> list[GpuStream | EndingStream]:
        """Return the streams of contexts that their null streams do not wait for, but those that are captured."""
        contexts = {each.context for each in nulls}
        with self._machine.lock:
            of_contexts = [each for each in self._machine.resources.values() if each.context in contexts]
        return [
            each
            for each in of_contexts
            if isinstance(each, EndingStream)
            or (isinstance(each, GpuStream) and not each.is_blocking and each.capture is None)
        ]

    @staticmethod
    def await_stream(stream: AnyStream | EndingStream) -> None:
        """Wait for all work of a stream; a failure stays for the stream's own synchronization."""
        stream.queue.record().sync()

    def after_waiting(self, observer: Callable[[Device], None]) -> None:
        """Call a function each time that the program has waited for work of a device."""
        self._after_waiting.append(observer)

    def has_waited(self, device: Device) -> None:
        """Call the observers: the program has waited for work of a device."""
        for observer in self._after_waiting:
            observer(device)

    @staticmethod
    def submit_behind(first: AnyStream, second: AnyStream, submit: Callable[[AnyStream], None]) -> None:
        """Queue work on the first of two streams, behind earlier work of both and before later work of both."""
        if first is second:
            submit(first)
            return
        first.neutral.wait(second.neutral.record())
        submit(first)
        second.neutral.wait(first.neutral.record())
