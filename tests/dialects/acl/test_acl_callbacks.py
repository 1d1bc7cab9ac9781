"""``acl.rt``: callbacks in stream order, the threads that run them, and ``acl.util``'s threads."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from helpers.acl_calls import Held, Server, content, filled, in_thread, ok, subscribed, timed_out
from peerlane.dialects.acl import _callback

pytestmark = pytest.mark.timeout(60)
NO_BLOCK, BLOCK = 0, 1


def test_acl_launch_callback_blocking_callbacks_run_in_stream_order(acl: ModuleType, server: Server) -> None:
    stream, target = subscribed(acl, server.thread), filled(acl, 64, 0)
    seen: list[tuple[int, int, bytes]] = []

    def look(value: int) -> None:
        seen.append((value, threading.get_ident(), content_of_other(value)))

    def content_of_other(value: int) -> bytes:
        acl.rt.set_device(0)
        received = content(acl, target, 64)
        acl.rt.reset_device(0)
        return received

    for value in range(20):
        ok(acl.rt.memset_async(target, 64, value, 64, stream))
        ok(acl.rt.launch_callback(look, value, BLOCK, stream))
    ok(acl.rt.synchronize_stream(stream))
    assert seen == [(value, server.thread, bytes([value] * 64)) for value in range(20)]
    ok(acl.rt.unsubscribe_report(server.thread, stream))
    assert set(server.codes) <= {0, 107012, 507012}


def test_acl_launch_callback_no_block_lets_stream_continue(acl: ModuleType) -> None:
    stream, target, seen = subscribed(acl), filled(acl, 64, 0), list[str]()
    ok(acl.rt.launch_callback(seen.append, "first", NO_BLOCK, stream))
    ok(acl.rt.memset_async(target, 64, 1, 64, stream))
    ok(acl.rt.synchronize_stream(stream))
    assert seen == [] and content(acl, target, 64) == bytes([1] * 64)
    ok(acl.rt.launch_callback(seen.append, "second", NO_BLOCK, stream))
    ok(acl.rt.process_report(10_000))
    while len(seen) < 2:
        ok(acl.rt.process_report(10_000))
    assert seen == ["first", "second"]


def test_acl_launch_callback_block_holds_stream_until_report_is_processed(acl: ModuleType) -> None:
    stream, target, seen = subscribed(acl), filled(acl, 64, 0), list[int]()
    ok(acl.rt.launch_callback(seen.append, 1, BLOCK, stream))
    ok(acl.rt.memset_async(target, 64, 1, 64, stream))
    assert acl.rt.stream_query(stream) == (1, 0)
    assert content(acl, target, 64) == bytes(64)
    ok(acl.rt.process_report(10_000))
    ok(acl.rt.synchronize_stream(stream))
    assert seen == [1] and content(acl, target, 64) == bytes([1] * 64)


def test_acl_process_report_one_thread_serves_five_streams(acl: ModuleType) -> None:
    streams = [subscribed(acl) for _ in range(5)]
    seen: list[int] = []
    for number, stream in enumerate(streams):
        ok(acl.rt.launch_callback(seen.append, number, BLOCK, stream))
    while len(seen) < 5:
        ok(acl.rt.process_report(10_000))
    assert sorted(seen) == list(range(5))
    ok(acl.rt.synchronize_device())


def test_acl_process_report_waiting_thread_wakes_on_launch(acl: ModuleType) -> None:
    stream = ok(acl.rt.create_stream())
    ready, called = threading.Event(), threading.Event()
    codes: list[int] = []

    def serve() -> None:
        ready.set()
        codes.append(acl.rt.process_report(-1))

    waiting = threading.Thread(target=lambda: subscribed_by_this_thread(serve))

    def subscribed_by_this_thread(then: Callable[[], None]) -> None:
        acl.rt.set_device(0)
        acl.rt.subscribe_report(threading.get_ident(), stream)
        then()

    waiting.start()
    assert ready.wait(20)
    ok(acl.rt.launch_callback(lambda _: called.set(), None, BLOCK, stream))
    assert called.wait(20)
    waiting.join(20)
    assert codes == [0] and not waiting.is_alive()


def test_acl_process_report_callback_raises_returns_0_and_message_names_error(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    stream, target = subscribed(acl), filled(acl, 64, 0)

    def fails(data: object) -> None:
        raise RuntimeError(f"no {data}")

    ok(acl.rt.launch_callback(fails, "luck", BLOCK, stream))
    ok(acl.rt.memset_async(target, 64, 1, 64, stream))
    ok(acl.rt.process_report(10_000))
    assert "fails raised RuntimeError: no luck" in message()
    ok(acl.rt.synchronize_stream(stream))
    assert content(acl, target, 64) == bytes([1] * 64)


def test_acl_process_report_callback_raises_system_exit_thread_survives(
    acl: ModuleType, server: Server
) -> None:
    stream, target = subscribed(acl, server.thread), filled(acl, 64, 0)
    texts: list[str] = []

    def ends(kind: type[BaseException]) -> None:
        raise kind(3)

    for kind in (SystemExit, GeneratorExit, KeyboardInterrupt):
        ok(acl.rt.launch_callback(ends, kind, BLOCK, stream))
    ok(acl.rt.memset_async(target, 64, 1, 64, stream))
    ok(acl.rt.launch_callback(lambda _: texts.append(acl.get_recent_err_msg()), None, BLOCK, stream))
    ok(acl.rt.synchronize_stream(stream))
    assert content(acl, target, 64) == bytes([1] * 64)
    for kind in (SystemExit, GeneratorExit, KeyboardInterrupt):
        assert f"ends raised {kind.__name__}: 3" in texts[0]


def test_acl_process_report_sigint_in_main_thread_raises_keyboard_interrupt(acl: ModuleType) -> None:
    stream, target = subscribed(acl), filled(acl, 64, 0)
    ok(acl.rt.launch_callback(lambda _: signal.raise_signal(signal.SIGINT), None, BLOCK, stream))
    ok(acl.rt.memset_async(target, 64, 1, 64, stream))
    with pytest.raises(KeyboardInterrupt):
        acl.rt.process_report(10_000)
    ok(acl.rt.synchronize_stream(stream))
    assert content(acl, target, 64) == bytes([1] * 64)


def test_acl_process_report_repeated_timeouts_keep_earlier_message(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    stream = subscribed(acl)
    ok(acl.rt.launch_callback(lambda _: 1 // 0, None, NO_BLOCK, stream))
    ok(acl.rt.process_report(10_000))
    for _ in range(100):
        assert acl.rt.process_report(1) == 507012
    explained = message()
    assert "ZeroDivisionError" in explained
    assert explained.count("507012") == 1


def test_acl_report_calls_bad_arguments_return_documented_codes(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    stream, me = ok(acl.rt.create_stream()), threading.get_ident()
    assert acl.rt.launch_callback(print, None, BLOCK, stream) == 107015
    assert acl.rt.unsubscribe_report(me, stream) == 107015
    assert acl.rt.process_report(1) == 107012
    ok(acl.rt.subscribe_report(me, stream))
    assert acl.rt.subscribe_report(me, stream) == 107011
    assert acl.rt.subscribe_report(me + 1, stream) == 107011
    assert acl.rt.unsubscribe_report(me + 1, stream) == 107012
    assert acl.rt.process_report(0) == acl.rt.process_report(-2) == 107000
    assert acl.rt.process_report(20) == 507012
    assert in_thread(acl.rt.process_report, 1) == 107012
    assert acl.rt.launch_callback(print, None, 2, stream) == 107000
    assert acl.rt.launch_callback(print, None, -1, stream) == 107000
    ok(acl.rt.unsubscribe_report(me, stream))
    assert acl.rt.process_report(1) == 107012
    ok(acl.rt.subscribe_report(me, stream))
    assert message().count("returned") == 12
    for args in ((print, None, BLOCK), (None, None, BLOCK, stream), (5, None, BLOCK, stream)):
        with pytest.raises(TypeError, match=r"^acl\.rt\.launch_callback args parse failed$"):
            acl.rt.launch_callback(*args)


def test_acl_subscribe_report_thread_of_other_device_returns_107000(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    subscribed(acl)
    ok(acl.rt.set_device(1))
    stream = ok(acl.rt.create_stream())
    assert acl.rt.subscribe_report(threading.get_ident(), stream) == 107000
    assert "serves device 0" in message()
    ok(acl.rt.subscribe_report(threading.get_ident() + 1, stream))


def test_acl_subscribe_report_beyond_thread_limit_returns_207005(
    acl: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_callback, "MOST_THREADS", 3)
    streams = [subscribed(acl, 1000 + number) for number in range(3)]
    stream = ok(acl.rt.create_stream())
    assert acl.rt.subscribe_report(1, stream) == 207005
    ok(acl.rt.subscribe_report(1002, stream))
    ok(acl.rt.unsubscribe_report(1000, streams[0]))
    ok(acl.rt.subscribe_report(1, streams[0]))


def test_acl_synchronize_in_own_report_thread_returns_507046(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    stream, codes = subscribed(acl), list[Any]()
    ok(acl.rt.launch_callback(lambda _: codes.append(acl.rt.synchronize_stream(stream)), None, BLOCK, stream))
    for wait in (
        lambda: acl.rt.synchronize_stream(stream),
        lambda: acl.rt.synchronize_stream_with_timeout(stream, -1),
        acl.rt.synchronize_device,
    ):
        assert wait() == 507046
        assert "waits for a callback that only this thread runs" in message()
    ok(acl.rt.process_report(10_000))
    assert codes == [507046]
    assert "only this thread runs" in message()
    ok(acl.rt.synchronize_stream(stream))


def test_acl_synchronize_device_event_behind_own_callback_returns_507046(acl: ModuleType) -> None:
    stream, other, event = subscribed(acl), ok(acl.rt.create_stream()), ok(acl.rt.create_event())
    ok(acl.rt.launch_callback(print, None, BLOCK, stream))
    ok(acl.rt.record_event(event, stream))
    ok(acl.rt.stream_wait_event(other, event))
    assert acl.rt.synchronize_device() == 507046
    ok(acl.rt.process_report(10_000))
    ok(acl.rt.synchronize_device())


@pytest.mark.parametrize(
    "end", ["destroy_stream", "destroy_stream_force", "unsubscribe_report", "reset_device"]
)
def test_acl_ending_stream_in_its_report_thread_names_uncalled_callback(
    end: str, acl: ModuleType, message: Callable[[], str]
) -> None:
    stream, target, host, seen = subscribed(acl), filled(acl, 64, 5), ok(acl.rt.malloc_host(64)), list[int]()
    ok(acl.rt.launch_callback(seen.append, 1, BLOCK, stream))
    ok(acl.rt.memcpy_async(host, 64, target, 64, 2, stream))
    if end == "reset_device":
        ok(acl.rt.reset_device(0))
        ok(acl.rt.set_device(0))
    elif end == "unsubscribe_report":
        ok(acl.rt.unsubscribe_report(threading.get_ident(), stream))
        ok(acl.rt.synchronize_stream(stream))
    else:
        ok(getattr(acl.rt, end)(stream))
    assert f"1 callback of stream {stream:#x} was not called" in message()
    assert acl.rt.process_report(1) == 107012
    assert seen == []
    if end != "destroy_stream_force":
        assert acl.util.ptr_to_bytes(host, 64) == bytes([5] * 64)


def test_acl_synchronize_with_timeout_ended_report_thread_names_thread_and_remedy(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    stream = subscribed(acl, in_thread(threading.get_ident))
    ok(acl.rt.launch_callback(print, None, BLOCK, stream))
    event = ok(acl.rt.create_event())
    ok(acl.rt.record_event(event, stream))
    waits = (
        lambda: acl.rt.synchronize_stream_with_timeout(stream, 50),
        lambda: acl.rt.synchronize_device_with_timeout(50),
        lambda: acl.rt.synchronize_event_with_timeout(event, 50),
    )
    text = "".join(timed_out(acl, each) for each in waits)
    assert text.count("waits for a callback that thread ") == text.count("runs, which has ended") == 3
    assert "acl.rt.unsubscribe_report(" in text and "notify" not in text
    ok(acl.rt.destroy_stream(stream))
    assert f"callback of stream {stream:#x}" in message()


def test_acl_synchronize_stream_with_timeout_pending_callback_names_callback(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    go = threading.Event()
    thread = ok(acl.util.start_thread(lambda _: go.wait(20), []))
    stream = subscribed(acl, thread)
    ok(acl.rt.launch_callback(print, None, BLOCK, stream))
    text = timed_out(acl, lambda: acl.rt.synchronize_stream_with_timeout(stream, 50))
    assert (
        f"waits for a callback that thread {thread} runs: print, launched at test_acl_callbacks.py:" in text
    )
    assert f"Solution: let thread {thread} call acl.rt.process_report" in text
    ok(acl.rt.destroy_stream_force(stream))
    go.set()
    ok(acl.util.stop_thread(thread))


@pytest.mark.parametrize("end", ["destroy_stream", "reset_device"])
def test_acl_ending_stream_whose_report_thread_ends_names_uncalled_callback(
    end: str, acl: ModuleType, message: Callable[[], str]
) -> None:
    go = threading.Event()
    thread = ok(acl.util.start_thread(lambda _: go.wait(20), []))
    stream = subscribed(acl, thread)
    ok(acl.rt.launch_callback(print, None, BLOCK, stream))
    threading.Timer(0.2, go.set).start()
    ok(getattr(acl.rt, end)(stream if end == "destroy_stream" else 0))
    assert f"1 callback of stream {stream:#x} was not called" in message()
    ok(acl.util.stop_thread(thread))
    if end == "reset_device":
        ok(acl.rt.set_device(0))


def test_acl_destroy_stream_waits_for_callbacks_of_other_thread(acl: ModuleType, server: Server) -> None:
    stream, go, seen = subscribed(acl, server.thread), threading.Event(), list[bool]()
    ok(acl.rt.launch_callback(lambda _: seen.append(go.wait(20)), None, BLOCK, stream))
    ok(acl.rt.launch_callback(seen.append, False, BLOCK, stream))
    threading.Timer(0.05, go.set).start()
    ok(acl.rt.destroy_stream(stream))
    assert seen == [True, False]


@pytest.mark.parametrize("end", ["destroy_stream", "reset_device"])
def test_acl_ending_stream_callback_behind_endless_wait_returns_107023(
    end: str, acl: ModuleType, server: Server
) -> None:
    stream, seen = subscribed(acl, server.thread), list[int]()
    ok(acl.rt.wait_and_reset_notify(ok(acl.rt.create_notify(0)), stream, 0))
    ok(acl.rt.launch_callback(seen.append, 1, BLOCK, stream))
    assert getattr(acl.rt, end)(stream if end == "destroy_stream" else 0) == 107023
    assert seen == []
    if end == "reset_device":
        ok(acl.rt.set_device(0))


@pytest.mark.parametrize("unsubscribe", [False, True])
def test_acl_destroy_stream_waits_for_running_callback(
    unsubscribe: bool, acl: ModuleType, server: Server
) -> None:
    stream, begun, go, seen = (
        subscribed(acl, server.thread),
        threading.Event(),
        threading.Event(),
        list[bool](),
    )

    def wait(_: None) -> None:
        begun.set()
        seen.append(go.wait(20))

    ok(acl.rt.launch_callback(wait, None, BLOCK, stream))
    assert begun.wait(20)
    if unsubscribe:
        ok(acl.rt.unsubscribe_report(server.thread, stream))
    threading.Timer(0.05, go.set).start()
    ok(acl.rt.destroy_stream(stream))
    assert seen == [True]


@pytest.mark.parametrize("end", ["destroy_stream", "destroy_stream_force", "unsubscribe_report"])
def test_acl_ending_stream_in_its_own_callback_returns_0(end: str, acl: ModuleType, server: Server) -> None:
    stream, host, codes = subscribed(acl, server.thread), ok(acl.rt.malloc_host(64)), list[int]()
    source, done = filled(acl, 64, 7), threading.Event()

    def finish(_: None) -> None:
        acl.rt.set_device(0)
        args = (server.thread, stream) if end == "unsubscribe_report" else (stream,)
        codes.append(getattr(acl.rt, end)(*args))
        acl.rt.reset_device(0)
        done.set()

    held = Held(acl, stream)
    ok(acl.rt.launch_callback(finish, None, BLOCK, stream))
    ok(acl.rt.memcpy_async(host, 64, source, 64, 2, stream))
    held.release()
    assert done.wait(20)
    assert codes == [0]
    if end == "unsubscribe_report":
        ok(acl.rt.synchronize_stream(stream))
    if end != "destroy_stream_force":
        assert acl.util.ptr_to_bytes(host, 64) == bytes([7] * 64)


def test_acl_launch_callback_200_times_leaves_no_file_descriptor_open(acl: ModuleType) -> None:
    import os

    stream, seen = subscribed(acl), list[int]()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for number in range(200):
        held = Held(acl, stream) if number % 50 == 0 else None
        ok(acl.rt.launch_callback(seen.append, number, BLOCK, stream))
        if held is not None:
            assert acl.rt.process_report(5) == 507012
            held.release()
        while len(seen) <= number:
            assert acl.rt.process_report(10_000) == 0
    ok(acl.rt.unsubscribe_report(threading.get_ident(), stream))
    ok(acl.rt.destroy_stream(stream))
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208


def test_acl_stream_abort_queued_callback_is_not_called(acl: ModuleType) -> None:
    stream, seen = subscribed(acl), list[int]()
    Held(acl, stream)
    ok(acl.rt.launch_callback(seen.append, 1, BLOCK, stream))
    ok(acl.rt.stream_abort(stream))
    assert acl.rt.synchronize_stream(stream) == 107023
    ok(acl.rt.launch_callback(seen.append, 2, BLOCK, stream))
    while not seen:
        ok(acl.rt.process_report(10_000))
    assert seen == [2]
    ok(acl.rt.synchronize_stream(stream))


def test_acl_launch_callback_after_the_call_releases_user_data(acl: ModuleType) -> None:
    import weakref

    class Data:
        pass

    stream, data = subscribed(acl), Data()
    gone = weakref.ref(data)
    ok(acl.rt.launch_callback(lambda _: None, data, BLOCK, stream))
    del data
    assert gone() is not None
    ok(acl.rt.process_report(10_000))
    ok(acl.rt.synchronize_stream(stream))
    assert gone() is None
