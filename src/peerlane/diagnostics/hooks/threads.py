"""Order between threads that does not come from device memory, for the event log.

The log has threads and their ends, locks and all that is built on them (conditions, events, semaphores, barriers,
queues, executors), and calls that threads pass to event loops of asyncio.  Objects from before the log's start are
not logged.  :mod:`~peerlane.diagnostics.hooks.processes` does the same for processes.
"""

from __future__ import annotations

import functools
import itertools
import os
import queue
import select
import socket
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from peerlane import _core
from peerlane.diagnostics.hooks import polls, processes
from peerlane.diagnostics.hooks.wrappers import frames_hidden, hide_frames
from peerlane.diagnostics.log import event_log
from peerlane.diagnostics.log.event_log import forget, post, take

_numbers = itertools.count(1)
_installed = False


class Lock:
    """A lock whose holders the log orders one after the other; a plain lock where the log does not need that.

    It takes the place of ``threading.Lock``: it is pickled by that name, and is a type where that is one.
    """

    __slots__ = ("__weakref__", "_key", "_lock")
    __module__ = "threading"

    _key: event_log.Key
    _lock: Any
    _make: Any = staticmethod(threading.Lock)
    _type: Any = None  # of its objects, where that is another one

    def __new__(cls) -> Any:
        return cls.logged() if event_log.active and _core.log_wanted() and not _is_own(1) else cls._make()

    @classmethod
    def logged(cls) -> Any:
        """Return a lock that is logged."""
        self = object.__new__(cls._type or cls)
        self._lock = cls._make()
        self._key = 0, next(_numbers)
        return self

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        try:
            got: bool = self._lock.acquire(blocking, timeout)
        except BaseException as error:
            hide_frames(error)
            raise
        if got:
            take(self._key, 0)
        return got

    def release(self) -> None:
        post(self._key)
        try:
            self._lock.release()
        except BaseException as error:
            hide_frames(error)
            raise

    def locked(self) -> bool:
        held: bool = self._lock.locked()
        return held

    def __del__(self, is_too_late: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_too_late() and event_log.active:
            forget(self._key)

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        try:
            self.release()
        except BaseException as error:
            hide_frames(error)
            raise

    acquire_lock, release_lock, locked_lock = acquire, release, locked

    def _at_fork_reinit(self) -> None:
        self._lock._at_fork_reinit()

    def __repr__(self) -> str:
        return repr(self._lock)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._lock.__reduce_ex__(protocol)  # raises: a lock is neither copied nor pickled

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._lock)  # for isinstance with the type of locks made before the log began


if sys.version_info < (3, 13):

    class _TypeOfLocks(Lock):
        """The type of locks; it creates none where ``threading.Lock`` is a function."""

        __slots__ = ()
        __module__ = "_thread"

        def __new__(cls) -> Any:
            raise TypeError("cannot create '_thread.lock' instances")

    _TypeOfLocks.__name__ = _TypeOfLocks.__qualname__ = "lock"
    Lock._type = _TypeOfLocks


class RLock(Lock):
    """A logged lock that its holder can take again."""

    __slots__ = ()
    _type = None
    __module__ = "_thread"  # trio refuses locks of another module

    _make: Any = staticmethod(threading.RLock)

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


def make_rlock() -> Any:
    """Return a lock that its holder can take again; like ``threading.RLock`` a function, pickled by that name."""
    return RLock.logged() if event_log.active and not _is_own(1) else RLock._make()


make_rlock.__module__, make_rlock.__name__, make_rlock.__qualname__ = "threading", "RLock", "RLock"


class SimpleQueue(queue.SimpleQueue):  # type: ignore[type-arg]
    """A queue that logs, with each item, that what its thread did before the put came before.

    As the plain one, it can be used by a destructor or a signal handler that interrupts its own methods.
    """

    __module__ = "queue"

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        key = (0, next(_numbers)) if event_log.active else None
        if key:
            post(key)
        super().put((key, item), block, timeout)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        with frames_hidden:
            key, item = super().get(block, timeout)
        if key:
            take(key, 1)
            forget(key)
        return item

    def put_nowait(self, item: Any) -> None:
        self.put(item)

    def get_nowait(self) -> Any:
        with frames_hidden:
            return self.get(block=False)


