"""Communication between processes that native code does not hook.

Native code hooks sockets, pipes, semaphores, shared mappings and the like (``native/log/outside.cpp``).  This module
has the rest: memory that ``multiprocessing`` shares without a lock, files (:mod:`~peerlane.diagnostics.hooks.files`),
and functions of C libraries by which a process can communicate at any time.
"""

from __future__ import annotations

import multiprocessing.sharedctypes
import sys
from typing import Any

from peerlane import _core
from peerlane.diagnostics.hooks import elf_imports, files
from peerlane.diagnostics.hooks.wrappers import after
from peerlane.diagnostics.log import event_log

#: Functions of C libraries by which processes communicate, and whose calls native code does not hook.
_UNHOOKED = ("freopen", "ptrace", "vfork", "clone", "exec", "dlopen", "MPI_", "io_uring")
_STARTING = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.system", "os.exec"})

_is_noted = False


def follow() -> None:
    """Install the hooks; once, and for good."""
    shared: Any = multiprocessing.sharedctypes
    for name in ("RawValue", "RawArray", "rebuild_ctype"):
        after(shared, name, lambda *_: note_ipc())
    files.follow()
    sys.addaudithook(_audited)
    if any(name.startswith(_UNHOOKED) for name in elf_imports.names()):
        note_ipc()


def follow_in_child() -> None:
    """Log in a forked child what its parent had logged, and follow the child."""
    if _is_noted:
        event_log.unlogged_ipc()
    if event_log.active:
        _core.log_follow_outside()


def note_ipc() -> None:
    """Log, once, that the process can communicate unseen."""
    global _is_noted
    if event_log.active and not _is_noted:
        _is_noted = True
        event_log.unlogged_ipc()


def _audited(event: str, about: tuple[Any, ...]) -> None:
    if event in _STARTING:
        event_log.sends()
    elif event == "ctypes.dlsym" and str(about[1]).startswith(_UNHOOKED):  # its calls raise no audit event
        note_ipc()
    else:
        files.audited(event, about)
