"""``acl.rt``: waits for slow callbacks and for callbacks of ended threads; report threads at exit."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from helpers.acl_calls import Server, content, filled, in_thread, ok, subscribed
from peerlane import Stream
from peerlane.backends.virtual.stream import VirtualStream

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]
BLOCK = 1
ENDLESS: dict[str, tuple[Callable[[ModuleType, int, int, int], Any], int]] = {
    "stream": (lambda acl, stream, event, other: acl.rt.synchronize_stream(stream), 507046),
    "stream -1": (
        lambda acl, stream, event, other: acl.rt.synchronize_stream_with_timeout(stream, -1),
        507046,
    ),
    "device": (lambda acl, stream, event, other: acl.rt.synchronize_device(), 507046),
    "event": (lambda acl, stream, event, other: acl.rt.synchronize_event(event), 507047),
    "behind its event": (lambda acl, stream, event, other: acl.rt.synchronize_stream(other), 507046),
    "end behind it": (lambda acl, stream, event, other: acl.rt.destroy_stream(other), 507046),
}


@pytest.mark.parametrize("wait", ENDLESS)
@pytest.mark.parametrize("ends_later", [False, True])
def test_acl_waits_for_callback_of_ended_thread_fail_and_name_remedy(
    wait: str, ends_later: bool, acl: ModuleType, message: Callable[[], str]
) -> None:
    go = threading.Event()
    thread = ok(acl.util.start_thread(lambda _: go.wait(20), []))
    stream, other, event = subscribed(acl, thread), ok(acl.rt.create_stream()), ok(acl.rt.create_event())
    target, seen = filled(acl, 64, 1), list[int]()
    ok(acl.rt.launch_callback(seen.append, 1, BLOCK, stream))
    ok(acl.rt.memset_async(target, 64, 7, 64, stream))
    ok(acl.rt.record_event(event, stream))
    ok(acl.rt.stream_wait_event(other, event))
    if ends_later:
        threading.Timer(0.2, go.set).start()
    else:
        go.set()
        ok(acl.util.stop_thread(thread))
    call, code = ENDLESS[wait]
    assert call(acl, stream, event, other) == code
    text = message()
    assert "would never be done" in text and f"callback that thread {thread} runs, which has ended" in text
    assert f"acl.rt.unsubscribe_report({thread}, {stream:#x}) or acl.rt.destroy_stream({stream:#x})" in text
    assert (content(acl, target, 64), seen) == (bytes([1]) * 64, [])
    # The remedy that the message names works.
    ok(acl.rt.unsubscribe_report(thread, stream))
    ok(acl.rt.synchronize_stream(stream))
    assert (content(acl, target, 64), seen) == (bytes([7]) * 64, [])


def test_acl_synchronize_stream_slow_callback_of_living_thread_waits_for_it(
    acl: ModuleType, server: Server
) -> None:
    lost, stream = subscribed(acl, in_thread(threading.get_ident)), subscribed(acl, server.thread)
    ok(acl.rt.launch_callback(print, None, BLOCK, lost))  # on a stream that the wait below ignores
    go = threading.Event()
    ok(acl.rt.launch_callback(lambda _: go.wait(20), None, BLOCK, stream))
    threading.Timer(1.5, go.set).start()
    ok(acl.rt.synchronize_stream(stream))
    assert go.is_set()
    ok(acl.rt.destroy_stream(lost))


@pytest.mark.parametrize("call", ["synchronize_stream", "synchronize_event"])
def test_acl_circular_event_waits_return_507046_while_another_stream_waits_for_a_callback(
    call: str, acl: ModuleType, server: Server, message: Callable[[], str]
) -> None:
    go, other = threading.Event(), subscribed(acl, server.thread)
    ok(acl.rt.launch_callback(lambda _: go.wait(20), None, BLOCK, other))
    first, second = (ok(acl.rt.create_stream()) for _ in range(2))
    events = [ok(acl.rt.create_event_with_flag(1)) for _ in range(2)]
    ok(acl.rt.stream_wait_event(first, events[1]))
    ok(acl.rt.stream_wait_event(second, events[0]))
    ok(acl.rt.record_event(events[0], first))
    ok(acl.rt.record_event(events[1], second))
    assert getattr(acl.rt, call)(first if call == "synchronize_stream" else events[0]) == 507046
    assert f"stream {second:#x}" in message() and not go.is_set()
    for stream in (first, second):
        ok(acl.rt.stream_abort(stream))
    go.set()
    ok(acl.rt.synchronize_stream(other))


@pytest.mark.parametrize("threads", [1, 20])
def test_acl_synchronize_device_20_streams_of_ended_threads_returns_in_10_s(
    threads: int, acl: ModuleType
) -> None:
    streams = [
        subscribed(acl, 1000 + number % threads) for number in range(20)
    ]  # no thread has such a number
    for stream in streams:
        ok(acl.rt.launch_callback(print, None, BLOCK, stream))
    begun = time.monotonic()
    assert acl.rt.synchronize_device() == 507046
    assert 0.9 < time.monotonic() - begun < 10  # one second for each stream would be 20
    for stream in streams:
        ok(acl.rt.destroy_stream(stream))
    ok(acl.rt.synchronize_device())


def test_acl_synchronize_stream_callback_launched_during_wait_is_not_waited_for(
    acl: ModuleType, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, waits, first, later = subscribed(acl, server.thread), *(threading.Event() for _ in range(3))
    ok(acl.rt.launch_callback(lambda _: first.wait(20), None, BLOCK, stream))
    codes, sync = list[int](), VirtualStream.sync

    def sync_that_signals(self: Stream, timeout: float | None = None) -> None:
        waits.set()
        sync(self, timeout)

    def wait() -> None:
        ok(acl.rt.set_device(0))
        codes.append(acl.rt.synchronize_stream(stream))

    monkeypatch.setattr(VirtualStream, "sync", sync_that_signals)
    waiter = threading.Thread(target=wait)
    waiter.start()
    assert waits.wait(20)
    ok(acl.rt.launch_callback(lambda _: later.wait(40), None, BLOCK, stream))
    first.set()
    waiter.join(30)
    assert codes == [0] and not later.is_set()
    later.set()
    ok(acl.rt.synchronize_stream(stream))


SERVED = """
import atexit, sys, threading
atexit.register(lambda: server.join(0.5))  # runs last: the thread outlives all other exit handlers
import peerlane.dialects.acl as acl
assert acl.rt.set_device(0) == 0
stream, notify, subscribed, looked = acl.rt.create_stream()[0], acl.rt.create_notify(0)[0], threading.Event(), []
def serve():
    subscribed.wait()
    while True:
        acl.rt.process_report(-1)
server = threading.Thread(target=serve, daemon=True)
server.start()
assert acl.rt.subscribe_report(server.ident, stream) == 0
if sys.argv[1] == "queued":
    assert acl.rt.wait_and_reset_notify(notify, stream, 0) == 0
subscribed.set()
reached = threading.Event()
assert acl.rt.launch_callback(lambda _: reached.set(), None, int(sys.argv[2]), stream) == 0
if sys.argv[1] == "run":
    assert reached.wait(20) and acl.rt.synchronize_stream(stream) == 0
print("the end")
"""


@pytest.mark.parametrize("mode", [(), ("-X", "dev")], ids=["plain", "dev"])
@pytest.mark.parametrize("state", ["run", "queued"])
@pytest.mark.parametrize("block", ["0", "1"])
def test_acl_process_report_thread_at_interpreter_exit_prints_nothing(
    mode: tuple[str, ...], state: str, block: str
) -> None:
    command = [sys.executable, *mode, "-c", SERVED, state, block]
    ended = subprocess.run(command, timeout=100, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "the end\n", "")
