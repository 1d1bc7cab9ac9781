"""``acl.rt``: which thread runs a stream's callbacks when a new thread has the ident of an ended one."""

from __future__ import annotations

import _thread
import os
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from helpers.acl_calls import in_thread, ok, subscribed

pytestmark = pytest.mark.timeout(60)
BLOCK = 1


def _same_ident(thread: int, work: Callable[[], object]) -> bool:
    """Run ``work`` in a new thread with the ident of an ended one; return False if none of 16 gets it."""
    over = threading.Event()
    try:
        # A thread with another ident lives on, so that the next thread cannot get that ident.
        return any(_has_ident(thread, work, over) for _ in range(16))
    finally:
        over.set()


def _has_ident(thread: int, work: Callable[[], object], over: threading.Event) -> bool:
    met, left = [], _thread.allocate_lock()
    left.acquire()

    def run() -> None:
        met.append(threading.get_ident() == thread)
        if met[0]:
            work()
        left.release()
        if not met[0]:
            over.wait(20)

    _thread.start_new_thread(run, ())
    assert left.acquire(timeout=20)
    return met[0]


def _started(kind: str, go: threading.Event, acl: ModuleType) -> int:
    if kind == "_thread":
        return _thread.start_new_thread(go.wait, (20,))
    if kind == "acl.util":
        return int(ok(acl.util.start_thread(lambda _: go.wait(20), [])))
    thread = threading.Thread(target=go.wait, args=(20,))
    thread.start()
    assert thread.ident is not None
    return thread.ident


@pytest.mark.parametrize("kind", ["threading", "acl.util", "_thread"])
def test_acl_process_report_thread_with_reused_ident_inherits_no_subscription(
    kind: str, acl: ModuleType
) -> None:
    seen, codes = list[object](), list[int]()
    stream = subscribed(acl, 1)

    def inherit() -> None:
        # This thread is not the subscribed one: no call waits for it, and it gets no callback.
        codes.append(acl.rt.process_report(1))
        codes.append(acl.rt.set_device(0))
        codes.append(acl.rt.unsubscribe_report(threading.get_ident(), stream))
        own = ok(acl.rt.create_stream())
        ok(acl.rt.subscribe_report(threading.get_ident(), own))
        ok(acl.rt.launch_callback(seen.append, "own", BLOCK, own))
        codes.append(acl.rt.process_report(20_000))
        ok(acl.rt.unsubscribe_report(threading.get_ident(), own))
        ok(acl.rt.destroy_stream(own))

    for _ in range(200):  # most often the next thread gets the ident of an ended one
        go = threading.Event()
        ok(acl.rt.destroy_stream(stream))
        thread = _started(kind, go, acl)
        stream = subscribed(acl, thread)
        ok(acl.rt.launch_callback(seen.append, "another's", BLOCK, stream))
        go.set()
        while thread in sys._current_frames():
            os.sched_yield()
        if _same_ident(thread, inherit):
            break
    else:
        pytest.fail("no thread got the ident of one that had ended")
    assert (codes, seen) == ([107012, 0, 0, 0], ["own"])
    ok(acl.rt.destroy_stream(stream))


def test_acl_destroy_stream_subscribed_ident_reused_by_other_thread_returns_0(acl: ModuleType) -> None:
    stream = subscribed(acl, 1)
    codes = list[int]()

    def destroy() -> None:
        ok(acl.rt.set_device(0))
        codes.append(in_thread(_destroy, acl, stream))

    for _ in range(200):
        go = threading.Event()
        ok(acl.rt.destroy_stream(stream))
        thread = _started("_thread", go, acl)
        stream = subscribed(acl, thread)
        ok(acl.rt.launch_callback(print, None, BLOCK, stream))
        go.set()
        while thread in sys._current_frames():
            os.sched_yield()
        if _same_ident(thread, destroy):
            break
    else:
        pytest.fail("no thread got the ident of one that had ended")
    assert codes == [0]


def _destroy(acl: ModuleType, stream: int) -> int:
    ok(acl.rt.set_device(0))
    return int(acl.rt.destroy_stream(stream))


def test_acl_subscribe_report_before_thread_runs_delivers_callback(acl: ModuleType) -> None:
    for _ in range(20):
        start, done = _thread.allocate_lock(), threading.Event()
        codes, seen = list[int](), list[int]()
        start.acquire()

        def serve(start: Any = start, done: threading.Event = done, codes: list[int] = codes) -> None:
            start.acquire()
            codes.append(acl.rt.process_report(20_000))
            done.set()

        thread = _thread.start_new_thread(serve, ())
        stream = subscribed(acl, thread)
        ok(acl.rt.launch_callback(seen.append, 1, BLOCK, stream))
        start.release()
        assert done.wait(20)
        ok(acl.rt.synchronize_stream(stream))
        assert (codes, seen) == ([0], [1])
        ok(acl.rt.unsubscribe_report(thread, stream))
        ok(acl.rt.destroy_stream(stream))
