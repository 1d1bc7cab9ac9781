"""The ways in which processes talk without the event log's knowledge of what they say.

The log has only that a process can talk to others: by a socket, a pipe of the system, shared memory or a mapped file,
these by a function of a C library too, or by a file (:mod:`~peerlane.diagnostics.used_files`).  A program that is not
Python's can talk if it imports such a function.
"""

from __future__ import annotations

import multiprocessing.reduction
import multiprocessing.sharedctypes
import os
import socket
import sys
from collections.abc import Container
from types import FrameType
from typing import Any

from peerlane.diagnostics import event_log, imported_names, used_files
from peerlane.diagnostics.instead import BETWEEN, after

#: What these make for themselves stays in the process, or the log has its order.
_OF_THEIR_OWN = frozenset({"peerlane", "multiprocessing", "asyncio", "subprocess"})

#: Functions of C libraries by which processes tell each other something.
_TALKING = (
    *("socket", "connect", "bind", "accept", "pipe", "mkfifo", "mmap", "shm", "sem_", "semget", "msg", "mq_"),
    *("eventfd", "futex", "syscall", "fork", "open", "fopen", "creat", "stat", "access", "inotify"),
    *("flock", "lockf", "fcntl", "kill", "sigqueue", "process_vm", "ptrace"),
)

#: What programs in C and C++ import besides: what starts processes and waits for them, streams of files, and MPI.
_IMPORTED = (
    *("vfork", "clone", "posix_spawn", "exec", "system", "popen", "wait", "MPI_"),
    *("_ZNSt14basic_ifstream", "_ZNSt14basic_ofstream", "_ZNSt13basic_fstream", "_ZNSt13basic_filebuf"),
)

_can_talk = False


def follow() -> None:
    """Let the ways in which this process can talk to others tell the log; once, and for good."""
    for name in ("pipe", "pipe2", "eventfd", "memfd_create", "openpty", "forkpty"):
        if hasattr(os, name):
            after(os, name, lambda *_: way_out(_OF_THEIR_OWN))
    after(socket, "socketpair", lambda *_: way_out(_OF_THEIR_OWN))
    shared: Any = multiprocessing.sharedctypes
    for name in ("RawValue", "RawArray", "rebuild_ctype"):
        after(shared, name, lambda *_: way_out())
    after(multiprocessing.reduction, "_rebuild_socket", lambda *_: way_out())
    used_files.follow()
    sys.addaudithook(_audited)
    if any(name.startswith((*_TALKING, *_IMPORTED)) for name in imported_names.names()):
        talks()


def again() -> None:
    """Tell the log of a forked child what its parent's log was told."""
    if _can_talk:
        event_log.outside()
    used_files.begin()


def talks() -> None:
    """Note that the process can talk to others without the log's knowledge."""
    global _can_talk
    if event_log.active and not _can_talk:
        _can_talk = True
        event_log.outside()


def way_out(besides: Container[str] = ("peerlane",)) -> None:
    """Note it unless the module or the package of the caller is one of ``besides``."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (caller := str(frame.f_globals.get("__name__"))) in (*BETWEEN, "ctypes"):
        frame = frame.f_back
    if not (caller in besides or caller.partition(".")[0] in besides):
        talks()


def _audited(event: str, about: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.bind"):
        way_out()
    elif event == "mmap.__new__":
        way_out(("peerlane", "multiprocessing.heap"))
    elif event == "ctypes.dlsym" and str(about[1]).startswith(_TALKING):  # a call of it tells nothing
        way_out()
    else:
        used_files.audited(event, about)
