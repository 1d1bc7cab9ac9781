"""The ways in which processes talk without the event log's knowledge of what they say.

The log has only that a process can talk to others: by a socket, a pipe of the system, shared memory or a mapped file,
these by a function of a C library too, or by a file that one process writes and another one looks at.
"""

from __future__ import annotations

import functools
import multiprocessing.reduction
import multiprocessing.sharedctypes
import os
import socket
import sys
from collections.abc import Callable, Container
from types import FrameType
from typing import Any

from peerlane.diagnostics import event_log

#: What these make for themselves stays in the process, or the log has its order.
_OF_THEIR_OWN = frozenset({"peerlane", "multiprocessing", "asyncio", "subprocess"})

#: Functions of C libraries by which processes tell each other something.
_TALKING = (
    *("socket", "connect", "bind", "accept", "pipe", "mkfifo", "mmap", "shm", "sem_", "semget", "msg", "mq_"),
    *("eventfd", "futex", "syscall", "fork"),
)

#: Audit events of what changes a folder: the place of the path among their arguments.
_CHANGES = {
    **dict.fromkeys(("os.rename", "os.link", "os.symlink"), 1),
    **dict.fromkeys(("os.mkdir", "os.rmdir", "os.remove"), 0),
}
_WROTE, _LOOKED = 1, 2  # kWrote and kLooked in native/log/event.h
_MOST_FILES = 10_000  #: with more of them, a process counts as one that can talk to all others
_IMPORTING = frozenset({"importlib", "_frozen_importlib", "_frozen_importlib_external"})
_files: set[tuple[str, int]] = set()
_can_talk = False


def follow() -> None:
    """Let the ways in which this process can talk to others tell the log; once, and for good."""
    for owner, name in ((os, "pipe"), (os, "pipe2"), (socket, "socketpair")):
        after(owner, name, lambda *_: way_out(2, _OF_THEIR_OWN))
    shared: Any = multiprocessing.sharedctypes
    for name in ("RawValue", "RawArray", "rebuild_ctype"):
        after(shared, name, lambda *_: way_out(2))
    after(multiprocessing.reduction, "_rebuild_socket", lambda *_: way_out(2))
    for name in ("stat", "lstat"):
        plain: Any = getattr(os, name)
        after(os, name, lambda path, *_: _note_file(path, _LOOKED))
        for able in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks):
            if plain in able:  # shutil asks
                able.add(getattr(os, name))
    sys.addaudithook(_audited)


def again() -> None:
    """Tell the log of a forked child what its parent's log was told."""
    if _can_talk:
        event_log.outside()
    for path, how in sorted(_files):
        event_log.used_file(path, how)


def after(owner: Any, name: str, told: Callable[..., None]) -> None:
    """Have ``told`` called after a function, with its first positional argument and its result."""
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = plain(*args, **kwargs)
        told(*args[:1], result)
        return result

    setattr(owner, name, call)


def talks() -> None:
    """Note that the process can talk to others without the log's knowledge."""
    global _can_talk
    if event_log.active and not _can_talk:
        _can_talk = True
        event_log.outside()


def way_out(depth: int, besides: Container[str] = ("peerlane",)) -> None:
    """Note it unless the module or the package of the caller, so many calls up, is one of ``besides``."""
    caller = sys._getframe(depth + 1).f_globals.get("__name__", "")
    if not isinstance(caller, str) or not (caller in besides or caller.partition(".")[0] in besides):
        talks()


def _audited(event: str, about: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.bind"):
        way_out(1)
    elif event == "mmap.__new__":
        way_out(1, ("peerlane", "multiprocessing.heap"))
    elif event == "ctypes.dlsym" and str(about[1]).startswith(_TALKING):  # a call of it tells nothing
        depth = 1
        while sys._getframe(depth + 1).f_globals.get("__name__") == "ctypes":
            depth += 1
        way_out(depth)
    elif event == "open":
        access = about[2] & os.O_ACCMODE
        _note_file(
            about[0], (0 if access == os.O_RDONLY else _WROTE) | (0 if access == os.O_WRONLY else _LOOKED)
        )
    elif event in ("os.listdir", "os.scandir"):
        _note_file(about[0], _LOOKED, "/*")
    elif event in _CHANGES:
        _note_file(about[_CHANGES[event]], _WROTE)


def _is_of_program() -> bool:
    """Return whether the program uses the file, and not peerlane, or the import system, whose caches are shared."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        package = module.partition(".")[0]
        if package == "peerlane" and module != __name__:
            return False
        if package in _IMPORTING:
            return False
        if module != __name__ and package not in sys.stdlib_module_names:
            return True
        frame = frame.f_back
    return False


def _note_file(path: Any, how: int, inside: str = "") -> None:
    """Note that the process wrote a file, or looked at it; ``/*`` is what a listing of a folder says."""
    if not event_log.active or not isinstance(
        path, str | bytes | os.PathLike
    ):  # a descriptor's file is known
        return
    try:
        path = os.path.abspath(os.fsdecode(path)) + inside  # noqa: PTH100 - for each file of the program
    except OSError:  # the current folder is gone
        return
    if (path, how) in _files or path.startswith(("/dev/null", "/proc/", "/sys/")) or not _is_of_program():
        return
    if len(_files) >= _MOST_FILES:
        talks()
        return
    _files.add((path, how))
    event_log.used_file(path, how)
    if how & _WROTE and not inside:
        _note_file(path.rpartition("/")[0] or "/", _WROTE, "/*")
