"""Proves that this process can only wait, and ends its waits with `Deadlock`.

A waiting thread looks.  A deadlock is reported only if it is proved: every Python thread waits for a stream, or for
such a thread; every native thread sleeps until another thread of the process wakes it; no stream has an operation
that can run; no wait has a time-out of less than 10 s; only this process could make the awaited records; no
signal handler, callback or other process is left that could; and nothing of this changes for a while.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeAlias

from peerlane import _core
from peerlane.diagnostics import call_site
from peerlane.diagnostics.waits import store_waits, stream_waits, value_waits, wait_texts
from peerlane.errors import FailedBefore, ThreadWait, WaitState
from peerlane.support.processes import lives

STEADY_NS = 500_000_000  # how long nothing must have changed
#: The time from the detection of a deadlock until its first process raises.  Meanwhile the other processes can detect
#: it too.  The second time applies while a process that has not detected it lives: the machine may be loaded.
NOTICE_NS, STARVED_NOTICE_NS = 800_000_000, 5_000_000_000
SOON_SECONDS = 2.0  # a wait that ends within this time is left to its time-out
_DEADLOCKS_KEPT = 64
_CALLERS = 3  # of the line at which a thread waits
_STARTERS = frozenset(("threading", "runpy"))  # they call functions of the program
#: Names of peerlane's own threads, which serve others and never record anything.
_SERVING = frozenset(("peerlane callbacks", "peerlane-rendezvous", "peerlane-rendezvous-end"))
#: Names of native threads that serve other processes and never call peerlane; the integration of a library adds them.
serving_natively: set[str] = set()
#: Modules of test runners: their threads and signal handlers run no code of the program, or end it.
_TEST_RUNNERS = frozenset(("execnet", "pytest_timeout"))

_Other: TypeAlias = tuple[int, int]  # a thread, and its CPU time
_Parked: TypeAlias = "tuple[int, int, call_site.Position | None, bool, int, bool]"

#: The deadlocks of this process, by number: text and wait state.
deadlocks: dict[int, tuple[str, WaitState]] = {}

#: Looks whether the ranks of this process's groups can go on; returns True if there are such ranks.
look_at_ranks: Callable[[], bool] | None = None

#: Returns what a failed callback was, and its cause, by its token; the back-end sets it.
of_callback: Callable[[int], tuple[str, object]] | None = None

put_off_losses = _core.put_off_losses  #: keeps waits from failing because of a lost peer, for a second
#: The last failures, with the devices and streams that reported them.
_reported: deque[tuple[int, int, FailedBefore]] = deque(maxlen=4)
_numbers = itertools.count(1)
_looking = threading.Lock()
_last_look: tuple[int, int] = (0, 0)  # the token of the last look, and the time since which it is the same


class NoProgress:
    """The state of this process at a moment at which no thread and no stream of it could go on."""

    def __init__(
        self,
        parked_state: tuple[int, list[tuple[int, int]], list[_Parked]],
        others: tuple[_Other, ...],
        foreign: int,
    ) -> None:
        #: ``native``: native code's token.
        #: ``hosts``: threads, each with the stream that it waits for.
        self.native, self.hosts, parked = parked_state
        #: For each stream that waits for another stream: that one.
        self.marks = {stream: what for stream, _, _, is_notify, what, _ in parked if not is_notify}
        #: For each stream that waits for a notify: (stream, operation, position, True, notify, whether only this
        #: process can record it).
        self.notifies = [each for each in parked if each[3]]
        self.token = hash((self.native, others, foreign))  #: changes when anything happens

    @classmethod
    def now(cls, waiting_elsewhere: Iterable[int] = ()) -> NoProgress | None:
        """Return the present state, None if anything may go on.

        ``waiting_elsewhere`` has the threads that wait for other processes.
        """
        elsewhere = set(waiting_elsewhere)
        native = _core.no_progress(bool(elsewhere))
        if native is None:
            return None
        others = _others({*elsewhere, *(thread for thread, _ in native[1])})
        if others is None:
            return None
        foreign = _core.foreign_threads([*_known_to_python(), *_serving()], "faulthandler" in sys.modules)
        return cls(native, others, foreign) if foreign is not None else None

    def threads(self) -> tuple[ThreadWait, ...]:
        """Return the lines at which the program's threads wait for streams."""
        return tuple(wait_of(thread, stream) for thread, stream in self.hosts)

    def log_in_vain(self, *, others_wait: bool) -> None:
        """Log that the waits for notifies are in vain, unless something has happened since."""
        _core.log_waits_in_vain(self.native, others_wait)

    def end(self, number: int, *, others_wait: bool) -> bool:
        """Let the waits for notifies fail with a kept deadlock; False if something has happened since."""
        return _core.end_waits(self.native, number, others_wait)

    def root(self, stream: int) -> int:
        """Follow the streams that a stream waits for; return the last one."""
        seen = set()
        while stream in self.marks and stream not in seen:
            seen.add(stream)
            stream = self.marks[stream]
        return stream


