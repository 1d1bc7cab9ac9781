"""The order that processes make outside of device memory, for the event log.

While a log is on, these tell it: child processes and their ends, however they are started; the semaphores of
``multiprocessing``, and all that is made of them (locks, conditions, events, barriers); its pipes, and all that is
made of them (queues, pools, executors).  Of other ways to talk (sockets, pipes of the system, mapped files, shared
memory, and these by functions of a C library) the log has only that they are there.
"""

from __future__ import annotations

import functools
import itertools
import multiprocessing.connection
import multiprocessing.process
import multiprocessing.reduction
import multiprocessing.sharedctypes
import multiprocessing.synchronize
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Container
from typing import Any

from peerlane.diagnostics import event_log
from peerlane.diagnostics.event_log import Key, forget, key_of, post, take, take_end, take_next

_numbers = itertools.count(1)
_forked: Key = 0, 0


def follow() -> None:
    """Let what processes do tell the log; once, and for good."""
    _follow_forks()
    _follow_children()
    _follow_ends()
    _follow_semaphores()
    _follow_pipes()
    _follow_ways_out()


def _unique(*parts: object) -> Key:
    """Return the key of something that this process makes."""
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
            event_log.outside_again()

    os.register_at_fork(before=before, after_in_child=in_child)


def _follow_children() -> None:
    """Let a process that was not forked know what its parent did before it was there."""
    is_of_python = multiprocessing.parent_process() is not None
    if event_log.is_logged(os.getppid()) and not is_of_python:
        event_log.outside("inherited descriptors")
    if event_log.is_logged(os.getppid()) or is_of_python:
        take(key_of("child", os.getpid()), 1)

    def started(pid: int | None) -> None:
        if event_log.active and pid is not None:
            post(key_of("child", pid))

    def opened(self: Any, _: None) -> None:
        started(self.pid)
        _way_out("subprocess", 2)

    _after(multiprocessing.process.BaseProcess, "start", lambda self, _: started(self.pid))
    _after(subprocess.Popen, "__init__", opened)
    for name in ("posix_spawn", "posix_spawnp"):
        _after(os, name, lambda *words: started(words[-1]))


def _follow_ends() -> None:
    """Let a process that waits for the end of another one know all that it did."""

    def over(process: Any, _: object) -> None:
        if event_log.active and process.pid is not None and process.exitcode is not None:
            take_end(process.pid)

    def over_child(process: Any, _: object) -> None:
        if event_log.active and process.returncode is not None:
            take_end(process.pid)

    def waited(*words: Any) -> None:
        pid, status, *_ = words[-1]
        if event_log.active and pid and (os.WIFEXITED(status) or os.WIFSIGNALED(status)):
            take_end(pid)

    for name in ("join", "is_alive"):
        _after(multiprocessing.process.BaseProcess, name, over)
    for name in ("wait", "poll"):
        _after(subprocess.Popen, name, over_child)
    for name in ("wait", "wait3", "wait4", "waitpid"):
        _after(os, name, waited)


def _after(owner: Any, name: str, told: Callable[..., None]) -> None:
    """Have ``told`` called after a function, with its positional arguments and its result."""
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = plain(*args, **kwargs)
        told(*args[:1], result)
        return result

    setattr(owner, name, call)


def _follow_semaphores() -> None:
    synchronize: Any = multiprocessing.synchronize
    plain = synchronize.SemLock
    make, make_methods = plain.__init__, plain._make_methods

    def begin(self: Any, kind: int, value: int, maxvalue: int, *, ctx: Any) -> None:
        make(self, kind, value, maxvalue, ctx=ctx)
        if event_log.active and value:
            post(self._peerlane_key, free=value)

    def tell(self: Any) -> None:
        make_methods(self)
        lock = self._semlock
        # A name is known to all processes; without one, only children have the semaphore.
        self._peerlane_key = key = key_of("semaphore", lock.name) if lock.name else _unique("semaphore")
        is_recursive = lock.kind == synchronize.RECURSIVE_MUTEX

        def acquire(block: bool = True, timeout: float | None = None) -> bool:
            got: bool = lock.acquire(block, timeout)
            if got and event_log.active and not (is_recursive and lock._count() > 1):
                take_next(key)
            return got

        def release() -> None:
            if event_log.active and not (is_recursive and lock._count() > 1):
                post(key)
            lock.release()

        self.acquire, self.release = acquire, release

    plain.__init__, plain._make_methods = begin, tell
    plain.__enter__ = lambda self: self.acquire()
    plain.__exit__ = lambda self, *_: self.release()


