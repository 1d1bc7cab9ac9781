"""Files as a means of communication, for the event log.

The log has when a process changes a file, and when it looks at one: opens it, lists its folder, or asks for its
state.  Native code hooks reads, writes and locks, and the calls of native modules that name files.
"""

from __future__ import annotations

import functools
import os
import pathlib
import sys
from types import FrameType
from typing import Any

from peerlane import _core
from peerlane.diagnostics.hooks.wrappers import WRAPPERS, replace
from peerlane.diagnostics.log import event_log

_IMPORTING = frozenset({"importlib", "_frozen_importlib", "_frozen_importlib_external"})
#: Audit events about files.
_CHANGING = frozenset(
    f"os.{name}"
    for name in (
        *("rename", "link", "symlink", "mkdir", "rmdir", "remove", "truncate", "utime", "chmod", "chown"),
        *("setxattr", "removexattr"),
    )
)
_LOOKING = frozenset(f"os.{name}" for name in ("listdir", "scandir", "getxattr", "listxattr"))
#: Functions that raise no audit event.
_UNAUDITED_LOOKS, _UNAUDITED_CHANGES = ("stat", "lstat", "access", "readlink"), ("mknod", "mkfifo")


def follow() -> None:
    """Wrap the functions that raise no audit event; once, and for good."""
    for name in _UNAUDITED_LOOKS:
        replace(name, functools.partial(_looked, getattr(os, name)))
    for name in _UNAUDITED_CHANGES:
        replace(name, functools.partial(_changed, getattr(os, name)))
    taken: Any = getattr(pathlib, "_NormalAccessor", None)  # in Python 3.10 it has the functions already
    for name in (*_UNAUDITED_LOOKS, *_UNAUDITED_CHANGES):
        if hasattr(taken, name):
            setattr(taken, name, getattr(os, name))


def audited(event: str, about: tuple[Any, ...]) -> None:
    """Log an audit event if it is about files."""
    if event == "open":
        path, _, flags = about
        if isinstance(path, int):  # its file is known by the descriptor
            return
        if flags & (os.O_CREAT | os.O_TRUNC):
            _note_change()
        _note_look(path)
    elif event in _CHANGING:
        _note_change()
    elif event in _LOOKING:
        _note_look("." if about[0] is None else _path_of(about[0]))


_readlink = os.readlink


def _path_of(path: Any) -> Any:
    """Return the path of a folder's descriptor: native code does not see what a program lists by it."""
    if not isinstance(path, int) or not event_log.active:
        return path
    try:
        return _readlink(f"/proc/self/fd/{path}")
    except OSError:  # the call fails, too
        return path


def _looked(plain: Any, /, *args: Any, **kwargs: Any) -> Any:
    try:
        return plain(*args, **kwargs)
    finally:  # that a file is missing is information, too
        _note_look(args[0] if args else kwargs.get("path"))


def _changed(plain: Any, /, *args: Any, **kwargs: Any) -> Any:
    _note_change()  # before: another process may see the file before this call returns
    return plain(*args, **kwargs)


def _is_of_program() -> bool:
    """Return whether the program uses the file, and not peerlane, or the import system, whose caches are shared."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        package = module.partition(".")[0]
        if package in _IMPORTING:
            return False
        if module not in WRAPPERS and package not in sys.stdlib_module_names:
            return package != "peerlane"
        frame = frame.f_back
    return False


def _note_change() -> None:
    if event_log.active and _is_of_program():
        _core.log_changed_file()


def _note_look(path: Any) -> None:
    if isinstance(path, int) or not event_log.active or not _is_of_program():
        return
    try:
        _core.log_looked_at(os.fsencode(path))
    except (TypeError, ValueError):  # it is not a path
        return
