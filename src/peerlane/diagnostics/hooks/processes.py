"""Order between processes that does not come from device memory, for the event log.

The log has child processes and their ends, however they are started; the semaphores of ``multiprocessing``, and all
that is built on them (locks, conditions, events, barriers); its pipes, and all that is built on them (queues, pools,
executors).  `peerlane.diagnostics.hooks.zeromq` has the messages of ZeroMQ, and `peerlane.diagnostics.hooks.ipc` the
rest.
"""

from __future__ import annotations

import _thread
import collections
import functools
import gc
import itertools
import multiprocessing.connection
import multiprocessing.forkserver
import multiprocessing.popen_fork
import multiprocessing.popen_forkserver
import multiprocessing.process
import multiprocessing.queues
import multiprocessing.reduction
import multiprocessing.synchronize
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from peerlane.diagnostics.hooks import elf_imports, ipc, zeromq
from peerlane.diagnostics.hooks.wrappers import after, frames_hidden
from peerlane.diagnostics.log import event_log
from peerlane.diagnostics.log.event_log import Key, forget, key_of, post, take, take_end, take_next

_numbers = itertools.count(1)
_forked: Key = 0, 0


def follow() -> None:
    """Install the hooks; once, and for good."""
    _follow_forks()
    _follow_children()
    _follow_ends()
    _follow_semaphores()
    _follow_pipes()
    _follow_queues()
    zeromq.follow()
    ipc.follow()


def _is_started_by(part: str) -> bool:
    """Tell whether a module of ``multiprocessing`` started this interpreter, by its command line.

    ``multiprocessing`` sets the parent process only when what the child was sent is imported.
    """
    return any(word.startswith(f"from multiprocessing.{part}") for word in sys.orig_argv)


def _has_run() -> bool:
    """Tell whether anything of the program may have run: nothing has while Python starts."""
    frame = sys._getframe()
    while frame.f_back:
        frame = frame.f_back
    return frame.f_globals.get("__name__") == "__main__"


def _unique(*parts: object) -> Key:
    """Return a new key, which no other object of any process has."""
    return key_of(*parts, os.getpid(), time.monotonic_ns(), next(_numbers))


def _follow_forks() -> None:
    def before() -> None:
        global _forked
        if event_log.active:
            _forked = _unique("fork")
            post(_forked)

    def in_child() -> None:
        if event_log.active:
            take(_forked, 1)
            forget(_forked)
            if _is_started_by("forkserver") and multiprocessing.parent_process() is None:
                take(key_of("child", os.getpid()), 1)  # another process asked for it
            post(key_of("child", os.getpid()))  # of the program that it may become
            ipc.follow_in_child()

    os.register_at_fork(before=before, after_in_child=in_child)


def _follow_children() -> None:
    """Log that what a parent did before it started this process came before, if it did not fork."""
    is_of_python = _is_started_by("")
    if not is_of_python or _has_run():
        event_log.received_before()
    if event_log.is_logged(os.getppid()) or is_of_python:
        # Native code follows parents in C: here is what a child that one forked posted before it became this program.
        is_posted = is_of_python or elf_imports.is_python(os.getppid())
        take(key_of("child", os.getpid()), 1 if is_posted else 0)

    def started(pid: int | None) -> None:
        if event_log.active and pid is not None:
            post(key_of("child", pid))

    after(multiprocessing.process.BaseProcess, "start", lambda self, _: started(self.pid))
    after(
        multiprocessing.forkserver.ForkServer, "ensure_running", lambda self, _: started(self._forkserver_pid)
    )
    after(subprocess.Popen, "__init__", lambda self, _: started(self.pid))
    for name in ("posix_spawn", "posix_spawnp"):
        after(os, name, lambda *words: started(words[-1]))


