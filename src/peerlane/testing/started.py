"""Processes that a test started: those that still run after it, and the lines that started them."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import multiprocessing.process
import os
import select
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peerlane.diagnostics import call_site
from peerlane.diagnostics.call_site import Site
from peerlane.support.processes import start_time
from peerlane.testing.carried import carry
from peerlane.testing.pools import Pools
from peerlane.testing.procs import KILL_SECONDS, SETTLE_SECONDS

_STARTERS = frozenset({"subprocess", "multiprocessing", "concurrent", "asyncio"})
_FORKS = ("fork", "forkpty", "posix_spawn", "posix_spawnp")
_LONGEST_COMMAND = 100
_PROC = Path("/proc")
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_START_SECONDS = 5.0  # another thread may take this long to start a process
_PAUSE = 0.005
_HAS_CHILDREN = Path("/proc/thread-self/children").exists()  # some kernels lack it


_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class LeftProcess:
    """A process that still runs: its pid, its command line, and the line that started it, if that is known."""

    pid: int
    command: str
    site: Site | None


@dataclass(frozen=True, slots=True)
class _StartRecord:
    began: int  # pids are reused
    site: Site | None
    owner: Callable[[], Any]
    is_others: bool
    pool: Callable[[], Any]


class StartedProcesses:
    """Notes the processes that this process starts between ``begin`` and ``end``, and where.

    It sees starts by ``subprocess``, ``multiprocessing``, modules that use these, and ``os.fork`` and its like.  A
    child that was started otherwise is found too, but without its line; so is a process that a child left behind,
    because this process adopts orphans meanwhile.  Not noted are helpers of ``multiprocessing`` that outlive the
    processes they serve, and workers of a pool that was made before or in :meth:`for_others`.
    """

    def __init__(self) -> None:
        self._records: dict[int, _StartRecord] = {}
        self._before: set[tuple[int, int]] = set()
        self._began = 0
        self._pools = Pools(_STARTERS)
        self._starting: set[object] = set()  # starts by pools and for others that are under way
        self._exit = contextlib.ExitStack()
        self._pid = os.getpid()

    def begin(self) -> None:
        """Begin to note; children that run already are ignored."""
        self._before = {(pid, start_time(pid)) for pid in _children(os.getpid())}
        self._began = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
        self._adopt_orphans()
        self._pools.begin()
        self._exit.callback(self._pools.end)
        self._watch(subprocess.Popen, "__init__")
        self._watch(multiprocessing.process.BaseProcess, "start")
        for name in _FORKS:
            self._watch_fork(name)

    def end(self) -> None:
        """Stop noting; idempotent."""
        self._exit.close()
        if self._pid == os.getpid():
            self._reap()

    @contextlib.contextmanager
    def for_others(self) -> Iterator[None]:
        """Do not charge the test with processes that are started inside."""
        known = self._new_children()
        with self._pools.for_others():
            try:
                yield
            finally:
                self._before |= {(pid, start_time(pid)) for pid in self._new_children() - known}

    def left(self) -> list[LeftProcess]:
        """Return the processes that still run after five seconds in which they may end by themselves."""
        deadline = time.monotonic() + SETTLE_SECONDS
        running = _await_end(self._running(), SETTLE_SECONDS)
        while not running and self._pools.replace_workers() and time.monotonic() < deadline:
            time.sleep(_PAUSE)
            running = _await_end(self._running(), 0.0)
        # A process that ended meanwhile may have left children to this process.
        while more := _await_end(self._running() - running, max(0.0, deadline - time.monotonic())):
            running |= more
        running &= self._running()  # a child may have been noted meanwhile as not the test's
        return [LeftProcess(pid, _command(pid), self._site(pid)) for pid in sorted(running)]

    def kill(self, processes: Iterable[LeftProcess]) -> None:
        """End their pools, kill the processes and their descendants, and let their Python objects learn of it."""
        pids = {each.pid for each in processes}
        if pids:
            executors = {id(pool): pool for pid in pids if (pool := self._pool(pid)) is not None}
            self._pools.finish([each for each in executors.values() if isinstance(each, Executor)])
        deadline = time.monotonic() + KILL_SECONDS
        while pids and time.monotonic() < deadline:
            pids = _await_end(pids | _descendants(pids), 0.0)
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            pids = _await_end(pids, 0.1) | (self._running() if self._pid == os.getpid() else set())
            pids = _await_end(pids, 0.0)
        for record in list(self._records.values()):
            owner = record.owner()
            if isinstance(owner, subprocess.Popen):
                owner.poll()
            elif owner is not None and owner._popen is not None:
                _learn_end(owner, deadline)

    def _watch(self, owner: type, name: str) -> None:
        original: Callable[..., None] = getattr(owner, name)

        @functools.wraps(original)
        def start(process: Any, *args: Any, **options: Any) -> None:
            carried = carry(process) if isinstance(process, multiprocessing.process.BaseProcess) else None
            with self._noting() as note:
                try:
                    original(process, *args, **options)
                finally:
                    if carried is not None:
                        carried()
                note(process.pid, weakref.ref(process))

        setattr(owner, name, start)
        self._exit.callback(setattr, owner, name, original)

    def _watch_fork(self, name: str) -> None:
        original: Callable[..., Any] = getattr(os, name)

        @functools.wraps(original)
        def start(*args: Any, **options: Any) -> Any:
            with self._noting() as note:
                process = original(*args, **options)
                pid = process[0] if isinstance(process, tuple) else process
                if pid:
                    note(pid, lambda: None)
            return process

        setattr(os, name, start)
        self._exit.callback(setattr, os, name, original)

    @contextlib.contextmanager
    def _noting(self) -> Iterator[Callable[[int, Callable[[], Any]], None]]:
        is_others, pool = self._pools.starter()
        pools = weakref.ref(pool) if pool is not None else lambda: None
        token = object()

        def note(pid: int, owner: Callable[[], Any]) -> None:
            site = self._pools.site(pool) if pool is not None else call_site.call_site(_STARTERS)
            self._records[pid] = _StartRecord(start_time(pid), site, owner, is_others, pools)

        if is_others or pool is not None:
            self._starting.add(token)
        try:
            yield note
        finally:
            self._starting.discard(token)

    def _site(self, pid: int) -> Site | None:
        record = self._records.get(pid)
        return record.site if record is not None else None

    def _pool(self, pid: int) -> object:
        record = self._records.get(pid)
        return record.pool() if record is not None else None

    def _running(self) -> set[int]:
        deadline = time.monotonic() + _START_SECONDS
        while self._starting and time.monotonic() < deadline:
            time.sleep(_PAUSE)
        children = self._new_children() - self._started_before_begin()
        records = {pid: each for pid, each in list(self._records.items()) if start_time(pid) == each.began}
        others = {pid for pid, each in records.items() if each.is_others}
        return (records.keys() | children) - others - _helpers()

    def _new_children(self) -> set[int]:
        """Return the children that were not there before; an adopted orphan older than ``begin`` does not count."""
        started = {(pid, start_time(pid)) for pid in _children(os.getpid())} - self._before
        return {pid for pid, began in started if began >= self._began}

    def _started_before_begin(self) -> set[int]:
        """Return the processes of ``multiprocessing`` whose start was under way when :meth:`begin` was called.

        A pool's thread starts workers at any time.  If their status were reaped, the pool would wait for it for ever.
        """
        started = {each.pid for each in list(multiprocessing.process._children)}  # type: ignore[attr-defined]
        return started - self._records.keys() - {None}

    def _adopt_orphans(self) -> None:
        before = ctypes.c_int()
        if _libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0) != 0 or before.value:
            return
        if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0:
            self._exit.callback(_libc.prctl, _PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)

    def _reap(self) -> None:
        """Reap adopted children that have ended, because nothing else waits for them."""
        known = (
            {pid for pid, _ in self._before}
            | self._records.keys()
            | self._started_before_begin()
            | _helpers()
        )
        for pid in _children(os.getpid()) - known:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _learn_end(process: multiprocessing.process.BaseProcess, deadline: float) -> None:
    """Wait until ``process`` knows its end: a thread of its executor may have the status, and not noted it yet."""
    process.join(0)
    while process.exitcode is None and start_time(process.pid or 0) == 0 and time.monotonic() < deadline:
        time.sleep(_PAUSE)


def _helpers() -> set[int]:
    tracker = sys.modules.get("multiprocessing.resource_tracker")
    server = sys.modules.get("multiprocessing.forkserver")
    return {
        getattr(getattr(tracker, "_resource_tracker", None), "_pid", None) or 0,
        getattr(getattr(server, "_forkserver", None), "_forkserver_pid", None) or 0,
    }


def _await_end(pids: Iterable[int], seconds: float) -> set[int]:
    """Return the processes that still run after so many seconds."""
    deadline = time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        running: dict[int, int] = {}
        poll = select.poll()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                stack.callback(os.close, descriptor)
                poll.register(descriptor, select.POLLIN)
                running[descriptor] = pid
        while running:
            left = max(0.0, deadline - time.monotonic())
            ended = poll.poll(left * 1000)
            for descriptor, _ in ended:
                poll.unregister(descriptor)
                del running[descriptor]
            if not ended and left <= 0:
                break
        return set(running.values())


def _children(pid: int) -> set[int]:
    """Return the children of a process, including ended ones that were not waited for."""
    if not _HAS_CHILDREN:
        return {child for child, parent in _parents() if parent == pid}
    descendants: set[int] = set()
    with contextlib.suppress(OSError):  # it has ended
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - this is done twice a test: no Path
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:  # noqa: PTH123
                descendants.update(map(int, file.read().split()))
    return descendants


def _parents() -> Iterable[tuple[int, int]]:
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                rest = (entry / "stat").read_text(errors="replace").rpartition(")")[2]
                yield int(entry.name), int(rest.split()[1])


def _descendants(pids: Iterable[int]) -> set[int]:
    descendants: set[int] = set()
    level = set(pids)
    while level := {child for pid in level for child in _children(pid)} - descendants:
        descendants |= level
    return descendants


def _command(pid: int) -> str:
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return ""
    text = " ".join(word.decode(errors="backslashreplace") for word in words)
    return text if len(text) <= _LONGEST_COMMAND else text[:_LONGEST_COMMAND] + "..."
