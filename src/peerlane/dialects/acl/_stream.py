"""``acl.rt``: streams, and waiting for them (facts/acl 2.2, 2.4, 4.1)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable

from peerlane.dialects._shared.call import Address, Int32, Refusal, UInt32
from peerlane.dialects._shared.machine import Context, Resource
from peerlane.dialects.acl._checks import one_of
from peerlane.dialects.acl._codes import REMEDIES, Code
from peerlane.dialects.acl._report import Subscription
from peerlane.dialects.acl._specification import refuse_older_chip
from peerlane.dialects.acl._state import acl, just_ended, machine, messages
from peerlane.dialects.acl._waits import (
    Patience,
    callbacks_block,
    explain_wait,
    in_own_numbers,
    wait_while_served,
)
from peerlane.errors import Error, Fault, WaitTimeout

_FLAGS = 1 | 2 | 4 | 8
_PRIORITIES = range(8)
PRIORITY = 5  # the number of the attribute
_LONGEST_END = 1.0  # seconds; a running copy ends after at most a MiB more
_LONGEST_ABORT = 36 * 60 * 1000
_MODES = {0: "continue", 1: "stop"}
_MODE = one_of("mode", _MODES, "pass 0 to go on after a failure, 1 to stop")
_READY, _NOT_READY = 0, 1


class KernelFailed(Exception):
    """A kernel on a stream failed; ``texts`` are the messages of calls that failed in it."""

    def __init__(self, cause: str, texts: str) -> None:
        super().__init__(cause)
        self.texts = texts


class FailureCallbacks:
    """The program's callbacks for failures on streams: ``callback(stream, error)``."""

    def __init__(self) -> None:
        #: By identity of the program's function, which is called once however often it is registered.
        self.callbacks: dict[object, Callable[[AclStream, Error], None]] = {}

    def call(self, stream: AclStream, error: Error) -> None:
        """Call them for a failure, unless it follows from another one or from a call that ended the stream."""
        if self.callbacks and error.operation is not None and error.fault is not Fault.CANCELLED:
            for each in list(self.callbacks.values()):
                each(stream, error)


failure_callbacks = FailureCallbacks()


class AclStream(Resource):
    """A stream of a context."""

    __slots__ = (
        *("_aborts", "_ending", "_is_ending", "attributes", "flags", "is_default", "neutral", "retell"),
        "subscription",
    )

    name = "stream"

    def __init__(self, context: Context, *, flags: int = 0, is_default: bool = False) -> None:
        super().__init__(context)
        #: ``flags``: the flags that it was created with.
        #: ``is_default``: whether it is stream 0 of its context.
        self.flags, self.is_default = flags, is_default
        self.neutral = context.device.create_stream(on_error="continue")
        #: The thread that runs its callbacks, and the callbacks that have not run; the thread may have ended.
        self.subscription: Subscription | None = None
        #: Set by another dialect that queues operations on the stream: returns the error or refusal that a
        #: synchronization reports for a failure of them.
        self.retell: Callable[[Error], Error | Refusal] | None = None
        self.attributes: dict[int, int] = {}  #: by number: attributes that a program set; they have no effect
        self._aborts = 0
        self._ending = threading.Lock()
        self._is_ending = False

    @property
    def is_counted(self) -> bool:  # type: ignore[override]
        """Whether a program created it."""
        return not self.is_default

    def wait(self, timeout: float | None = None, patience: Patience | None = None) -> None:
        """Wait until all submitted work is over; raise the first failure, or 507046 after the timeout.

        All waits of one call share ``patience``.
        """
        if self.subscription is not None:
            self.subscription.refuse_own_wait()
        aborts = self._aborts
        try:
            wait_while_served(self.neutral, timeout, patience or Patience())
        except Error as error:
            if isinstance(error, WaitTimeout) and error.call == "Stream.sync":
                raise Refusal(Code.RT_STREAM_SYNC_TIMEOUT, *explain_wait(error, self)) from None
            raise self._failure(error) from None
        if self._is_ending:
            with self._ending:  # afterwards _aborts counts work that end() cancelled
                pass
        if aborts != self._aborts:  # the neutral stream raises only in the first waiter
            raise Code.RT_STREAM_ABORT.refusal(
                f"stream {self.handle:#x} was aborted while this thread waited for it",
                REMEDIES[Fault.CANCELLED],
            )

    def abort(self, *, close: bool = False) -> None:
        """Cancel queued work, without waiting."""
        if not self.neutral.is_closed:
            self._aborts += 1
        self.neutral.abort(close=close)

    def end(self) -> None:
        """Wait for queued work and take no more; raise the first failure."""
        first: Refusal | Error | None = None
        last = None
        with contextlib.suppress(Error):  # the process left its node
            last = None if self.neutral.is_done else self.neutral.record()
        if self.subscription is not None:
            try:
                self.subscription.end(wait=True)
            except Error as error:
                first = error
        with self._ending:
            self._is_ending = True
            try:
                if callbacks_block():  # of another stream, whose thread may have ended
                    self.neutral.close(wait=False)
                    wait_while_served(self.neutral, None, Patience())
                self.neutral.close()
                if last is not None and last.is_done:
                    last.sync(
                        0
                    )  # raises for cancelled work, which may have been reported to a waiter elsewhere
            except Error as error:
                if error.fault is Fault.CANCELLED:
                    self._aborts += 1
                if isinstance(error, WaitTimeout) and error.call == "Stream.sync":
                    self.neutral.abort(close=True)
                    first = first or Refusal(Code.RT_STREAM_SYNC_TIMEOUT, *explain_wait(error, self))
                else:
                    first = first or self._failure(error)
        if first is not None:
            raise first

    def abandon(self) -> None:
        """Cancel queued work and take no more."""
        self.abort(close=True)
        if self.subscription is not None:
            self.subscription.end(wait=False)

    def _failure(self, error: Error) -> Error | Refusal:
        """Return the failure of the stream, after a call of the program's callbacks for it."""
        if error.failed_operation is None:
            return in_own_numbers(error, self)
        reworded = _in_own_words(error, self)
        failure_callbacks.call(self, reworded)
        if isinstance(error.__cause__, KernelFailed):
            return _as_refusal(error.__cause__, reworded)
        return reworded if self.retell is None else self.retell(reworded)


