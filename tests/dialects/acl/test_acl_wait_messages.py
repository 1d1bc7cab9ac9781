"""``acl.rt``: messages about callbacks and waits name the program's own handles and lines."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from types import ModuleType

import pytest

from helpers.acl_calls import Held, in_thread, ok, subscribed, timed_out

pytestmark = pytest.mark.timeout(60)
BLOCK = 1
NEUTRAL = re.compile(r"\b(?:stream|notify|event) \d+\b|<Event|virtual:")


def this_line(back: int = 0) -> str:
    """Return the calling line as messages name it, or one ``back`` lines before it."""
    return f"test_acl_wait_messages.py:{sys._getframe(1).f_lineno - back}"


def raising(data: object) -> None:
    raise LookupError(f"no {data}")


RAISED = this_line(3)


def calling(data: object) -> None:
    raising(data)


CALLED = this_line(3)


def test_acl_message_callback_that_raises_names_error_and_lines(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    stream = ok(acl.rt.create_stream())
    maker = this_line(1)
    ok(acl.rt.subscribe_report(threading.get_ident(), stream))
    ok(acl.rt.launch_callback(calling, "luck", BLOCK, stream))
    launched = this_line(1)
    ok(acl.rt.process_report(10_000))
    first, cause, solution = message().splitlines()
    assert (
        first == f"E19999: the callback calling raised LookupError: no luck, at {RAISED}, called at {CALLED}."
    )
    assert cause == (
        f"        Possible Cause: it was launched at {launched} on stream {stream:#x} of device 0, made at {maker}, "
        "which goes on."
    )
    assert solution.startswith("        Solution: catch in the callback")


def test_acl_message_callback_error_without_text_or_line_is_still_named(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def fails(_: object) -> None:
        raise Unspeakable

    stream, done = subscribed(acl), list[int]()
    ok(acl.rt.launch_callback(int, "x", BLOCK, stream))
    ok(acl.rt.launch_callback(fails, None, BLOCK, stream))
    ok(acl.rt.launch_callback(done.append, 1, BLOCK, stream))
    while not done:
        ok(acl.rt.process_report(10_000))
    text = message()
    assert "raised Unspeakable (its text raised RuntimeError), at test_acl_wait_messages.py:" in text
    assert "the callback int raised ValueError: invalid literal for int() with base 10: 'x'.\n" in text


def test_acl_message_exception_callback_that_raises_names_operation(acl: ModuleType) -> None:
    stream, notify = ok(acl.rt.create_stream()), ok(acl.rt.create_notify(0))
    maker = this_line(1)
    ok(acl.rt.set_exception_info_callback(raising))
    ok(acl.rt.wait_and_reset_notify(notify, stream, 1))
    assert acl.rt.synchronize_stream(stream) == 107019
    text = acl.get_recent_err_msg()
    assert "the exception callback raised LookupError: no " in text and f", at {RAISED}.\n" in text
    assert (
        f"it was told of operation 1 of stream {stream:#x} of device 0, made at {maker}, and raised.\n"
        in text
    )
    assert "set it again with acl.rt.set_exception_info_callback" in text


def test_acl_message_uncalled_callbacks_names_each_and_the_reason(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    stream, me = subscribed(acl), threading.get_ident()
    for _ in range(5):
        ok(acl.rt.launch_callback(raising, None, BLOCK, stream))
    launched = this_line(1)
    ok(acl.rt.unsubscribe_report(me, stream))
    ended = this_line(1)
    first, cause, solution = message().splitlines()
    each = f"raising, launched at {launched}"
    assert first == (
        f"E19999: 5 callbacks of stream {stream:#x} were not called: {each}; {each}; {each} and 2 more."
    )
    assert cause == (
        f"        Possible Cause: acl.rt.unsubscribe_report at {ended} ended the stream's subscription, and thread "
        f"{me}, which runs the callbacks launched there, is the one that did so."
    )
    assert "acl.rt.process_report before" in solution
    gone = in_thread(threading.get_ident)
    stream = subscribed(acl, gone)
    ok(acl.rt.launch_callback(raising, None, 0, stream))
    launched = this_line(1)
    ok(acl.rt.destroy_stream(stream))
    ended = this_line(1)
    text = message()
    assert (
        f"E19999: 1 callback of stream {stream:#x} was not called: raising, launched at {launched}.\n" in text
    )
    assert f"ended by acl.rt.destroy_stream at {ended}, and thread {gone}, which" in text
    assert "has ended.\n        Solution: let the thread call acl.rt.process_report" in text


def test_acl_message_chain_of_waits_names_streams_and_lines(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    thread, event, last = (
        in_thread(threading.get_ident),
        ok(acl.rt.create_event()),
        ok(acl.rt.create_stream()),
    )
    first = ok(acl.rt.create_stream())
    maker = this_line(1)
    ok(acl.rt.subscribe_report(thread, first))
    ok(acl.rt.launch_callback(raising, None, BLOCK, first))
    launched = this_line(1)
    ok(acl.rt.record_event(event, first))
    ok(acl.rt.stream_wait_event(last, event))
    submitted = this_line(1)
    links = (
        f"at operation 1 (submitted at {submitted}) waits for operation 3 of stream {first:#x}",
        f"stream {first:#x}, made at {maker}, at operation 2 waits for a callback that thread {thread} runs, which "
        f"has ended: raising, launched at {launched} (",
    )
    remedy = (
        f"Solution: call acl.rt.unsubscribe_report({thread}, {first:#x}) or acl.rt.destroy_stream({first:#x})"
    )
    assert acl.rt.synchronize_stream(last) == 507046
    text = message()
    assert f"Possible Cause: stream {last:#x} would never be done: stream {last:#x} {links[0]} (" in text
    assert links[1] in text and remedy in text and not NEUTRAL.search(text)
    assert acl.rt.synchronize_event_with_timeout(event, 50) == 507047
    text = message()
    assert (
        f"event {event:#x} (recorded as operation 3 of stream {first:#x}) was not done after 0.05 s: " in text
    )
    assert remedy in text and not NEUTRAL.search(text)
    ok(acl.rt.unsubscribe_report(thread, first))
    ok(acl.rt.synchronize_stream(last))


def test_acl_message_wait_names_notify_event_or_value(acl: ModuleType, message: Callable[[], str]) -> None:
    streams = [ok(acl.rt.create_stream()) for _ in range(3)]
    notify, event = ok(acl.rt.create_notify(0)), ok(acl.rt.create_event_with_flag(1))
    maker = this_line(1)
    word = ok(acl.rt.malloc(64, 0))
    ok(acl.rt.memset(word, 64, 0, 64))
    ok(acl.rt.wait_and_reset_notify(notify, streams[0], 0))
    ok(acl.rt.stream_wait_event(streams[1], event))
    ok(acl.rt.value_wait(word, 1, 1, streams[2]))
    lines = this_line(3), this_line(2), this_line(1)
    expected = (
        (
            f"notify {notify:#x}, made at {maker}",
            f"record it with acl.rt.record_notify({notify:#x}, stream)",
        ),
        (
            f"the next record of event {event:#x}, made at {maker}",
            f"acl.rt.record_event({event:#x}, stream)",
        ),
        ("a word of memory to change", "wait longer"),
    )
    for stream, line, (what, remedy) in zip(streams, lines, expected, strict=True):
        text = timed_out(acl, lambda stream=stream: acl.rt.synchronize_stream_with_timeout(stream, 30))
        assert f"s: stream {stream:#x} at operation 1 (submitted at {line}) waits for {what} (" in text
        assert remedy in text.partition("Solution: ")[2] and not NEUTRAL.search(text)
    for stream in streams:
        ok(acl.rt.destroy_stream_force(stream))
    ok(acl.rt.free(word))


def test_acl_message_wait_for_destroyed_notify_has_no_number(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    stream, notify, event = ok(acl.rt.create_stream()), ok(acl.rt.create_notify(0)), ok(acl.rt.create_event())
    other = ok(acl.rt.create_stream())
    held = Held(acl, other)
    ok(acl.rt.wait_and_reset_notify(notify, stream, 0))
    ok(acl.rt.destroy_notify(notify))
    text = timed_out(acl, lambda: acl.rt.synchronize_stream_with_timeout(stream, 30))
    assert "waits for an object that was destroyed (" in text and not NEUTRAL.search(text)
    ok(acl.rt.stream_abort(stream))
    assert acl.rt.synchronize_stream(stream) == 107023
    ok(acl.rt.record_event(event, other))
    ok(acl.rt.stream_wait_event(stream, event))
    held.release()
    ok(acl.rt.synchronize_stream(stream))


def test_acl_message_streams_waiting_for_each_other_names_both_and_event(acl: ModuleType) -> None:
    first, second = ok(acl.rt.create_stream()), ok(acl.rt.create_stream())
    early = [ok(acl.rt.create_event_with_flag(1)) for _ in range(2)]
    ok(acl.rt.stream_wait_event(first, early[0]))
    ok(acl.rt.record_event(early[1], first))
    ok(acl.rt.stream_wait_event(second, early[1]))
    ok(acl.rt.record_event(early[0], second))
    assert acl.rt.synchronize_stream(first) == 507046
    text = acl.get_recent_err_msg()
    assert f"stream {first:#x} waits for itself" in text and f"stream {second:#x}" in text
    assert f"waits for a record of event {early[0]:#x}, made at " in text
    assert not NEUTRAL.search(text)
    for stream in (first, second):
        ok(acl.rt.destroy_stream_force(stream))