def _follow_ends() -> None:
    """Log, when a wait for another process has returned, that all that process did came before."""

    def over(process: Any, _: object) -> None:
        if event_log.active and process.returncode is not None:
            take_end(process.pid)

    def waited(*words: Any) -> None:
        pid, status, *_ = words[-1]
        if event_log.active and pid and (os.WIFEXITED(status) or os.WIFSIGNALED(status)):
            take_end(pid)

    def child_ended(ended: Any) -> None:
        if (
            event_log.active
            and ended is not None
            and ended.si_code in (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED)
        ):
            take_end(ended.si_pid)

    for kind in (multiprocessing.popen_fork.Popen, multiprocessing.popen_forkserver.Popen):
        after(kind, "poll", over)
    for name in ("wait", "poll"):
        after(subprocess.Popen, name, over)
    for name in ("wait", "wait3", "wait4", "waitpid"):
        after(os, name, waited)
    after(os, "waitid", lambda *words: child_ended(words[-1]))
    _follow_sentinels()


def _follow_sentinels() -> None:
    """Do the same for waits for the sentinel of a process, which is a connection."""
    connection: Any = multiprocessing.connection

    class Selector(connection._WaitSelector):  # type: ignore[misc]
        def select(self, timeout: float | None = None) -> Any:
            with event_log.quiet():
                ready = super().select(timeout)
            if event_log.active:
                sentinels = {key.fileobj for key, _ in ready}
                for child in list(multiprocessing.process._children):  # type: ignore[attr-defined]
                    if (started := child._popen) is not None and started.sentinel in sentinels:
                        take_end(started.pid)
            return ready

    connection._WaitSelector = Selector


def _follow_semaphores() -> None:
    synchronize: Any = multiprocessing.synchronize
    plain = synchronize.SemLock
    make, make_methods = plain.__init__, plain._make_methods

    @functools.wraps(make)
    def begin(self: Any, kind: int, value: int, maxvalue: int, *, ctx: Any) -> None:
        make(self, kind, value, maxvalue, ctx=ctx)
        if event_log.active and value:
            post(self._peerlane_key, free=value)

    @functools.wraps(make_methods)
    def make_logged_methods(self: Any) -> None:
        make_methods(self)
        lock = self._semlock
        # A name is known to all processes; without one, only children have the semaphore.
        self._peerlane_key = key = key_of("semaphore", lock.name) if lock.name else _unique("semaphore")
        is_recursive = lock.kind == synchronize.RECURSIVE_MUTEX
        has_value = isinstance(self, synchronize.Semaphore)

        def is_held_anew() -> bool:
            return bool(event_log.active) and not (is_recursive and lock._count() > 1)

        shown_by = 0

        def shows() -> None:  # before the value changes, which others may see at once
            nonlocal shown_by
            if has_value and event_log.active and shown_by != os.getpid():
                shown_by = os.getpid()
                event_log.shows_semaphores()

        def took() -> None:
            if is_held_anew():
                take_next(key)

        def gives() -> None:
            if is_held_anew():
                post(key)
                shows()

        def acquire(block: bool = True, timeout: float | None = None) -> bool:
            shows()
            with frames_hidden, event_log.quiet():
                got: bool = lock.acquire(block, timeout)
            if got:
                took()
            return got

        def release() -> None:
            gives()
            with frames_hidden, event_log.quiet():
                lock.release()

        self.acquire, self.release = acquire, release
        self._peerlane_shows, self._peerlane_took, self._peerlane_gives = shows, took, gives

    ask = synchronize.Semaphore.get_value

    @functools.wraps(ask)
    def get_value(self: Any) -> Any:
        value = ask(self)
        if event_log.active:
            event_log.saw_semaphore()
        return value

    synchronize.Semaphore.get_value = get_value
    plain.__init__, plain._make_methods = begin, make_logged_methods
    # For a lock that another thread is creating just now.
    plain._peerlane_shows = plain._peerlane_took = plain._peerlane_gives = staticmethod(lambda: None)
    enter, leave = plain.__enter__, plain.__exit__

    # Their own frames stay in tracebacks, as without the log.
    @functools.wraps(enter)
    def logged_enter(self: Any) -> bool:
        self._peerlane_shows()
        with frames_hidden, event_log.quiet():
            got: bool = enter(self)
        self._peerlane_took()
        return got

    @functools.wraps(leave)
    def logged_leave(self: Any, *raised: object) -> None:
        self._peerlane_gives()
        with frames_hidden, event_log.quiet():
            leave(self, *raised)

    plain.__enter__, plain.__exit__ = logged_enter, logged_leave
    _follow_earlier_semaphores(synchronize)


