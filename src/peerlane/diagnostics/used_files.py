"""What a process does with files by which it could tell others something, for the event log.

The log has which files a process writes, and which it looks at: by opening them, by their locks, or by asking about
them.  A process is such a file too, ``/proc/<pid>``: its signals are written to it, and its end can be looked at.
"""

from __future__ import annotations

import fcntl
import functools
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from peerlane.diagnostics import event_log
from peerlane.diagnostics.instead import BETWEEN, replace

T = TypeVar("T")

_WROTE, _LOOKED = 1, 2  # kWrote and kLooked in native/log/event.h
_MOST = 10_000  #: files; with more of them, a process counts as one that can talk to all others
_IMPORTING = frozenset({"importlib", "_frozen_importlib", "_frozen_importlib_external"})
_LOCKING = frozenset(
    getattr(fcntl, f"F_{name}", -1) for name in ("SETLK", "SETLKW", "OFD_SETLK", "OFD_SETLKW")
)

#: Audit events about files: what the process does, and for each path its place among the arguments and that of the
#: descriptor of the folder in which it begins (None: there is none).
_AUDITED: dict[str, tuple[int, tuple[tuple[int, int | None], ...]]] = {
    "os.rename": (_WROTE, ((0, 2), (1, 3))),
    "os.link": (_WROTE, ((1, 3),)),
    "os.symlink": (_WROTE, ((1, 2),)),
    "os.mkdir": (_WROTE, ((0, 2),)),
    "os.rmdir": (_WROTE, ((0, 1),)),
    "os.remove": (_WROTE, ((0, 1),)),
    "os.truncate": (_WROTE, ((0, None),)),
    "os.utime": (_WROTE, ((0, 3),)),
    "os.chmod": (_WROTE, ((0, 2),)),
    "os.chown": (_WROTE, ((0, 3),)),
    "os.setxattr": (_WROTE, ((0, None),)),
    "os.removexattr": (_WROTE, ((0, None),)),
    "os.getxattr": (_LOOKED, ((0, None),)),
    "os.listxattr": (_LOOKED, ((0, None),)),
    "fcntl.flock": (_WROTE | _LOOKED, ((0, None),)),
    "fcntl.lockf": (_WROTE | _LOOKED, ((0, None),)),
    "os.lockf": (_WROTE | _LOOKED, ((0, None),)),
    "sqlite3.connect": (_WROTE | _LOOKED, ((0, None),)),
}
#: Functions that raise no audit event.
_UNAUDITED = {
    **dict.fromkeys(("stat", "lstat", "access", "readlink"), _LOOKED),
    **dict.fromkeys(("mknod", "mkfifo"), _WROTE),
}

_files: dict[tuple[str, int], None] = {}
_asked: set[tuple[str, int]] = set()


def follow() -> None:
    """Let the functions that raise no audit event tell the log; once, and for good."""
    for name, how in _UNAUDITED.items():
        replace(name, functools.partial(_told, getattr(os, name), how))
    replace("open", functools.partial(_opened_there, os.open))
    if hasattr(os, "pidfd_open"):
        replace("pidfd_open", functools.partial(_watched, os.pidfd_open))
    begin()


def begin() -> None:
    """Tell the log of this process, or of a child that was just forked, what is so from the beginning."""
    event_log.used_file(f"/proc/{os.getpid()}", _WROTE | _LOOKED)
    _asked.clear()
    for path, how in _files:
        event_log.used_file(path, how)
    if len(_files) > _MOST:
        event_log.outside()


def audited(event: str, about: tuple[Any, ...]) -> None:
    """Note what an audit event tells about files."""
    if event == "open":
        _note_opened(about[0], about[2])
    elif event in ("os.listdir", "os.scandir"):
        _note("." if about[0] is None else about[0], _LOOKED, inside="/*")
    elif event == "os.kill":
        pid, number = about
        if pid > 0 and number != signal.SIGKILL:
            _note(f"/proc/{pid}", _WROTE | _LOOKED)
    elif event in _AUDITED:
        how, places = _AUDITED[event]
        for path, folder in places:
            _note(about[path], how, None if folder is None else about[folder])
    elif event == "fcntl.fcntl" and about[1] in _LOCKING:
        _note(about[0], _WROTE | _LOOKED)