def _as_refusal(failed: KernelFailed, reworded: Error) -> Refusal:
    if failed.texts:
        messages.add(failed.texts)
    remedy = "look at what failed in it" + (": the texts of its calls follow" if failed.texts else "")
    return Code.RT_AICPU_EXCEPTION.refusal(str(reworded), remedy)


def _in_own_words(error: Error, stream: AclStream | None) -> Error:
    """Return the failure of a stream, or of one that it waits for, with the program's handles of streams."""
    failed, own = error.failed_operation, error.__cause__
    if failed is None:
        return error
    if stream is None or stream.neutral.id != failed.stream:
        stream = next((each for each in _streams() if each.neutral.id == failed.stream), None)
    name = f"stream {stream.handle:#x}" if stream else f"stream {failed.stream}"
    rest = failed.suffix(f"{stream}, its id is {failed.stream}" if stream else name)
    why = f": {failed.why}"
    if isinstance(own, Error):
        why = f" was cancelled, because an earlier one failed: {_in_own_words(own, stream)}"
    reworded = error.retold(f"operation {failed.number} ({failed.kind}) of {name}{why}{rest}")
    reworded.operation = failed.number
    return reworded


def _streams() -> list[AclStream]:
    with machine.lock:
        return [each for each in machine.resources.values() if isinstance(each, AclStream)]


def stream_of(handle: int) -> AclStream:
    """Return the stream of a handle in the current context; 0 is the default stream.

    Refuses with 107002 without a context, 107000 if it is not a stream, 107003 for a stream of another context.
    """
    context = machine.context()
    if not handle:
        return _default(context)
    stream = machine.resource(handle, AclStream)
    machine.refuse_foreign(stream, context, "use a stream where its device is set")
    return stream


def wait_for_all(streams: Iterable[AclStream], timeout: float | None = None) -> None:
    """Wait for every stream, then raise the first failure of them all."""
    until = None if timeout is None else time.monotonic() + timeout
    waited_for = list(streams)
    for stream in waited_for:  # before any wait, as another stream may wait for this one for ever
        if stream.subscription is not None:
            stream.subscription.refuse_own_wait()
    first: Refusal | Error | None = None
    patience = Patience()
    for stream in waited_for:
        try:
            stream.wait(None if until is None else max(0.0, until - time.monotonic()), patience)
        except (Refusal, Error) as error:
            first = first or error
    if first is not None:
        raise first


def wait_for_all_of_thread(timeout: float | None = None) -> None:
    """Wait for every stream of this thread's device."""
    wait_for_all(machine.resources_on(machine.context().device, AclStream), timeout)


def _default(context: Context) -> AclStream:
    with machine.lock:
        if context.default_stream is None:
            stream = AclStream(context, is_default=True)
            machine.issue(stream)
            context.default_stream = stream
        default: AclStream = context.default_stream
    return default


