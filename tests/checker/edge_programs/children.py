"""A child writes memory that its parent reads; ``children.py MEANS MODE``, with the modes of ``two_ranks.py``.

Nobody waits for the child's end, which is told by other means: a handler of a signal, or the end of a pipe.
With ``new_parent`` a child of the child reads, when its parent has ended.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from contextlib import suppress
from typing import Any

import peerlane as pl
from checker.edge_programs.two_ranks import until


def write(means: str, mode: str, talk: Any, taken: Any) -> None:
    talk.send(os.getpid())
    with pl.Buffer.open(talk.recv()) as lent:
        if mode == "early":
            taken.acquire()
            time.sleep(0.2)
        lent.view()[:8] = 7
        if mode == "right" and means == "semaphore_value":
            taken.acquire()
        if means == "released_semaphore":
            taken.release()
        if means in ("semaphore_value", "released_semaphore"):
            talk.recv()
        os._exit(0)


def read_orphaned(parent: int, talk: Any) -> None:
    with pl.Buffer.open(talk.recv()) as lent:
        talk.send(".")
        until(lambda: os.getppid() != parent)
        assert int(lent.view()[:8].sum()) == 56


def write_and_end(talk: Any) -> None:
    context = multiprocessing.get_context("fork")
    own, its = context.Pipe()
    reader = context.Process(target=read_orphaned, args=(os.getpid(), its))
    reader.start()
    talk.send((os.getpid(), reader.pid))
    handle = talk.recv()
    own.send(handle)
    own.recv()
    with pl.Buffer.open(handle) as lent:
        lent.view()[:8] = 7
        os._exit(0)


def main_of_orphan() -> None:
    context = multiprocessing.get_context("fork")
    talk, other = context.Pipe()
    child = context.Process(target=write_and_end, args=(other,))
    child.start()
    other.close()
    with pl.devices()[0].allocate(4096) as own:
        own.fill(0)
        talk.send(bytes(own.export(allow=list(talk.recv()))))
        with suppress(EOFError):  # the reader has ended, too
            talk.recv()
        child.join()


def main(means: str, mode: str) -> None:
    if means == "new_parent":
        main_of_orphan()
        return
    ended: list[int] = []
    context = multiprocessing.get_context("fork")
    taken = context.Semaphore(1)
    if means == "handled_end":
        signal.signal(signal.SIGCHLD, lambda *_: ended.append(1))
    read_end, write_end = os.pipe()
    talk, other = context.Pipe()
    child = context.Process(target=write, args=(means, mode, other, taken))
    child.start()
    os.close(write_end)
    with pl.devices()[0].allocate(4096) as own:
        own.fill(0)
        talk.send(bytes(own.export(allow=[talk.recv()])))
        if means == "handled_end":
            until(lambda: ended)
        elif means == "closed_pipe":
            assert os.read(read_end, 1) == b""
        else:
            until(lambda: taken.get_value() == (2 if means == "released_semaphore" else 0))
        if mode == "early":
            time.sleep(0.4)
        total = int(own.view()[:8].sum())
        assert mode == "early" or total == 56
        if means in ("semaphore_value", "released_semaphore"):
            talk.send("end")
        child.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