def _told(plain: Any, how: int, /, *args: Any, **kwargs: Any) -> Any:
    if how == _WROTE:  # before: another process may see the file before this call returns
        _note(args[0] if args else kwargs.get("path"), how, kwargs.get("dir_fd"))
        return plain(*args, **kwargs)
    result = plain(*args, **kwargs)
    _note(args[0] if args else kwargs["path"], how, kwargs.get("dir_fd"))
    return result


def _opened_there(plain: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Open a file; the audit event does not tell in which folder its path begins."""
    if kwargs.get("dir_fd") is None:
        return plain(*args, **kwargs)
    given = (*args, *(kwargs[name] for name in ("path", "flags") if name in kwargs))
    if len(given) > 1 and isinstance(given[1], int):  # before, as in `_told`
        _note_opened(given[0], given[1], kwargs["dir_fd"])
    return _unnoticed(functools.partial(plain, *args, **kwargs))


def _watched(plain: Any, pid: int, *args: Any, **kwargs: Any) -> Any:
    result = plain(pid, *args, **kwargs)
    _note(f"/proc/{pid}", _LOOKED)
    return result


def _unnoticed(call: Callable[[], T]) -> T:
    """Return the result of a call in which nothing is noted."""
    return call()


def _is_of_program() -> bool:
    """Return whether the program uses the file, and not peerlane, or the import system, whose caches are shared."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        package = module.partition(".")[0]
        if frame.f_code is _unnoticed.__code__ or package in _IMPORTING:
            return False
        if module not in BETWEEN and package not in sys.stdlib_module_names:
            return package != "peerlane"
        frame = frame.f_back
    return False


def _note_opened(path: Any, flags: int, folder: Any = None) -> None:
    access = flags & os.O_ACCMODE
    how = (0 if access == os.O_RDONLY else _WROTE) | (0 if access == os.O_WRONLY else _LOOKED)
    if not isinstance(path, int):  # a descriptor's file is known
        _note(path, how, folder)


def _note(path: Any, how: int, folder: Any = None, *, inside: str = "") -> None:
    """Note that the process wrote a file, or looked at it; ``/*`` is what a listing of a folder says."""
    if not event_log.active or len(_files) > _MOST:
        return
    try:
        asked = _absolute(path, folder) + inside
        if (asked, how) in _asked or asked.startswith(("/dev/null", "/sys/")) or not _is_of_program():
            return
        _asked.add((asked, how))
        for name in _unnoticed(functools.partial(_names, asked)):
            _note_name(name, how)
    except (OSError, ValueError, TypeError):  # it has no path, or the current folder is gone
        return


def _absolute(path: Any, folder: Any) -> str:
    if hasattr(path, "fileno"):  # fcntl takes files
        path = path.fileno()
    if isinstance(path, int):
        path = _of_descriptor(path)
    path = os.fsdecode(path)
    if isinstance(folder, int) and folder >= 0:
        path = os.path.join(_of_descriptor(folder), path)  # noqa: PTH118 - for each file of the program
    return str(os.path.abspath(path))  # noqa: PTH100


def _of_descriptor(number: int) -> str:
    path: str = _unnoticed(functools.partial(os.readlink, f"/proc/self/fd/{number}"))
    if not path.startswith("/"):
        raise ValueError(path)  # a pipe or a socket
    return path


def _names(path: str) -> set[str]:
    """Return the names by which processes agree on a file: its own, and that of what a link leads to."""
    if path.startswith("/proc/"):
        process = path.split("/")[2]
        return {f"/proc/{process}"} if process.isdecimal() and int(process) != os.getpid() else set()
    folder, _, name = path.rpartition("/")
    named = f"{_real(folder)}/{name}"
    return {named, os.path.realpath(path)} if os.path.islink(named) else {named}  # noqa: PTH114


@functools.lru_cache
def _real(folder: str) -> str:
    return os.path.realpath(folder or "/").rstrip("/")


def _note_name(path: str, how: int) -> None:
    if (path, how) in _files:
        return
    _files[path, how] = None
    event_log.used_file(path, how)
    if len(_files) > _MOST:
        event_log.outside()
    if how & _WROTE and not path.endswith("/*"):
        _note_name((path.rpartition("/")[0] or "/") + "/*", _WROTE)
