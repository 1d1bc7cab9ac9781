"""The owner-only directory in which the processes of one user meet."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from peerlane.errors import AccessDenied, BadArgument, Fault, InvalidValue, Refused, Unsupported

_VARIABLE = "PEERLANE_RUNTIME_DIR"


def runtime_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the runtime directory; create it with mode 0700 if it does not exist.

    It is ``PEERLANE_RUNTIME_DIR``; else ``peerlane`` under ``XDG_RUNTIME_DIR``, where that is a directory of
    this user; else ``peerlane-<uid>`` in the temporary directory.

    Raises InvalidValue: ``PEERLANE_RUNTIME_DIR`` is not an absolute path: processes started elsewhere would not meet.
    Raises AccessDenied: it cannot be made, is a symbolic link, is not a directory, belongs to another user, or is
        open to others.
    """
    chosen = _chosen(environ)
    try:
        chosen.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise _denied(chosen, f"cannot be made ({reason})", "create it with mode 0700") from None
    _check_private(chosen)
    return chosen


def existing_runtime_directory(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the runtime directory if it exists; create nothing.

    Raises InvalidValue, AccessDenied: as :func:`runtime_directory`.
    """
    chosen = _chosen(environ)
    try:
        _check_private(chosen)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise _denied(chosen, f"cannot be read ({reason})", "let this user in") from None
    return chosen


def _chosen(environ: Mapping[str, str]) -> Path:
    own = environ.get(_VARIABLE)
    if own:
        if not Path(own).is_absolute():
            raise InvalidValue(
                f"{_VARIABLE}={own!r} is relative, so processes started in other directories would not meet; "
                f"give an absolute path, for example {str(Path.cwd() / own)!r}",
                fault=Fault.BAD_CONFIG,
                detail=BadArgument(_VARIABLE, own, rule="an absolute path"),
            )
        return Path(own)
    session = environ.get("XDG_RUNTIME_DIR")
    # After `su` the variable still names the directory of the user who logged in.
    if session and Path(session).is_absolute() and _is_own_directory(Path(session)):
        return Path(session) / "peerlane"
    import tempfile

    try:
        return Path(tempfile.gettempdir()) / f"peerlane-{os.geteuid()}"
    except FileNotFoundError as error:
        raise Unsupported(
            f"no directory for temporary files can be written, so processes have no place to meet: {error}; make "
            f"one, or name an absolute path in {_VARIABLE}",
            detail=Refused(reason="no_temporary_directory"),
        ) from None


def _is_own_directory(path: Path) -> bool:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _check_private(path: Path) -> None:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise _denied(path, "is a symbolic link, which its owner could point elsewhere", "remove the link")
    if not stat.S_ISDIR(status.st_mode):
        raise _denied(path, "is not a directory", "remove the file")
    if status.st_uid != os.geteuid():
        raise _denied(
            path, f"belongs to uid {status.st_uid}, and this is uid {os.geteuid()}", "remove it as its owner"
        )
    if status.st_mode & 0o077:
        raise _denied(
            path,
            f"is open to other users (mode {stat.S_IMODE(status.st_mode):04o}; 0700 is needed)",
            f"run: chmod 700 {path}",
        )


def _denied(path: Path, problem: str, remedy: str) -> AccessDenied:
    return AccessDenied(
        f"the runtime directory {path} {problem}; {remedy}, or set {_VARIABLE} to another directory",
        fault=Fault.BAD_CONFIG,
        detail=Refused(reason="bad_directory", path=str(path), problem=problem),
    )
