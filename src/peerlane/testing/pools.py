"""Process pools: notes which pools a test made, and ends those that it left.

A pool starts workers at any time, from its own thread: they belong to the test that made the pool.  Killing workers
of a pool that goes on is dangerous: an idle worker holds a lock that the end of the pool waits for, and the pool
starts other workers in their place.
"""

from __future__ import annotations

import concurrent.futures.process
import contextlib
import functools
import multiprocessing.pool
import multiprocessing.queues
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.pool import Pool, ThreadPool
from multiprocessing.queues import Queue
from typing import Any

from peerlane.diagnostics import call_site
from peerlane.diagnostics.call_site import Site

_MODULES = frozenset({multiprocessing.pool.__name__, concurrent.futures.process.__name__})
_END_SECONDS = 2.0


class Pools:
    """Notes the process pools and queues that are made between ``begin`` and ``end``.

    Parameters
    ----------
    starters : frozenset of str
        Packages that are skipped when the line that made a pool is looked for.
    """

    def __init__(self, starters: frozenset[str]) -> None:
        self._starters = starters
        self._sites: weakref.WeakKeyDictionary[Any, Site | None] = weakref.WeakKeyDictionary()
        self._queues: weakref.WeakSet[Any] = weakref.WeakSet()
        self._older_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self._pool_of: weakref.WeakKeyDictionary[threading.Thread, Any] = weakref.WeakKeyDictionary()
        self._wider = 0
        self._exit = contextlib.ExitStack()

    def begin(self) -> None:
        """Begin to note; pools that exist already are not the test's."""
        self._older_threads.update(threading.enumerate())
        self._watch(Pool, self._note)
        self._watch(ProcessPoolExecutor, self._note)
        self._watch(Queue, self._queues.add)

    def end(self) -> None:
        """Stop noting; idempotent."""
        self._exit.close()

    @contextlib.contextmanager
    def for_others(self) -> Iterator[None]:
        """Do not charge the test with pools and processes that are made inside."""
        self._wider += 1
        before = set(threading.enumerate())
        try:
            yield
        finally:
            self._wider -= 1
            self._older_threads.update(set(threading.enumerate()) - before)

    def starter(self) -> tuple[bool, Any]:
        """Tell of a process that is being started whether it is not the test's, and which test's pool it is for."""
        thread = threading.current_thread()
        reference = self._pool_of.get(thread)  # a Pool replaces workers from its own thread
        if reference is not None:
            return False, reference()
        if self._wider:
            return True, None
        frame = sys._getframe(1)
        is_pools = False
        while frame is not None:
            if frame.f_globals.get("__name__") in _MODULES:
                is_pools = True
                pool = frame.f_locals.get("self")
                if isinstance(pool, (Pool, ProcessPoolExecutor)):
                    return (False, pool) if pool in self._sites else (True, None)
            frame = frame.f_back  # type: ignore[assignment]
        return is_pools and thread in self._older_threads, None

    def replace_workers(self) -> bool:
        """Tell whether a ``Pool`` of the test still runs, and so will start a worker if it has none."""
        return any(
            isinstance(each, Pool) and getattr(each, "_state", "") == "RUN" for each in self._of_processes()
        )

    def site(self, pool: object) -> Site | None:
        """Return the line on which the test made a pool."""
        return self._sites.get(pool)

    def finish(self, executors: list[Any]) -> None:
        """End each ``Pool`` of the test and these executors; after two seconds, give up those that do not end.

        Their workers may be killed then: an ended pool starts no others, and Python's end does not wait for it.
        """
        ends: list[Callable[[], object]] = [
            each.terminate for each in self._of_processes() if isinstance(each, Pool)
        ]
        ends += (functools.partial(each.shutdown, wait=False, cancel_futures=True) for each in executors)
        for queue in list(self._queues):
            queue.cancel_join_thread()  # else Python's end waits for a killed reader
        # Daemon threads, because a killed worker holds its pool's lock for ever, and terminate() waits for the lock.
        threads = [threading.Thread(target=_quietly, args=(end,), daemon=True) for end in ends]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + _END_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _of_processes(self) -> list[Any]:
        return [each for each in list(self._sites) if not isinstance(each, ThreadPool)]

    def _note(self, pool: Pool | ProcessPoolExecutor) -> None:
        self._sites.setdefault(pool, call_site.call_site(self._starters))

    def _watch(self, owner: type, note: Callable[[Any], object]) -> None:
        original: Callable[..., None] = owner.__init__  # type: ignore[misc]

        @functools.wraps(original)
        def make(pool: Any, *args: Any, **options: Any) -> None:
            is_tests = not self._wider
            if is_tests:
                note(pool)
            before = set(threading.enumerate())
            original(pool, *args, **options)
            for thread in set(threading.enumerate()) - before if is_tests else ():
                self._pool_of.setdefault(thread, weakref.ref(pool))

        owner.__init__ = make  # type: ignore[misc]
        self._exit.callback(setattr, owner, "__init__", original)


def _quietly(end: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):
        end()
