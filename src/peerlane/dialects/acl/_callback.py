"""``acl.rt``: callbacks in stream order, run by a thread of the program or of the library (facts/acl 2.10, 6)."""

from __future__ import annotations

import threading

from peerlane.backend import host
from peerlane.dialects._shared.call import Address, Callback, Int32, Object, Word
from peerlane.dialects.acl._checks import one_of, refuse_no_function
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._report import MOST_THREADS, Report, Subscription, report_of
from peerlane.dialects.acl._state import acl, machine
from peerlane.dialects.acl._stream import AclStream, in_seconds, stream_of

_BLOCK_TYPE = one_of(
    "block_type", (0, 1), "pass 1 to let the stream wait for the callback, 0 to let it go on"
)


@acl.call("acl.rt.subscribe_report")
def subscribe_report(thread_id: Word, stream: Address) -> None:
    """Let a thread run the callbacks of a stream; it may serve several of one device (facts/acl 2.10).

    Refuses: 107002; 107000 stream, another device than the thread's; 107003; 107011 again; 207005 over 1,024 threads
    Basis: D; C for 107000, 107011, 207005
    """
    acl_stream = stream_of(stream)
    with machine.lock:
        subscription = acl_stream.subscription
        if subscription is not None and not subscription.has_ended:
            raise Code.RT_STREAM_SUBSCRIBE.refusal(
                f"stream {acl_stream.handle:#x} is subscribed to thread {subscription.report.thread} already",
                "call acl.rt.unsubscribe_report first: a stream has one thread",
            )
        report = report_of(thread_id)
        if report is None:
            if len(machine.reports) >= MOST_THREADS:
                raise Code.RT_RESOURCE_ALLOC_FAIL.refusal(
                    f"{MOST_THREADS:,} threads have streams, the most there may be",
                    "let one thread serve several streams",
                )
            report = machine.reports[thread_id] = Report(thread_id)
        elif report.devices != {acl_stream.context.device.ordinal}:
            raise Code.RT_PARAM_INVALID.refusal(
                f"thread {thread_id} serves device {report.devices.pop()}, and stream {acl_stream.handle:#x} belongs "
                f"to device {acl_stream.context.number}",
                "take one thread for each device",
            )
        acl_stream.subscription = report.subscribe(acl_stream.neutral, acl_stream.handle, str(acl_stream))
        host.forget_c_threads()  # native code would let that thread wait for the stream, for ever


@acl.call("acl.rt.unsubscribe_report")
def unsubscribe_report(thread_id: Word, stream: Address) -> None:
    """End a subscription: the thread runs the callbacks that were launched before, and no more (facts/acl 2.10).

    Refuses: 107002; 107000; 107003; 107015 not subscribed; 107012 another thread
    Basis: C
    """
    acl_stream = stream_of(stream)
    with machine.lock:
        subscription = _subscription(acl_stream)
        if subscription.report.thread != thread_id:
            raise Code.RT_THREAD_SUBSCRIBE.refusal(
                f"stream {acl_stream.handle:#x} is subscribed to thread {subscription.report.thread}, not "
                f"{thread_id}",
                "pass the thread that was subscribed",
            )
        subscription.has_ended = True
    subscription.end(wait=False)


@acl.call("acl.rt.launch_callback", checks=[_BLOCK_TYPE])
def launch_callback(fn: Callback, user_data: Object, block_type: Int32, stream: Address) -> None:
    """Queue ``fn(user_data)``; with ``block_type`` 1 later operations wait for its return (facts/acl 2.10).

    If ``fn`` raises, the stream does not fail: the thread that ran ``fn`` gets a message.

    Refuses: 107000 `block_type`, stream; 107002; 107003; 107015 not subscribed; `TypeError` not callable
    Basis: S, R; C for `block_type` and `TypeError`
    """
    _subscription(stream_of(stream)).launch(fn, user_data, blocks=bool(block_type))


@acl.call("acl.rt.process_report")
def process_report(timeout: Int32) -> None:
    """Run the callbacks that this thread's streams have reached; wait up to ``timeout`` ms for one (facts/acl 2.10).

    -1 waits for ever.  107012 if no stream is subscribed to this thread, 507012 if nothing came in time.

    Refuses: 107000 for 0 and below -1; 107012; 507012
    Basis: S
    """
    seconds = in_seconds(timeout)
    machine.check_fork()
    thread = threading.get_ident()
    report = report_of(thread)
    if report is not None and report.process(seconds):
        return
    if report is None or not report.is_subscribed:
        raise Code.RT_THREAD_SUBSCRIBE.refusal(
            f"no stream is subscribed to this thread, {thread}",
            f"call acl.rt.subscribe_report({thread}, stream) first",
        )
    raise Code.RT_REPORT_TIMEOUT.refusal(
        f"no stream reached a callback for this thread within {timeout:,} ms",
        "call it again; it is called in a loop",
    )


@acl.call("aclrtLaunchHostFunc")
def launch_host_function(stream: Address, fn: Object, args: Address) -> None:
    """Call ``fn(args)`` when all earlier operations are over; later ones wait for its return.

    One thread of the library calls the functions of all streams; no thread has to be subscribed.  A function must not
    wait for its own stream: 507046.

    Refuses: 107000 NULL, stream; 107002; 107003
    Basis: S, D; C for NULL and the one thread
    """
    acl_stream = stream_of(stream)
    refuse_no_function(Code.RT_PARAM_INVALID, "fn", fn)
    acl_stream.neutral.launch_callback(fn, args)


def _subscription(stream: AclStream) -> Subscription:
    subscription = stream.subscription
    if subscription is None or subscription.has_ended:
        raise Code.RT_STREAM_NO_CB_REG.refusal(
            f"stream {stream.handle:#x} is subscribed to no thread",
            "call acl.rt.subscribe_report(thread_id, stream) first",
        )
    return subscription