def may_raise(waited_ns: int, unaware: Collection[int]) -> bool:
    """Tell whether a process may raise a deadlock, ``waited_ns`` after it learnt of it.

    Once it has raised it may end, and a process of the deadlock that is still unaware of it, by its pid, would report
    that loss instead.
    """
    if not unaware or waited_ns > STARVED_NOTICE_NS:
        return True
    return waited_ns > NOTICE_NS and not any(map(lives, unaware))


def keep(text: str, state: WaitState) -> int:
    """Keep a deadlock for the waits that it ends; return its number."""
    number = next(_numbers)
    deadlocks[number] = text, state
    deadlocks.pop(number - _DEADLOCKS_KEPT, None)
    return number


def failed_before() -> tuple[FailedBefore, ...]:
    """Return the failures of streams that no synchronization has reported, then the last others of open streams."""
    unreported = [_failed(each) for each in _core.unreported_failures()]
    open_streams = [failed for device, stream, failed in _reported if _core.is_stream_open(device, stream)]
    return tuple(
        unreported + [each for each in open_streams if replace(each, was_reported=False) not in unreported]
    )


def note_reported(failure: Any) -> None:
    """Note that a synchronization reports a failure of a stream, whose cancelled records a later wait may need."""
    _reported.append((failure[6], failure[1], replace(_failed(failure), was_reported=True)))


def _failed(failure: Any) -> FailedBefore:
    while failure[5] is not None:  # it was cancelled because of this other failure
        failure = failure[5]
    error, stream, operation, kind, token, _, _, position = failure[:8]
    if kind == "callback" and of_callback is not None:
        kind, error = of_callback(token)
    return FailedBefore(
        stream, operation, kind.replace("_", " "), str(error), str(call_site.at(position) or "")
    )


def look() -> None:
    """End the waits of this process if it cannot go on; native code calls this in a waiting thread."""
    if not _looking.acquire(blocking=False):
        return
    try:
        value_waits.report()
        if look_at_ranks is None or not look_at_ranks():
            _look_at_process()
    finally:
        _looking.release()


def _look_at_process() -> None:
    global _last_look
    process = NoProgress.now()
    if (
        process is None
        or not all(each[5] for each in process.notifies)
        or has_handlers()
        or (serving_natively and any(each.what == "value" for each in stream_waits.streams()))
    ):  # a native thread that serves other processes may write memory for them
        _last_look = 0, 0
        return
    now = time.monotonic_ns()
    if _last_look[0] != process.token:
        _last_look = process.token, now
    elif now - _last_look[1] >= STEADY_NS:
        _last_look = 0, 0
        first = process.hosts[0][1]
        state = replace(
            stream_waits.of_stream("never", first), threads=process.threads(), failed=failed_before()
        )
        _core.refuse_waits(process.native, keep(wait_texts.reason("", state), state))


def has_handlers() -> bool:
    """Tell whether a signal may run code of the program, which could record a notify."""
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if not callable(handler) or handler is signal.default_int_handler:
            continue
        module = str(getattr(getattr(handler, "func", handler), "__module__", "")).partition(".")[0]
        if module not in _TEST_RUNNERS and module not in ("asyncio", "peerlane", "pytest_peerlane"):
            return True
    return False


def name_of(thread: int) -> str:
    """Return a thread's name."""
    return next((each.name for each in threading.enumerate() if each.ident == thread), f"thread {thread}")