def _is_own(depth: int) -> bool:
    """Tell whether peerlane calls, or ``threading`` for a lock of all threads, which orders no two of the program."""
    frame = sys._getframe(depth + 1)
    name = frame.f_globals.get("__name__", "")
    return isinstance(name, str) and (
        name.partition(".")[0] == "peerlane"
        or (name == "threading" and frame.f_code.co_name == "_after_fork")
    )


def install() -> None:
    """Install all hooks of threads, locks and processes; once, and for good."""
    global _installed
    if _installed:
        return
    _installed = True
    _follow_locks()
    _follow_threads()
    _follow_loops()
    _follow_descriptors()
    _core.ask_for_lines(polls.line)
    processes.follow()


def _follow_locks() -> None:
    threading.Lock, threading.RLock = Lock, make_rlock  # type: ignore[assignment]
    queue.SimpleQueue = SimpleQueue  # type: ignore[misc]


def _follow_threads() -> None:
    plain: Any = threading.Thread
    start, join, is_alive = plain.start, plain.join, plain.is_alive
    # The first and the last method that a thread calls, without a frame of its own around what it runs.
    enter, leave = plain._set_ident, plain._delete

    @functools.wraps(start)
    def begin(self: Any) -> None:
        if event_log.active and _core.log_wanted():
            self._peerlane_number = number = next(_numbers)
            weakref.finalize(self, forget, (2, number)).atexit = False
            post((1, number))
        with frames_hidden:
            start(self)

    @functools.wraps(enter)
    def entered(self: Any) -> None:
        enter(self)
        number = getattr(self, "_peerlane_number", 0)
        if number and event_log.active:
            event_log.add_name(thread=threading.get_native_id(), name=self.name)
            take((1, number), 1)
            forget((1, number))

    @functools.wraps(leave)
    def left(self: Any) -> None:
        number = getattr(self, "_peerlane_number", 0)
        if number and event_log.active:
            post((2, number))
        leave(self)

    @functools.wraps(join)
    def wait(self: Any, timeout: float | None = None) -> None:
        with frames_hidden:
            join(self, timeout)
        ended(self, is_alive(self))

    @functools.wraps(is_alive)
    def lives(self: Any) -> bool:
        return ended(self, is_alive(self))

    def ended(self: Any, alive: bool) -> bool:
        number = getattr(self, "_peerlane_number", 0)
        if number and not alive and event_log.active:
            take((2, number), 1)
        return alive

    plain.start, plain._set_ident, plain._delete, plain.join, plain.is_alive = (
        begin,
        entered,
        left,
        wait,
        lives,
    )


def _follow_loops() -> None:
    """Follow the loops of asyncio once a program has any: a loop first creates a pair of sockets."""
    plain = socket.socketpair

    @functools.wraps(plain)
    def pair(*args: Any, **kwargs: Any) -> Any:
        follow()
        with frames_hidden:
            return plain(*args, **kwargs)

    @functools.cache  # the first loop is enough
    def follow_calls(loop: Any) -> None:
        give = loop.call_soon_threadsafe

        @functools.wraps(give)
        def call_soon_threadsafe(self: Any, callback: Any, *args: Any, context: Any = None) -> Any:
            with frames_hidden:
                if event_log.active:
                    give(self, _after_this())
                handle = give(self, callback, *args, context=context)
            if creation := getattr(handle, "_source_traceback", None):  # in debug mode, and up to this frame
                del creation[-1]
            return handle

        loop.call_soon_threadsafe = call_soon_threadsafe

    def follow() -> None:
        if base := sys.modules.get("asyncio.base_events"):
            follow_calls(base.BaseEventLoop)

    follow()
    socket.socketpair = pair


def _follow_descriptors() -> None:
    """Log, when a wait for an event's descriptor has returned, that the event's record is over."""
    reads = [os.read] + ([os.eventfd_read] if hasattr(os, "eventfd_read") else [])
    _core.follow_readiness(select.select, [type(select.poll()).poll, select.epoll.poll], reads)


def _after_this() -> Callable[[], None]:
    """Return a call which logs that what this thread has done by now came before; the loop runs it first."""
    key = 0, next(_numbers)
    post(key)

    def take_post() -> None:
        take(key, 1)

    weakref.finalize(take_post, forget, key).atexit = False
    return take_post
