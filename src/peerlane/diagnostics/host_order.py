"""The order that threads and processes make outside of device memory, for the event log.

While a log is on, what Python offers for it tells the log: threads and their ends, locks and all that is made of them
(conditions, events, semaphores, barriers, queues, executors), and child processes.  Objects that were made before the
log began tell nothing.
"""

from __future__ import annotations

import atexit
import itertools
import multiprocessing
import multiprocessing.process
import multiprocessing.util
import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from peerlane.diagnostics import event_log
from peerlane.diagnostics.event_log import forget, key_of, post, take

_numbers = itertools.count(1)
_installed = False


class _Lock:
    """A lock whose holders come one after the other for the log."""

    __slots__ = ("__weakref__", "_key", "_lock")

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._key = 0, next(_numbers)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        got: bool = self._lock.acquire(blocking, timeout)
        if got:
            take(self._key, 0)
        return got

    def release(self) -> None:
        post(self._key)
        self._lock.release()

    def locked(self) -> bool:
        held: bool = self._lock.locked()
        return held

    def __del__(self, is_too_late: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_too_late() and event_log.active:
            forget(self._key)

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()

    acquire_lock, release_lock, locked_lock = acquire, release, locked

    def _at_fork_reinit(self) -> None:
        self._lock._at_fork_reinit()

    def __repr__(self) -> str:
        return repr(self._lock)


class _RLock(_Lock):
    """The same of a lock that its holder can take again."""

    __slots__ = ()

    # What threading.Condition asks of its lock.
    def _is_owned(self) -> bool:
        owned: bool = self._lock._is_owned()
        return owned

    # What multiprocessing's resource tracker asks of its lock.
    def _recursion_count(self) -> int:
        count: int = self._lock._recursion_count()
        return count

    def _release_save(self) -> Any:
        post(self._key)
        return self._lock._release_save()

    def _acquire_restore(self, state: Any) -> None:
        self._lock._acquire_restore(state)
        take(self._key, 0)


def _is_own(depth: int) -> bool:
    """Tell whether peerlane calls, or ``threading`` for a lock of all threads, which says nothing of any two."""
    frame = sys._getframe(depth + 1)
    name = frame.f_globals.get("__name__", "")
    return isinstance(name, str) and (
        name.partition(".")[0] == "peerlane"
        or (name == "threading" and frame.f_code.co_name == "_after_fork")
    )


def install() -> None:
    """Let threads, locks and processes tell the log; once, and for good."""
    global _installed
    if _installed:
        return
    _installed = True
    _follow_locks()
    _follow_threads()
    _follow_processes()
    sys.addaudithook(_audited)


def _follow_locks() -> None:
    make_lock, make_rlock = threading.Lock, threading.RLock

    def lock() -> Any:
        return make_lock() if not event_log.active or _is_own(1) else _Lock(make_lock())

    def rlock() -> Any:
        return make_rlock() if not event_log.active or _is_own(1) else _RLock(make_rlock())

    threading.Lock, threading.RLock = lock, rlock  # type: ignore[assignment]  # they are functions there, too
    queue.SimpleQueue = queue._PySimpleQueue  # type: ignore[attr-defined, misc]  # made of a lock, as the one in C is not


def _follow_threads() -> None:
    plain = threading.Thread
    start, inner, join, is_alive = plain.start, plain._bootstrap_inner, plain.join, plain.is_alive  # type: ignore[attr-defined]

    def begin(self: Any) -> None:
        if event_log.active:
            self._peerlane_number = number = next(_numbers)
            weakref.finalize(self, forget, (2, number)).atexit = False
            post((1, number))
        start(self)

    def run(self: Any) -> None:
        number = getattr(self, "_peerlane_number", 0)
        if number and event_log.active:
            event_log.name(thread=threading.get_native_id(), name=self.name)
            take((1, number), 1)
            forget((1, number))
        try:
            inner(self)
        finally:
            if number and event_log.active:
                post((2, number))

    def wait(self: Any, timeout: float | None = None) -> None:
        join(self, timeout)
        ended(self, is_alive(self))

    def ended(self: Any, lives: bool) -> bool:
        number = getattr(self, "_peerlane_number", 0)
        if number and not lives and event_log.active:
            take((2, number), 1)
        return lives

    plain.start, plain._bootstrap_inner, plain.join = begin, run, wait  # type: ignore[method-assign, attr-defined]
    plain.is_alive = lambda self: ended(self, is_alive(self))  # type: ignore[method-assign]


_forks = itertools.count(1)
_forked = 0, 0


def _follow_processes() -> None:
    def before() -> None:
        global _forked
        if event_log.active:
            _forked = key_of("fork", os.getpid(), next(_forks))
            post(_forked)

    def in_child() -> None:
        if event_log.active:
            take(_forked, 1)
            forget(_forked)

    os.register_at_fork(before=before, after_in_child=in_child)
    atexit.register(_tell_end)
    # Their children leave by os._exit.
    multiprocessing.util.register_after_fork(_tell_end, _tell_end_of_child)
    if multiprocessing.parent_process() is not None:
        if multiprocessing.get_start_method(allow_none=True) != "fork":
            take(key_of("child", os.getpid()), 1)
        _tell_end_of_child()

    plain = multiprocessing.process.BaseProcess
    start, join = plain.start, plain.join

    def begin(self: Any) -> None:
        start(self)
        if event_log.active and self.pid is not None:
            post(key_of("child", self.pid))

    def wait(self: Any, timeout: float | None = None) -> None:
        join(self, timeout)
        if event_log.active and self.exitcode is not None:
            take(key_of("end", self.pid), 1)

    plain.start, plain.join = begin, wait  # type: ignore[method-assign]


def _tell_end_of_child(*_: object) -> None:
    multiprocessing.util.Finalize(None, _tell_end, exitpriority=-1000)


def _tell_end() -> None:
    if event_log.active:
        post(key_of("end", os.getpid()))


_WAYS_OUT = frozenset({"socket.connect", "socket.bind", "subprocess.Popen", "mmap.__new__"})


def _audited(event: str, given: tuple[Any, ...]) -> None:
    """Note how the process can talk to others without the log's knowledge, once for each line."""
    if event not in _WAYS_OUT or not event_log.active or _is_own(1):
        return
    if event == "mmap.__new__" and given[0] == -1:
        return
    event_log.outside(event)
