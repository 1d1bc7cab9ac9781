"""``acl.rt``: events (facts/acl 2.5, 4.7)."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from typing import NoReturn

from peerlane import Notify, Stream
from peerlane.diagnostics.log import event_log
from peerlane.dialects._shared.call import Address, Int32, Refusal, UInt32, Word
from peerlane.dialects._shared.machine import Context, Resource
from peerlane.dialects.acl._checks import null
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import acl, machine
from peerlane.dialects.acl._stream import in_seconds, stream_of
from peerlane.dialects.acl._waits import Patience, explain_wait, in_own_numbers, wait_while_served
from peerlane.errors import Busy, Error, Fault, WaitTimeout

MOST_EVENTS = 65_536
_SYNC, _PROGRESS, _TIME_LINE, _DEVICE_ONLY, _EXTERNAL, _IPC = 0x01, 0x02, 0x08, 0x10, 0x20, 0x40
_COMBINED = _SYNC | _PROGRESS | _TIME_LINE
_AWAITED = _SYNC | _EXTERNAL  # streams wait for events that have one of these
_ALONE = (_DEVICE_ONLY, _EXTERNAL)
_NOT_RECORDED, _RECORDED = 0, 1
_COMPLETE, _NOT_READY = 0, 1
_KEPT_WAITS = 64
_ids = itertools.count(1)


class AclEvent(Resource):
    """An event of a context."""

    __slots__ = ("_early", "_early_recorded", "_lock", "_waits", "flag", "id", "is_ex", "is_plain", "neutral")

    name = "event"

    def __init__(self, context: Context, flag: int, *, is_ex: bool = False, is_plain: bool = False) -> None:
        super().__init__(context)
        self.neutral = context.device.create_event()  #: the event of its last record
        self.flag = flag
        #: ``is_ex``, ``is_plain``: whether ``create_event_ex_with_flag`` made it; whether ``create_event`` did.
        self.is_ex = is_ex
        self.is_plain = is_plain
        self.id = next(_ids)
        self._lock = threading.RLock()  # an object's __del__ may call back into this
        self._early: list[Notify] = []
        self._early_recorded: deque[int] = deque(maxlen=_KEPT_WAITS)
        self._waits: dict[Stream, int] = {}  # the last one of each stream

    def record(self, stream: Stream) -> None:
        """Record, and release streams that wait for the next record."""
        with self._lock:
            stream.record(self.neutral)
            for each in self._early:
                stream.notify(each)
                self._early_recorded.append(each.id)
            self._early.clear()

    def forget_record(self, stream: Stream) -> None:
        """Reset: later operations see an event that was never recorded."""
        with self._lock:
            stream.record()
            self.neutral = self.context.device.create_event()

    def let_wait(self, stream: Stream, timeout: float | None) -> None:
        """Let a stream wait for the last record; without one for the next, if the kind of event permits it."""
        with self._lock:
            if self.neutral.is_recorded:
                stream.wait(self.neutral, timeout=timeout)
            elif self.is_plain:
                raise _not_recorded(self, Code.RT_PARAM_INVALID)
            elif not self.is_ex:
                early = stream.device.create_notify()
                stream.wait(early, timeout=timeout)
                self._early.append(early)
            if len(self._waits) >= _KEPT_WAITS:
                self._waits = {each: wait for each, wait in self._waits.items() if not each.is_closed}
            self._waits[stream] = stream.submitted

    def awaited(self, notify: int) -> str:
        """Return the record that a notify of an early wait stands for; empty for another notify."""
        with self._lock:
            if notify in self._early_recorded:
                return "a record"
            return "the next record" if any(each.id == notify for each in self._early) else ""

    @property
    def is_waited_for(self) -> bool:
        """Whether a stream still waits for it, or will."""
        with self._lock:
            for stream, wait in tuple(self._waits.items()):
                if _is_over(stream, wait):
                    event_log.note_done(stream, wait)
                    del self._waits[stream]
            return bool(self._waits)

    @property
    def is_done(self) -> bool:
        """Whether its record is over; for an ex event also if there is none."""
        return self.neutral.is_done if self.neutral.is_recorded else self.is_ex


def _is_over(stream: Stream, operation: int) -> bool:
    with event_log.quiet():  # the checker would take a logged query for one of the program
        return stream.is_done or stream.completed >= operation  # is_done lets a lazy stream go on


def _create(flag: int, *, is_ex: bool) -> int:
    if is_ex and flag == _IPC:
        raise Code.RT_FEATURE_NOT_SUPPORT.refusal(
            f"flag is {flag:#x}, IPC, and events are not shared between processes here",
            "order processes by notifies: acl.rt.notify_get_export_key",
        )
    if not (flag and not flag & ~_COMBINED) and (is_ex or flag not in _ALONE):
        alone = "" if is_ex else ", or 0x10 or 0x20 alone"
        raise Code.RT_PARAM_INVALID.refusal(
            f"flag is {flag:#x}; valid are combinations of 1, 2 and 8{alone}",
            "pass 1 to order streams, 8 to take times, 9 for both",
        )
    return _issue(AclEvent(machine.context(), flag, is_ex=is_ex))


def _issue(event: AclEvent) -> int:
    with machine.lock:
        if not _available(event.context):
            raise Code.RT_NO_EVENT_RESOURCE.refusal(
                f"device {event.context.number} has {MOST_EVENTS:,} events, the most there may be",
                "destroy events that are not needed any more",
            )
        return machine.issue(event)


def _available(context: Context) -> int:
    return max(0, MOST_EVENTS - machine.count(context.device, AclEvent))


@acl.call("acl.rt.create_event", out=1)
def create_event() -> int:
    """Create an event to order streams and to take times; it cannot be reset (facts/acl 2.5).

    Gives: event
    Refuses: 107002; 207007 too many
    Basis: S; C for the number
    """
    return _issue(AclEvent(machine.context(), _COMBINED, is_plain=True))


@acl.call("acl.rt.create_event_with_flag", out=1)
def create_event_with_flag(flag: UInt32) -> int:
    """Create an event with the uses that its flags name (facts/acl 2.5; hicann/runtime, api_error.cc).

    With 1, streams wait for it and it can be reset; a wait before its record waits for the record.  With 8, its
    record has a time.  With 2, it is only queried.  0x20 stands alone: only streams record it and wait for it.  0x10
    stands alone: no stream of the host records it.

    Gives: event
    Refuses: as `create_event`; 107000 flag
    Basis: S
    """
    return _create(flag, is_ex=False)


@acl.call("acl.rt.create_event_ex_with_flag", out=1)
def create_event_ex_with_flag(flag: UInt32) -> int:
    """Create an event that is complete until it is recorded, and may be recorded again (facts/acl 2.5).

    The flags of ``create_event_with_flag``, without 0x10 and 0x20.

    Gives: event
    Refuses: as `create_event`; 107000 flag; 207000 0x40 (IPC) alone
    Basis: S; C for IPC
    """
    return _create(flag, is_ex=True)


@acl.call("acl.rt.destroy_event")
def destroy_event(event: Address) -> None:
    """Destroy an event without waiting; streams that wait for it go on waiting (facts/acl 2.5).

    Refuses: 100000 NULL; 107002; 107000 no event
    Basis: S
    """
    machine.remove(event, AclEvent, "acl.rt.destroy_event")


@acl.call("acl.rt.record_event")
def record_event(event: Address, stream: Address) -> None:
    """Record: the event is complete when all work submitted to the stream so far is over (facts/acl 2.5).

    Refuses: 100000; 107002; 107000 event, stream, an event of flag 0x10; 107003 either of another context
    Basis: S
    """
    record(event, stream)


def record(event: int, stream: int) -> None:
    """Record an event on a stream."""
    acl_event = _of_this_context(event)
    _refuse_device_only(acl_event)
    acl_event.record(stream_of(stream).neutral)


@acl.call("acl.rt.reset_event")
def reset_event(event: Address, stream: Address) -> None:
    """Reset an event to never recorded; only for events of ``create_event_with_flag`` (facts/acl 2.5).

    Refuses: as `record_event`; 207000 not of `create_event_with_flag`, or without flag 1
    Basis: S; C for 207000 by the maker
    """
    acl_event = _of_this_context(event)
    _refuse_device_only(acl_event)
    _refuse_unawaited(acl_event, "reset")
    if acl_event.is_plain:
        _refuse_kind(acl_event, "create_event", "reset")
    _refuse_ex(acl_event, "reset")
    acl_event.forget_record(stream_of(stream).neutral)


@acl.call("acl.rt.query_event", out=1)
def query_event(event: Address) -> int:
    """Return 0 if it is complete, 1 if not (facts/acl 2.5); ``query_event_status`` says it the other way round.

    Gives: 0 complete, 1 not
    Refuses: 100000; 107002; 107000; 207000 an ex event, flag 0x20
    Basis: S
    """
    acl_event = _observed(event)
    _refuse_ex(acl_event, "queried with acl.rt.query_event")
    return _COMPLETE if acl_event.is_done else _NOT_READY


@acl.call("acl.rt.query_event_status", out=1)
def query_event_status(event: Address) -> int:
    """Return 1 if it is complete, 0 if not (facts/acl 2.5); ``query_event`` says it the other way round.

    Gives: **1** complete, 0 not
    Refuses: 100000; 107002; 107000; 207000 flag 0x20
    Basis: S
    """
    return _RECORDED if _observed(event).is_done else _NOT_RECORDED


@acl.call("acl.rt.query_event_wait_status", out=1)
def query_event_wait_status(event: Address) -> int:
    """Return 0 if no stream waits for it any more, else 1 (facts/acl 2.5).

    Gives: 0 complete, 1 not
    Refuses: 100000; 107002; 107000; 207000 an ex event, flag 0x20, without flag 1
    Basis: S, D
    """
    acl_event = _observed(event)
    _refuse_ex(acl_event, "queried with acl.rt.query_event_wait_status")
    _refuse_unawaited(acl_event, "queried with acl.rt.query_event_wait_status")
    return _NOT_READY if acl_event.is_waited_for else _COMPLETE


@acl.call("acl.rt.synchronize_event")
def synchronize_event(event: Address) -> None:
    """Wait until it is complete (facts/acl 2.5); 107000 if it was never recorded.

    Refuses: 100000; 107002; 107000 no event, not recorded; 107023 aborted; 207000 flag 0x20; 507047 waits for a
        callback of an ended thread
    Basis: S; C for not recorded, 507047
    """
    _wait(event, None)


@acl.call("acl.rt.synchronize_event_with_timeout")
def synchronize_event_with_timeout(event: Address, timeout: Int32) -> None:
    """As ``synchronize_event``; ``timeout`` in ms, -1 for ever; 507047 when it is over (facts/acl 2.5).

    Refuses: as `synchronize_event`; 107000 `timeout` 0 or below -1; 507047
    Basis: S
    """
    _wait(event, in_seconds(timeout))


def _wait(handle: int, timeout: float | None) -> None:
    acl_event = _observed(handle)
    if acl_event.is_ex and not acl_event.neutral.is_recorded:
        return
    try:
        wait_while_served(acl_event.neutral, timeout, Patience())
    except WaitTimeout as error:
        raise Refusal(Code.RT_EVENT_SYNC_TIMEOUT, *explain_wait(error, acl_event)) from None
    except Busy as error:  # the streams wait for each other
        raise in_own_numbers(error, acl_event) from None


@acl.call("acl.rt.event_elapsed_time", out=1, blank=(0.0,))
def event_elapsed_time(start: Address, end: Address) -> float:
    """Return the ms from one record to another (facts/acl 2.5).

    507000 if one was not recorded; 107006 if one is not complete, or has no time line.

    Gives: ms, a float
    Refuses: 100000; 107002; 107000; 207000 flag 0x20; 507000 not recorded; 107006 not complete, no time line; 107023
        aborted
    Basis: S
    """
    last, first = _observed(end), _observed(start)
    return (_time_ns(last) - _time_ns(first)) / 1e6


@acl.call("acl.rt.event_get_timestamp", out=1)
def event_get_timestamp(event: Address) -> int:
    """Return when it was complete, in us of the monotonic clock; refuses as ``event_elapsed_time``.

    Gives: us
    Refuses: as `event_elapsed_time`
    Basis: D; C for its codes
    """
    return _time_ns(_observed(event)) // 1000


@acl.call("acl.rt.get_event_id", out=1)
def get_event_id(event: Address) -> int:
    """Return a small number, unique in the process (facts/acl 2.5).

    Gives: number
    Refuses: 100000; 107002; 107000
    Basis: D
    """
    return _known(event).id


@acl.call("acl.rt.get_event_avail_num", out=1)
def get_event_avail_num() -> int:
    """Return how many more events the current device takes from this process (facts/acl 2.5).

    Gives: number
    Refuses: 107002
    Basis: D
    """
    return _available(machine.context())


@acl.call("acl.rt.stream_wait_event")
def stream_wait_event(stream: Address, event: Address) -> None:
    """Let later operations of a stream wait for an event, of any device (facts/acl 2.5).

    The stream is the first argument.  107000 for an event of ``create_event`` that was never recorded.

    Refuses: 100000; 107002; 107000 event, stream, a plain event never recorded, an event of flag 0x10; 107003 the
        stream; 207000 an event without flag 1
    Basis: S
    """
    _let_wait(stream, event)


@acl.call("aclrtStreamWaitEventWithTimeout")
def stream_wait_event_with_timeout(stream: Address, event: Address, timeout: Int32) -> None:
    """Let later operations wait as ``stream_wait_event``, for at most ``timeout`` ms; 0 is as there.

    When the time is over the stream fails with 107019.

    Refuses: as `stream_wait_event`; 107000 `timeout` below 0, NULL
    Basis: S, D
    """
    if timeout < 0:
        raise Code.RT_PARAM_INVALID.refusal(f"the timeout is {timeout} ms", "pass 0 or more")
    if not event:
        raise Code.RT_PARAM_INVALID.refusal("the event is NULL (0)", "pass what acl.rt.create_event returned")
    _let_wait(stream, event, timeout)


@acl.call("aclrtStreamWaitEventWithFlag")
def stream_wait_event_with_flag(stream: Address, event: Address, timeout: UInt32, flag: UInt32) -> None:
    """Let later operations wait as ``aclrtStreamWaitEventWithTimeout``.

    Flag 1 (EXTERNAL) is for graphs, which are not here.

    Refuses: as `stream_wait_event`; 100000 flag, `timeout` with flag 1; 207000 flag 1
    Basis: S; C for 207000
    """
    null("event")(event)
    _refuse_external(flag, "a wait", timeout)
    _let_wait(stream, event, timeout)


@acl.call("aclrtRecordEventWithFlag")
def record_event_with_flag(event: Address, stream: Address, flag: UInt32) -> None:
    """Record as ``record_event``; flag 1 (EXTERNAL) is for graphs, which are not here.

    Refuses: as `record_event`; 100000 flag; 207000 flag 1
    Basis: S; C for 207000
    """
    null("event")(event)
    _refuse_external(flag, "a record")
    record(event, stream)


def _refuse_external(flag: int, what: str, timeout: int = 0) -> None:
    if flag not in (0, 1) or (timeout and flag):
        raise Code.INVALID_PARAM.refusal(
            f"flag is {flag:#x}{f', with a timeout of {timeout} ms' if flag == 1 else ''}", "pass 0"
        )
    if flag:
        raise Code.RT_FEATURE_NOT_SUPPORT.refusal(
            f"flag is 1 (EXTERNAL), {what} in a graph, and there are none", "pass 0"
        )


def _let_wait(stream: int, event: int, timeout: int = 0) -> None:
    """Let a stream wait for an event, for so many ms, or with the timeout of ``set_op_wait_timeout``."""
    waiting = stream_of(stream)
    acl_event = _known(event)
    _refuse_device_only(acl_event)
    _refuse_unawaited(acl_event, "waited for by streams")
    acl_event.let_wait(waiting.neutral, timeout / 1000 if timeout else machine.op_wait_timeout)


@acl.call("acl.rt.set_op_wait_timeout")
def set_op_wait_timeout(timeout: UInt32) -> None:
    """Let waits for events that are submitted from now on fail after ``timeout`` seconds; 0 is for ever.

    The failure is 107019, at the next synchronization of the stream that waited (facts/acl 4.7).

    Refuses: 107002
    Basis: D
    """
    machine.context()
    machine.op_wait_timeout = timeout or None


def _set_execute_timeout(timeout: UInt32) -> None:
    """Set how long an operator may run: virtual devices run none, so this changes nothing (facts/acl 4.7).

    Basis: S
    """


for _name in (
    "acl.rt.set_op_execute_time_out",
    "acl.rt.set_op_execute_timeout",  # what programs call it
    "aclrtSetOpExecuteTimeOutWithMs",
):
    acl.call(_name)(_set_execute_timeout)


@acl.call("acl.rt.set_op_execute_timeout_v2", out=1)
def set_op_execute_timeout_v2(timeout: Word) -> int:
    """Set how many us an operator may run, and return the same number.

    Gives: us
    Basis: S; C for the value
    """
    return timeout


def _known(handle: int) -> AclEvent:
    machine.context()
    return machine.resource(handle, AclEvent)


def _observed(handle: int) -> AclEvent:
    """Return an event whose state a program may query: 207000 for an event that only orders streams."""
    acl_event = _known(handle)
    if acl_event.flag == _EXTERNAL:
        raise Code.RT_FEATURE_NOT_SUPPORT.refusal(
            f"event {handle:#x} was created with flag 0x20 (EXTERNAL), which only streams record and wait for",
            "use an event with flag 1",
        )
    return acl_event


def _refuse_device_only(event: AclEvent) -> None:
    if event.flag == _DEVICE_ONLY:
        raise Code.RT_PARAM_INVALID.refusal(
            f"event {event.handle:#x} was created with flag 0x10 (DEVICE_USE_ONLY), so no stream takes it",
            "use an event with flag 1",
        )


def _refuse_unawaited(event: AclEvent, what: str) -> None:
    if not event.flag & _AWAITED:
        raise Code.RT_FEATURE_NOT_SUPPORT.refusal(
            f"event {event.handle:#x} was created with flag {event.flag:#x}, without SYNC (1), and such events are "
            f"not {what}",
            f"create it with flag {event.flag | _SYNC:#x}",
        )


def _of_this_context(handle: int) -> AclEvent:
    context = machine.context()
    acl_event = machine.resource(handle, AclEvent)
    machine.refuse_foreign(
        acl_event, context, "record an event on streams of the device where it was created"
    )
    return acl_event


def _time_ns(event: AclEvent) -> int:
    if not event.flag & _TIME_LINE:
        raise Code.RT_EVENT_TIMESTAMP_INVALID.refusal(
            f"event {event.handle:#x} was created without the flag TIME_LINE (8), so it has no time",
            "use acl.rt.create_event, or flag 8",
        )
    try:
        return event.neutral.time_ns
    except Error as error:
        if error.fault is Fault.NOT_RECORDED:
            raise _not_recorded(event, Code.RT_INTERNAL_ERROR) from None
        if error.fault is Fault.NOT_READY:
            raise Code.RT_EVENT_TIMESTAMP_INVALID.refusal(
                f"event {event.handle:#x} is not complete, so it has no time yet",
                "call acl.rt.synchronize_event first",
            ) from None
        raise


def _not_recorded(event: AclEvent, code: Code) -> Refusal:
    return Refusal(code, f"event {event.handle:#x} was never recorded", "call acl.rt.record_event first")


def _refuse_ex(event: AclEvent, what: str) -> None:
    if event.is_ex:
        _refuse_kind(event, "create_event_ex_with_flag", what)


def _refuse_kind(event: AclEvent, maker: str, what: str) -> NoReturn:
    raise Code.RT_FEATURE_NOT_SUPPORT.refusal(
        f"event {event.handle:#x} was made by acl.rt.{maker}, and such events are not {what}",
        "use an event of acl.rt.create_event_with_flag",
    )
