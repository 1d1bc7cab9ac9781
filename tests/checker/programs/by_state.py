"""A child writes device memory and tells so by the state of a file or a process; then the parent writes.

``by_state.py WAY``.  In ``own_files`` both have files of the same names in folders of their own, and nothing orders
them.
"""

# ruff: noqa: PTH101, PTH104, SIM115, PTH103, PTH108, PTH110, PTH115, PTH116, PTH123, PTH211 - functions of os are meant

from __future__ import annotations

import fcntl
import multiprocessing
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import connection
from typing import Any

import peerlane as pl

SECONDS = 60
ROUNDS = 3


def until(holds: Callable[[], object]) -> None:
    """Wait for another process.

    Raises
    ------
    TimeoutError
        It did not come so far.
    """
    end = time.monotonic() + SECONDS
    while True:
        with suppress(FileNotFoundError):
            if holds():
                return
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.01)


def write(handle: bytes) -> None:
    """Write the parent's memory."""
    with pl.Buffer.open(handle) as memory:
        memory.fill(8)


def create_at(folder: str) -> None:
    """Create the file ``here``, by the folder's descriptor."""
    descriptor = os.open(folder, os.O_RDONLY)
    os.close(os.open("here", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))


def is_there_at(folder: str) -> bool:
    """Tell whether the file ``here`` is there, by the folder's descriptor."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        return bool(os.stat("here", dir_fd=descriptor))
    finally:
        os.close(descriptor)


def table_created(path: str) -> None:
    """Make a table in a database."""
    with sqlite3.connect(path, timeout=SECONDS) as database:
        database.execute("create table there(a)")


def tables(path: str) -> int:
    """Return how many tables a database has."""
    database = sqlite3.connect(path, timeout=SECONDS)
    return int(database.execute("select count(*) from sqlite_master").fetchone()[0])


def has(path: str, field: str, value: int) -> bool:
    """Tell whether a file's state has a value."""
    return bool(getattr(os.stat(path=path), field) == value)


#: What the child does with its file in a folder, and what the parent waits for.
STATES: dict[str, tuple[Callable[[str], object], Callable[[str], object]]] = {
    "renamed": (lambda f: os.rename(f + "/a", f + "/c"), lambda f: not os.path.exists(f + "/a")),
    "removed": (lambda f: os.unlink(f + "/a"), lambda f: not os.access(f + "/a", os.R_OK)),
    "dated": (lambda f: os.utime(f + "/a", (9, 9)), lambda f: has(f + "/a", "st_mtime", 9)),
    "cut": (lambda f: os.truncate(f + "/a", 9), lambda f: has(f + "/a", "st_size", 9)),
    "listed": (lambda f: os.truncate(f + "/a", 9), lambda f: next(os.scandir(f)).stat().st_size == 9),
    "permitted": (lambda f: os.chmod(f + "/a", 0o100600), lambda f: has(f + "/a", "st_mode", 0o100600)),
    "linked": (lambda f: os.symlink("/", f + "/b"), lambda f: os.readlink(f + "/b")),
    "fifo": (lambda f: os.mkfifo(f + "/b"), lambda f: os.path.exists(f + "/b")),
    "aliased": (lambda f: open(f + "/self/b", "w").close(), lambda f: os.path.exists(f + "/b")),
    "created_at": (create_at, lambda f: os.path.exists(f + "/here")),
    "seen_at": (lambda f: open(f + "/here", "w").close(), is_there_at),
    "database": (lambda f: table_created(f + "/b"), lambda f: tables(f + "/b")),
    "signalled": (lambda _: os.kill(os.getppid(), signal.SIGUSR1), lambda _: RECEIVED),
    "named": (
        lambda _: open("/proc/self/comm", "w").write("over"),
        lambda _: open(f"/proc/{multiprocessing.active_children()[0].pid}/comm").read() == "over\n",
    ),
}
RECEIVED: list[int] = []


def by_state(handle: bytes, case: str, folder: str) -> None:
    write(handle)
    STATES[case][0](folder)
    with suppress(FileNotFoundError):
        until(lambda: os.path.exists(folder + "/end"))


def by_lock(handle: bytes, lock: Callable[[Any, int], None], folder: str) -> None:
    for _ in range(ROUNDS):
        with open(folder + "/lock", "w") as file:
            lock(file, fcntl.LOCK_EX)
            write(handle)
    with suppress(FileNotFoundError):
        until(lambda: os.path.exists(folder + "/end"))


def in_own_folder(handle: bytes, barrier: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(folder + "/a/b")
        create_at(folder + "/a/b")
    barrier.wait()
    write(handle)


def main(case: str, method: str = "spawn") -> None:
    """Run one of the ways."""
    workers: Any = multiprocessing.get_context(method)
    signal.signal(signal.SIGUSR1, lambda number, _: RECEIVED.append(number))
    folder = tempfile.mkdtemp()
    with pl.devices()[0].allocate(64) as memory:
        handle = bytes(memory.export(allow="user"))

        def child(target: Any, *arguments: Any) -> Any:
            started = workers.Process(target=target, args=(handle, *arguments))
            started.start()
            return started

        if case in STATES:
            with open(folder + "/a", "w") as file:
                file.write("." * 99)
            if case == "aliased":
                os.symlink(folder, folder + "/self")
            ended = child(by_state, case, folder)
            until(lambda: STATES[case][1](folder))
            memory.fill(3)
            open(folder + "/end", "w").close()
        elif case == "own_files":
            barrier = workers.Barrier(2, timeout=SECONDS)
            other = child(in_own_folder, barrier)
            ended = child(in_own_folder, barrier)
            other.join(SECONDS)
        elif case in ("flock", "lockf"):
            ended = child(by_lock, getattr(fcntl, case), folder)
            for _ in range(ROUNDS):
                with open(folder + "/lock", "w") as file:
                    getattr(fcntl, case)(file, fcntl.LOCK_EX)
                    memory.fill(3)
            open(folder + "/end", "w").close()
        else:
            ended = child(write)
            if case == "sentinel":
                connection.wait([ended.sentinel])
            elif case == "exitcode":
                until(lambda: ended.exitcode is not None)
            elif case == "waitid":
                os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
            memory.fill(3)
        ended.join(SECONDS)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