def wait_of(thread: int, stream: int = 0) -> ThreadWait:
    """Return the line of the program at which a thread waits, if there is one, the call, and its callers."""
    frame, call = _frames().get(thread), ""
    skipped = call_site.passed_through | _STARTERS
    while frame is not None and (call_site.is_own(frame) or call_site.package_of(frame) in skipped):
        # The functions that a program calls keep the name of the call for their errors.
        named = frame.f_locals.get("call")
        call = named if isinstance(named, str) else call
        frame = frame.f_back
    if frame is None:
        return ThreadWait(name_of(thread), "", stream, call)  # a thread of peerlane's own
    line = str(call_site.Site(frame.f_code, frame.f_lasti))
    callers: list[str] = []
    caller = frame.f_back
    while caller is not None and len(callers) < _CALLERS:
        if not call_site.is_own(caller) and call_site.package_of(caller) not in _STARTERS:
            callers.append(str(call_site.Site(caller.f_code, caller.f_lasti)))
        caller = caller.f_back
    return ThreadWait(name_of(thread), line, stream, call, tuple(callers))


def _others(waiting: set[int]) -> tuple[_Other, ...] | None:
    """Return the threads that wait for other threads, with their CPU times; None if a thread may go on.

    ``waiting`` has the threads that wait in peerlane, which run no code of the program but signal handlers.  A thread
    whose CPU time stays the same has not run.
    """
    joining = []
    threads = {each.ident: each for each in threading.enumerate()}
    joins = _joins()
    for ident, frame in _frames().items():
        thread = threads.get(ident)
        if ident in waiting and call_site.is_own(frame):
            continue
        if _serves(thread, frame):
            continue
        join = _join_of(frame, joins)
        if join is None and not (thread is not None and thread.daemon and _is_idle(frame)):
            return None
        timeout = join.f_locals.get("timeout") if join is not None else None
        if isinstance(timeout, (int, float)) and timeout < store_waits.NET_SECONDS:
            return None
        joining.append((ident, time.clock_gettime_ns(time.pthread_getcpuclockid(ident))))
    return tuple(joining)


def _frames() -> dict[int, FrameType]:
    """Return the innermost frame of each thread; of this one that of the caller's caller.

    A variable that refers to its own frame keeps the variables of all callers, also the program's, until the garbage
    collector runs.
    """
    frames = sys._current_frames()
    frames[threading.get_ident()] = sys._getframe(2)
    return frames


def _known_to_python() -> list[int]:
    """Return the kernel's ids of the threads that Python knows.

    The number of a thread's CPU clock has the id; ``Thread.native_id`` is wrong after a fork, or missing.
    """
    return [~(time.pthread_getcpuclockid(ident) >> 3) for ident in sys._current_frames()]


def _serving() -> list[int]:
    """Return the kernel's ids of the native threads that serve other processes."""
    serving = []
    for task in Path("/proc/self/task").iterdir() if serving_natively else ():
        with contextlib.suppress(OSError):  # it has ended
            if (task / "comm").read_text().strip() in serving_natively:
                serving.append(int(task.name))
    return serving


def _serves(thread: threading.Thread | None, frame: FrameType) -> bool:
    """Tell whether a thread runs no code of the program: it is peerlane's or a test runner's."""
    if thread is not None and thread.daemon and thread.name in _SERVING:
        return True
    function = getattr(thread, "function", None)  # a Timer has one
    modules = (frame.f_globals.get("__name__"), getattr(function, "__module__", ""))
    return any(str(each).partition(".")[0] in _TEST_RUNNERS for each in modules)


def _joins() -> set[CodeType]:
    """Return the functions in which a thread waits for the work of other threads."""
    functions = {threading.Thread.join.__code__}
    futures = sys.modules.get("concurrent.futures._base")
    if futures is not None:
        functions |= {futures.Future.result.__code__, futures.Future.exception.__code__}
        functions |= {futures.wait.__code__, futures.as_completed.__code__}
    pool = sys.modules.get("concurrent.futures.thread")
    if pool is not None:
        functions.add(pool._worker.__code__)  # an idle worker
    ending = getattr(threading, "_shutdown", None)
    if ending is not None:
        functions.add(ending.__code__)
    return functions


def _join_of(frame: FrameType | None, joins: set[CodeType]) -> FrameType | None:
    while frame is not None and frame.f_code not in joins and frame.f_globals.get("__name__") == "threading":
        frame = frame.f_back
    return frame if frame is not None and frame.f_code in joins else None


def _is_idle(frame: FrameType) -> bool:
    """Tell whether only another thread can wake a daemon thread, for which no thread waits."""
    return frame.f_code is threading.Condition.wait.__code__ and frame.f_locals.get("timeout") is None


_core.set_wait_hook(look)