def _create(priority: int = 0, flags: int = 0) -> int:
    context = machine.context()
    info = context.device.info
    with machine.lock:
        if not _available(context):
            raise Code.RT_NO_STREAM_RESOURCE.refusal(
                f"device {context.number} has {info.max_streams:,} streams of this process, the most for {info.name}",
                "destroy streams that are not needed any more",
            )
        stream = AclStream(context, flags=flags)
        stream.attributes[PRIORITY] = priority
        return machine.issue(stream)


def _available(context: Context) -> int:
    return max(0, context.device.info.max_streams - machine.count(context.device, AclStream))


@acl.call("acl.rt.create_stream", out=1)
def create_stream() -> int:
    """Create a stream of the current context (facts/acl 2.4).

    Gives: stream
    Refuses: 107002; 207008 too many
    Basis: S
    """
    return _create()


@acl.call("acl.rt.create_stream_with_config", out=1)
def create_stream_with_config(priority: UInt32, flag: UInt32) -> int:
    """Create a stream; priority 0 to 7 and flags FAST_LAUNCH 1, FAST_SYNC 2, PERSISTENT 4, HUGE 8 (facts/acl 2.4).

    On hardware they place the stream; on a virtual device they change nothing.

    Gives: stream
    Refuses: as `create_stream`; 107000 priority, flag
    Basis: D; C for 107000
    """
    if priority not in _PRIORITIES or flag & ~_FLAGS:
        raise Code.RT_PARAM_INVALID.refusal(
            f"priority is {priority}, flag {flag:#x}; valid are 0 to 7, and a combination of 1, 2, 4 and 8",
            "pass 0 and 0 for an ordinary stream",
        )
    return _create(priority, flag)


@acl.call("acl.rt.destroy_stream")
def destroy_stream(stream: Address) -> None:
    """Wait for queued work, then destroy the stream (facts/acl 2.4), also if that work failed.

    A wait that no submitted operation would end is cancelled: 107023.

    Refuses: 100000 stream 0; 107002; 107000 no stream; 107003; what its work failed with
    Basis: S; C for the last
    """
    acl_stream = _taken(stream, "acl.rt.destroy_stream")
    try:
        acl_stream.end()
    except (Refusal, Error):
        just_ended.resource = acl_stream
        raise


@acl.call("acl.rt.destroy_stream_force")
def destroy_stream_force(stream: Address) -> None:
    """Cancel queued work and destroy the stream, without waiting (facts/acl 2.4).

    Refuses: 100000 stream 0; 107002; 107000; 107003
    Basis: S
    """
    _taken(stream, "acl.rt.destroy_stream_force").abandon()


def _taken(handle: int, call: str) -> AclStream:
    if not handle:
        raise Code.INVALID_PARAM.refusal(
            "the stream is 0, the default stream", "leave it: it ends with its context"
        )
    stream = stream_of(handle)
    if stream.is_default:
        raise Code.RT_PARAM_INVALID.refusal(
            f"stream {handle:#x} is the default stream of device {stream.context.number}",
            "leave it: it ends with its context",
        )
    return machine.remove(handle, AclStream, call)


@acl.call("acl.rt.synchronize_stream")
def synchronize_stream(stream: Address) -> None:
    """Wait until all that was submitted is over, and report the first failure since the last report.

    Refuses: 107002; 107000; 107003; 107023 aborted; 507046 waits for a callback of an ended thread; what its work
        failed with
    Basis: S; C for 507046
    """
    stream_of(stream).wait()


@acl.call("acl.rt.synchronize_stream_with_timeout")
def synchronize_stream_with_timeout(stream: Address, timeout: Int32) -> None:
    """As ``synchronize_stream``; ``timeout`` in ms, -1 for ever; 507046 when it is over (facts/acl 2.4).

    Refuses: as `synchronize_stream`; 107000 `timeout` 0 or below -1; 507046
    Basis: S
    """
    seconds = in_seconds(timeout)
    stream_of(stream).wait(seconds)


@acl.call("acl.rt.synchronize_device")
def synchronize_device() -> None:
    """Wait for all streams of the current device; report the first failure (facts/acl 2.2).

    Refuses: 107002; as `synchronize_stream`
    Basis: S
    """
    wait_for_all_of_thread()


