"""A parent writes device memory, a child reads it and writes back, and the parent reads.

``processes.py WAY [METHOD]``: ``WAY`` is how the two agree.  In ``none`` they do not, in ``early_puts`` the child
tells too early, and in ``siblings`` two children write.  ``METHOD`` is how multiprocessing starts children;
``preloaded`` is ``forkserver`` with peerlane in the server.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import peerlane as pl

SECONDS = 60
FIRST, SECOND = 7, 8


def use(handle: bytes) -> None:
    """Check the parent's bytes, and write others."""
    with pl.Buffer.open(handle) as memory:
        assert bytes(memory)[0] == FIRST
        memory.fill(SECOND)


def in_turn(handle: bytes, wait: Callable[[], object], signal: Callable[[], object]) -> None:
    """Be a child that waits, uses the memory, and tells so; it lives until it is waited for once more."""
    wait()
    use(handle)
    signal()


def by_pipe(handle: bytes, end: Any) -> None:
    in_turn(handle, end.recv, lambda: end.send(None))


def by_queue(handle: bytes, there: Any, back: Any) -> None:
    in_turn(handle, lambda: there.get(timeout=SECONDS), lambda: back.put(None))


def by_event(handle: bytes, there: Any, back: Any) -> None:
    in_turn(handle, lambda: there.wait(SECONDS), back.set)


def by_semaphore(handle: bytes, there: Any, back: Any) -> None:
    in_turn(handle, lambda: there.acquire(True, SECONDS), back.release)


def by_barrier(handle: bytes, barrier: Any) -> None:
    in_turn(handle, barrier.wait, barrier.wait)


def by_socket(handle: bytes, end: socket.socket) -> None:
    in_turn(handle, lambda: end.recv(1), lambda: end.sendall(b"."))


def by_files(handle: bytes, there: Path, back: Path) -> None:
    in_turn(handle, lambda: until(there.exists), back.touch)


def by_folders(handle: bytes, there: Path, back: Path) -> None:
    in_turn(handle, lambda: until(lambda: list(there.iterdir())), (back / "over").mkdir)


def by_shared_memory(handle: bytes, name: str) -> None:
    block = SharedMemory(name)
    in_turn(handle, lambda: until(lambda: block.buf[0]), lambda: block.buf.__setitem__(1, 1))
    block.close()


def until(holds: Callable[[], object]) -> None:
    """Wait for another process.

    Raises
    ------
    TimeoutError
        It did not come so far.
    """
    end = time.monotonic() + SECONDS
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.01)


def by_sibling(handle: bytes, own: Path, both_run: Any) -> None:
    with pl.Buffer.open(handle) as memory:
        both_run.wait()  # whoever starts the second child may know that the first one has ended
        Path(__file__).read_bytes()
        memory.fill(SECOND)
        own.write_text("over")


def by_early_puts(handle: bytes, back: Any) -> None:
    """Write behind the puts, and let the queue's thread send them when the process has done all that it does."""
    with pl.Buffer.open(handle) as memory:
        sending = back._wlock._semlock  # unlike the lock, it tells nothing
        sending.acquire()
        back.put(None)
        back.put(None)
        memory.fill(SECOND)
        back.close()
        sending.release()


def by_nothing(handle: bytes, barrier: Any) -> None:
    with pl.Buffer.open(handle) as memory:
        bytes(memory)
    barrier.wait()


