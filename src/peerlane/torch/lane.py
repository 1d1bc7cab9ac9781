"""Lanes: calls that run one after the other."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeAlias

from peerlane.diagnostics.call_site import call_site

Call: TypeAlias = "Callable[[], Any]"


class Lane:
    """Runs calls in their order: in the caller's thread if it is idle, else in a thread of its own.

    The thread starts with the first call that is queued.  It is a daemon that waits without a time-out while it has
    nothing to do, because such a thread does not hide a deadlock (``docs/design/ranks.md``).  Its name shows the call
    that it runs, and the program's line that queued the call.
    """

    def __init__(self) -> None:
        self._calls: deque[tuple[Future[Any], str, Call]] = deque()
        self._lock = threading.Lock()  # taken directly where it matters: a condition's own methods are Python
        self._changed = threading.Condition(self._lock)
        self._is_busy = self._is_closed = False
        self._thread: threading.Thread | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no call is queued or under way."""
        with self._changed:
            return not self._is_busy and not self._calls

    def run(self, name: str, call: Call) -> Any:
        """Run a call after the queued ones, and return its result; the name is for texts."""
        if not self._taken():
            return self.submit(f"{name} of {call_site()}", call).result()
        try:
            return call()
        finally:
            self._release()

    def run_if(self, would_end: Callable[[], bool], call: Call) -> bool:
        """Run a call in this thread if nothing is queued and it would end at once; return whether it ran."""
        if not self._taken():
            return False
        try:
            if not would_end():
                return False
            call()
            return True
        finally:
            self._release()

    def _taken(self) -> bool:
        """Keep the lane's thread from calls, if none is queued or under way."""
        with self._lock:
            is_idle = not self._is_busy and not self._calls
            self._is_busy |= is_idle
        return is_idle

    def _release(self) -> None:
        with self._lock:
            self._is_busy = False
            self._changed.notify_all()

    def submit(self, thread_name: str, call: Call, future: Future[Any] | None = None) -> Future[Any]:
        """Queue a call, and return what ends with it; the name of the thread shows it while the call runs."""
        future = Future() if future is None else future
        with self._changed:
            self._calls.append((future, thread_name, call))
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return future

    def finish(self, timeout: float) -> None:
        """Wait until all calls are over, and let the thread end."""
        with self._changed:
            self._changed.wait_for(lambda: not self._calls and not self._is_busy, timeout)
        self.close()

    def close(self) -> None:
        """Let the thread end after the calls that are queued."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _serve(self) -> None:
        while True:
            with self._changed:
                while self._is_busy or not self._calls:
                    if self._is_closed and not self._calls:
                        return
                    self._changed.wait()
                future, thread_name, call = self._calls.popleft()
                self._is_busy = True
            threading.current_thread().name = thread_name
            result = failure = None
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - whoever waits for the call gets it
                failure = error
            self._release()  # first: who waits for this call may run the next one itself
            if failure is None:
                future.set_result(result)
            else:
                future.set_exception(failure)
            del future, call, result, failure  # a thread that waits must not keep tensors