@acl.call("acl.rt.synchronize_device_with_timeout")
def synchronize_device_with_timeout(timeout: Int32) -> None:
    """As ``synchronize_device``; ``timeout`` in ms, -1 for ever; 507046 when it is over (facts/acl 2.2).

    Refuses: as `synchronize_device`; 107000 `timeout` 0 or below -1; 507046
    Basis: S
    """
    seconds = in_seconds(timeout)
    wait_for_all_of_thread(seconds)


@acl.call("acl.rt.stream_query", out=1)
def stream_query(stream: Address) -> int:
    """Return 0 if everything is over, else 1; failures wait for a synchronization (facts/acl 2.4).

    Gives: 0 complete, 1 not
    Refuses: 107002; 107000; 107003
    Basis: D
    """
    return _READY if stream_of(stream).neutral.is_done else _NOT_READY


@acl.call("acl.rt.stream_abort")
def stream_abort(stream: Address) -> None:
    """Cancel queued work and wait for running work; a synchronization returns 107023 (facts/acl 2.4).

    The stream can be used again.  The call waits at most a second for a callback that runs.

    Refuses: 107002; 107000; 107003
    Basis: S, D
    """
    acl_stream = stream_of(stream)
    acl_stream.abort()
    with contextlib.suppress(Error):  # a callback is still running, or it calls this
        acl_stream.neutral.record().sync(_LONGEST_END)


@acl.call("acl.rt.device_task_abort")
def device_task_abort(device_id: Int32, timeout: UInt32) -> None:
    """Abort every stream of this process on a device as ``stream_abort`` does, and wait until running work has ended.

    ``timeout`` in ms, 0 for ever.

    Refuses: 107001; 107000 `timeout` over 36 minutes; 207000 the 310 family; 507046
    Basis: S, D; C for 507046
    """
    device = machine.device(device_id)
    refuse_older_chip(device, "aborts its work")
    if timeout > _LONGEST_ABORT:
        raise Code.RT_PARAM_INVALID.refusal(
            f"the timeout is {timeout} ms",
            f"pass at most {_LONGEST_ABORT:,} ms (36 minutes), or 0 to wait for ever",
        )
    streams = machine.resources_on(device, AclStream)
    for stream in streams:
        stream.abort()
    until = time.monotonic() + timeout / 1000 if timeout else None
    for stream in streams:
        try:
            last = stream.neutral.record()  # complete when all work before it has ended
            last.sync(None if until is None else max(0.0, until - time.monotonic()))
        except WaitTimeout:
            raise Code.RT_STREAM_SYNC_TIMEOUT.refusal(
                f"{stream} was aborted, and what ran on it has not ended after {timeout} ms", "wait longer"
            ) from None
        except Error:  # another thread ends it, or it has a failure: none of its work runs any more
            continue


@acl.call("acl.rt.stream_get_id", out=1)
def stream_get_id(stream: Address) -> int:
    """Return a small number, unique in the process (facts/acl 2.4).

    Gives: number
    Refuses: 107002; 107000; 107003
    Basis: D
    """
    return stream_of(stream).neutral.id


@acl.call("acl.rt.get_stream_available_num", out=1)
def get_stream_available_num() -> int:
    """Return how many more streams the current device takes from this process (facts/acl 2.4).

    Gives: number
    Refuses: 107002
    Basis: D
    """
    return _available(machine.context())


@acl.call("acl.rt.set_stream_failure_mode", checks=[_MODE])
def set_stream_failure_mode(stream: Address, mode: UInt32) -> None:
    """Set the effect of a failure on the work queued behind it: 0 none, 1 it is cancelled (facts/acl 2.4).

    Refuses: 107000 mode, stream; 107002; 107003
    Basis: D; C for the values
    """
    stream_of(stream).neutral.on_error = _MODES[mode]


def set_failure_mode(stream: AclStream, mode: int) -> None:
    """Set the effect of a failure on the work queued behind it; 107000 for other modes."""
    _MODE(mode)
    stream.neutral.on_error = _MODES[mode]


def failure_mode_of(stream: AclStream) -> int:
    """Return the failure mode of a stream."""
    return next(mode for mode, name in _MODES.items() if name == stream.neutral.on_error)


def in_seconds(milliseconds: int) -> float | None:
    """Return a timeout in seconds, None for ever; 107000 for 0 and below -1."""
    if milliseconds < -1 or not milliseconds:
        raise Code.RT_PARAM_INVALID.refusal(
            f"the timeout is {milliseconds} ms; valid are -1 and 1 or more",
            "pass 1 ms or more, or -1 to wait for ever; acl.rt.stream_query and acl.rt.query_event_status only look",
        )
    return None if milliseconds == -1 else milliseconds / 1000