def cases(workers: Any, memory: pl.Buffer, handle: bytes) -> dict[str, Callable[[Callable[[], None]], None]]:
    """Return how the parent does it, by name: each writes by calling what it is given."""

    def with_child(target: Any, *arguments: Any) -> Any:
        child = workers.Process(target=target, args=(handle, *arguments))
        child.start()
        return child

    def pipe(write: Callable[[], None]) -> None:
        ours, theirs = workers.Pipe()
        child = with_child(by_pipe, theirs)
        write()
        ours.send(None)
        ours.recv()
        child.join(SECONDS)

    def killed(write: Callable[[], None]) -> None:
        ours, theirs = workers.Pipe()
        child = with_child(by_pipe, theirs)
        write()
        ours.send(None)
        while not ours.poll(SECONDS):
            raise SystemExit("no answer")
        child.kill()
        child.join(SECONDS)

    def queue(write: Callable[[], None]) -> None:
        there, back = workers.Queue(), workers.Queue()
        child = with_child(by_queue, there, back)
        write()
        there.put(None)
        back.get(timeout=SECONDS)
        child.join(SECONDS)

    def event(write: Callable[[], None]) -> None:
        there, back = workers.Event(), workers.Event()
        child = with_child(by_event, there, back)
        write()
        there.set()
        back.wait(SECONDS)
        child.join(SECONDS)

    def semaphore(write: Callable[[], None]) -> None:
        there, back = workers.Semaphore(0), workers.Semaphore(0)
        child = with_child(by_semaphore, there, back)
        write()
        there.release()
        back.acquire(True, SECONDS)
        child.join(SECONDS)

    def barrier(write: Callable[[], None]) -> None:
        met = workers.Barrier(2, timeout=SECONDS)
        child = with_child(by_barrier, met)
        write()
        met.wait()
        met.wait()
        child.join(SECONDS)

    def join(write: Callable[[], None]) -> None:
        write()
        with_child(use).join(SECONDS)

    def executor(write: Callable[[], None]) -> None:
        with ProcessPoolExecutor(1, mp_context=workers) as pool:
            write()
            pool.submit(use, handle).result(SECONDS)

    def program(write: Callable[[], None]) -> None:
        write()
        subprocess.run([sys.executable, __file__, "child", handle.decode()], check=True, timeout=SECONDS)

    def sockets(write: Callable[[], None]) -> None:
        ours, theirs = socket.socketpair()
        child = with_child(by_socket, theirs)
        write()
        ours.sendall(b".")
        ours.recv(1)
        child.join(SECONDS)

    def files(write: Callable[[], None]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            there, back = Path(folder, "there"), Path(folder, "back")
            child = with_child(by_files, there, back)
            write()
            there.write_text("over")
            until(back.exists)
            child.join(SECONDS)

    def folders(write: Callable[[], None]) -> None:
        with tempfile.TemporaryDirectory() as there, tempfile.TemporaryDirectory() as back:
            child = with_child(by_folders, Path(there), Path(back))
            write()
            Path(there, "over").symlink_to(__file__)
            until(lambda: list(os.scandir(back)))
            child.join(SECONDS)

    def shared_memory(write: Callable[[], None]) -> None:
        block = SharedMemory(create=True, size=64)
        child = with_child(by_shared_memory, block.name)
        write()
        block.buf[0] = 1
        until(lambda: block.buf[1])
        child.join(SECONDS)
        block.close()
        block.unlink()

    def none(write: Callable[[], None]) -> None:
        met = workers.Barrier(2, timeout=SECONDS)
        child = with_child(by_nothing, met)
        write()
        met.wait()
        child.join(SECONDS)

    def early_puts(_: Callable[[], None]) -> None:
        back = workers.Queue()
        child = with_child(by_early_puts, back)
        for _ in range(2):
            back.get(timeout=SECONDS)
        bytes(memory)
        child.join(SECONDS)

    def siblings(_: Callable[[], None]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            both_run = workers.Barrier(2)
            paths = [Path(folder, str(each)) for each in range(2)]
            for child in [with_child(by_sibling, path, both_run) for path in paths]:
                child.join(SECONDS)

    seen = (pipe, killed, queue, event, semaphore, barrier, join, executor, program)
    cases_of_kinds = (*seen, sockets, files, folders, shared_memory, none, early_puts, siblings)
    return {each.__name__: each for each in cases_of_kinds}


def forked() -> None:
    """Let a child of ``os.fork`` use the memory, and wait for its end."""
    ours, theirs = multiprocessing.Pipe()
    pid = os.fork()  # before anything uses a device
    if not pid:
        use(theirs.recv())
        os._exit(0)
    with pl.devices()[0].allocate(64) as memory:
        memory.fill(FIRST)
        ours.send(bytes(memory.export(allow="user")))
        os.waitpid(pid, 0)
        assert bytes(memory)[0] == SECOND


def main(case: str, method: str = "spawn") -> None:
    """Run one of the ways."""
    workers: Any = multiprocessing.get_context("forkserver" if method == "preloaded" else method)
    if method == "preloaded":
        workers.set_forkserver_preload(["peerlane"])
    if case == "forked":
        forked()
        return
    with pl.devices()[0].allocate(64) as memory:
        memory.fill(0)
        handle = bytes(memory.export(allow="user"))
        cases(workers, memory, handle)[case](lambda: memory.fill(FIRST))
        assert bytes(memory)[0] == (FIRST if case == "none" else SECOND)


if __name__ == "__main__":
    if sys.argv[1] == "child":
        use(sys.argv[2].encode())
    else:
        main(*sys.argv[1:])
