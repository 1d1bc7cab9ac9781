"""Means by which processes talk and that native code does not hook.

Native code hooks sockets, pipes, semaphores, shared mappings and the like (``native/log/outside.cpp``).  The rest is
here: memory that ``multiprocessing`` shares without a lock, files that a process opens or asks about
(:mod:`~peerlane.diagnostics.hooks.files`), and functions of C libraries, which
mean that a process can talk at any time.
"""

from __future__ import annotations

import multiprocessing.sharedctypes
import sys
from typing import Any

from peerlane import _core
from peerlane.diagnostics.hooks import elf_imports, files
from peerlane.diagnostics.hooks.wrappers import after
from peerlane.diagnostics.log import event_log

#: Functions of C libraries by which processes tell each other something, and whose calls native code does not hook.
_UNHOOKED = ("freopen", "ptrace", "vfork", "clone", "exec", "dlopen", "MPI_", "io_uring")
_STARTING = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.system", "os.exec"})

_can_talk = False


def follow() -> None:
    """Let the ways in which this process can talk to others tell the log; once, and for good."""
    shared: Any = multiprocessing.sharedctypes
    for name in ("RawValue", "RawArray", "rebuild_ctype"):
        after(shared, name, lambda *_: talks())
    files.follow()
    sys.addaudithook(_audited)
    if any(name.startswith(_UNHOOKED) for name in elf_imports.names()):
        talks()


def again() -> None:
    """Tell the log of a forked child what its parent's log was told."""
    if _can_talk:
        event_log.outside()
    if event_log.active:
        _core.log_follow_outside()


def talks() -> None:
    """Note that the process can talk to others without the log's knowledge."""
    global _can_talk
    if event_log.active and not _can_talk:
        _can_talk = True
        event_log.outside()


def _audited(event: str, about: tuple[Any, ...]) -> None:
    if event in _STARTING:
        event_log.sent()
    elif event == "ctypes.dlsym" and str(about[1]).startswith(_UNHOOKED):  # a call of it tells nothing
        talks()
    else:
        files.audited(event, about)