def _follow_earlier_semaphores(synchronize: Any) -> None:
    """Follow semaphores that a child of ``spawn`` or ``forkserver`` was sent before it imported peerlane."""
    earlier = [
        each
        for each in gc.get_objects()
        if issubclass(type(each), (synchronize.SemLock, synchronize.Condition))
    ]
    for each in earlier:
        if hasattr(each, "_semlock"):
            each._make_methods()
            if each._semlock._count() > 0:
                each._peerlane_took()
    for each in earlier:
        if hasattr(each, "_lock"):  # a condition, which has methods of its lock
            each._make_methods()


def _follow_pipes() -> None:
    """Number the messages of each pipe that this process creates; its ends carry their keys to other processes."""
    connection = multiprocessing.connection
    kind: Any = connection.Connection
    plain, send, receive = connection.Pipe, kind._send_bytes, kind._recv_bytes

    @functools.wraps(plain)
    def pipe(duplex: bool = True) -> Any:
        one: Any
        other: Any
        one, other = plain(duplex)
        if event_log.active:
            there, back = _unique("pipe"), _unique("pipe")
            one.peerlane_keys, other.peerlane_keys = (there, back), (back, there)
        return one, other

    @functools.wraps(send)
    def sent(self: Any, *args: Any) -> None:
        is_ordered = event_log.active and hasattr(self, "peerlane_keys")
        if is_ordered:
            post(self.peerlane_keys[0], is_relay=hasattr(_thread_state, "is_relay"))
        with frames_hidden, event_log.quiet() if is_ordered else nullcontext():
            send(self, *args)

    @functools.wraps(receive)
    def received(self: Any, *args: Any) -> Any:
        is_ordered = event_log.active and hasattr(self, "peerlane_keys")
        with frames_hidden, event_log.quiet() if is_ordered else nullcontext():
            message = receive(self, *args)
        if is_ordered:
            take_next(self.peerlane_keys[1])
        return message

    connection.Pipe = pipe
    kind._send_bytes, kind._recv_bytes = sent, received
    multiprocessing.reduction.register(kind, _reduced)


_thread_state = threading.local()  #: has `is_relay` in the threads of queues


class _Buffer(collections.deque[Any]):
    """What a queue's thread has to send: each message comes after its put, and after nothing that was done since."""

    def append(self, message: Any) -> None:
        key = _unique("put") if event_log.active else None
        if key:
            post(key)
        super().append((key, message))

    def popleft(self) -> Any:
        key, message = super().popleft()
        _thread_state.is_relay = True
        if key:
            take(key, 1)
            forget(key)
        return message


def _follow_queues() -> None:
    kind: Any = multiprocessing.queues.Queue
    reset = kind._reset

    def begin(self: Any, after_fork: bool = False) -> None:
        reset(self, after_fork)
        # A logged lock would order the sending thread after what the process does after the put, such as its end.
        self._notempty = threading.Condition(_thread.allocate_lock())
        self._buffer = _Buffer()

    kind._reset = begin


def _reduced(end: Any) -> Any:
    connection: Any = multiprocessing.connection
    rebuild, args = connection.reduce_connection(end)
    keys = getattr(end, "peerlane_keys", None)
    return (_rebuilt, (keys, rebuild, args)) if keys else (rebuild, args)


def _rebuilt(keys: tuple[Key, Key], rebuild: Callable[..., Any], args: Any) -> Any:
    end = rebuild(*args)
    end.peerlane_keys = keys
    return end
