"""A parent writes device memory, and a child that imports peerlane late reads it.

``late_children.py MEANS METHOD [early]``: by ``MEANS`` the child hears, before it imports peerlane, that the parent
has written; ``early`` lets the parent signal before it writes.  With ``argument`` the child hears while its arguments
are unpickled, and with ``unprepared`` it has no hook at Python's start.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from multiprocessing.shared_memory import SharedMemory
from typing import Any

SECONDS = 60


class Delayed:
    """Is unpickled when the word in shared memory is set."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> Any:
        return wait_for_word, (self.name,)


def wait_for_word(name: str) -> None:
    block = SharedMemory(name)
    end = time.monotonic() + SECONDS
    while not block.buf[0]:
        assert time.monotonic() < end
        time.sleep(0.01)
    block.close()


def read(handle: bytes) -> None:
    import peerlane as pl

    with pl.Buffer.open(handle) as memory:
        bytes(memory)


def by_word(handle: bytes, name: str) -> None:
    wait_for_word(name)
    read(handle)


def by_argument(handle: bytes, _: None) -> None:
    read(handle)


def by_event(handle: bytes, written: Any) -> None:
    assert written.wait(SECONDS)
    read(handle)


def by_queue(handle: bytes, written: Any) -> None:
    written.get(timeout=SECONDS)
    written.get(timeout=SECONDS)
    read(handle)


def main(means: str, method: str, mode: str = "right") -> None:
    import peerlane as pl

    workers: Any = multiprocessing.get_context(method)
    word = SharedMemory(create=True, size=64)
    event, queue = workers.Event(), workers.Queue()

    def set_word() -> None:
        word.buf[0] = 1

    cases: dict[str, tuple[Any, Any, Callable[[], object]]] = {
        "word": (by_word, word.name, set_word),
        "unprepared": (by_word, word.name, set_word),
        "argument": (by_argument, Delayed(word.name), set_word),
        "event": (by_event, event, event.set),
        "queue": (by_queue, queue, lambda: queue.put(1)),
    }
    target, argument, signal = cases[means]
    if means == "unprepared":
        del os.environ["PYTHONPATH"]
    with pl.devices()[0].allocate(64) as memory:
        memory.fill(0)
        child = workers.Process(target=target, args=(bytes(memory.export(allow="user")), argument))
        child.start()
        if means == "queue":
            queue.put(0)
        if mode == "early":
            signal()
        memory.fill(7)
        if mode == "right":
            signal()
        child.join(SECONDS)
        assert child.exitcode == 0
    word.close()
    word.unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