def _follow_pipes() -> None:
    """Number the messages of each pipe that this process makes; its ends carry their keys to other processes."""
    connection = multiprocessing.connection
    kind: Any = connection.Connection
    plain, send, receive = connection.Pipe, kind._send_bytes, kind._recv_bytes

    def pipe(duplex: bool = True) -> Any:
        one: Any
        other: Any
        one, other = plain(duplex)
        if event_log.active:
            there, back = _unique("pipe"), _unique("pipe")
            one.peerlane_keys, other.peerlane_keys = (there, back), (back, there)
        return one, other

    def sent(self: Any, *args: Any) -> None:
        if event_log.active and hasattr(self, "peerlane_keys"):
            post(self.peerlane_keys[0])
        send(self, *args)

    def received(self: Any, *args: Any) -> Any:
        message = receive(self, *args)
        if event_log.active and hasattr(self, "peerlane_keys"):
            take_next(self.peerlane_keys[1])
        return message

    connection.Pipe = pipe
    kind._send_bytes, kind._recv_bytes = sent, received
    multiprocessing.reduction.register(kind, _reduced)


def _reduced(end: Any) -> Any:
    connection: Any = multiprocessing.connection
    rebuild, args = connection.reduce_connection(end)
    keys = getattr(end, "peerlane_keys", None)
    return (_rebuilt, (keys, rebuild, args)) if keys else (rebuild, args)


def _rebuilt(keys: tuple[Key, Key], rebuild: Callable[..., Any], args: Any) -> Any:
    end = rebuild(*args)
    end.peerlane_keys = keys
    return end


#: What these make for themselves stays in the process, or the log has its order.
_OF_THEIR_OWN = frozenset({"peerlane", "multiprocessing", "asyncio", "subprocess"})


def _follow_ways_out() -> None:
    for owner, name in ((os, "pipe"), (os, "pipe2"), (socket, "socketpair")):
        _after(owner, name, lambda *_, name=name: _way_out(name, 2, _OF_THEIR_OWN))
    shared: Any = multiprocessing.sharedctypes
    for name in ("RawValue", "RawArray", "rebuild_ctype"):
        _after(shared, name, lambda *_: _way_out("shared memory", 2))
    sys.addaudithook(_audited)


#: Functions of C libraries by which processes tell each other something.
_TALKING = (
    *("socket", "connect", "bind", "accept", "pipe", "mkfifo", "mmap", "shm", "sem_", "semget", "msg", "mq_"),
    *("eventfd", "futex", "syscall", "fork"),
)


def _audited(event: str, about: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.bind"):
        _way_out(event, 1)
    elif event == "mmap.__new__":
        _way_out(event, 1, _OF_THEIR_OWN)
    elif event == "ctypes.dlsym" and str(about[1]).startswith(_TALKING):  # a call of it tells nothing
        depth = 1
        while sys._getframe(depth + 1).f_globals.get("__name__") == "ctypes":
            depth += 1
        _way_out(f"{about[1]} of a C library", depth)


def _way_out(how: str, depth: int, besides: Container[str] = ("peerlane",)) -> None:
    """Note, once for each line, that the process can talk to others without the log's knowledge.

    ``depth`` is that of the caller, whose package is none of ``besides``.
    """
    if event_log.active:
        caller = sys._getframe(depth + 1).f_globals.get("__name__", "")
        if not isinstance(caller, str) or caller.partition(".")[0] not in besides:
            event_log.outside(how)
