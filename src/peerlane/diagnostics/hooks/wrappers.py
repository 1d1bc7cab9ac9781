"""Functions that take the place of others, and tell the event log what was called.

An error that leaves such a function shows none of its frames, so the program's tracebacks stay as they are.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

#: Modules whose frames lie between a function that was replaced, or raises an audit event, and who called it.
BETWEEN = frozenset(f"{__package__}.{name}" for name in ("wrappers", "files", "ipc", "processes"))
_REPLACING = BETWEEN | {f"{__package__}.threads"}


def hide_frames(error: BaseException) -> None:
    """Take the first frames of a traceback away that are of replacing functions.

    For a handler that raises the error again by a bare ``raise``, which adds no frame; Python 3.10 keeps the frames.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__") in _REPLACING:
        trace = trace.tb_next
    error.__traceback__ = trace


class Instead:
    """A function in the place of one of ``os``: like that, it can be pickled, and is not bound as a method."""

    def __init__(self, plain: Callable[..., Any], call: Callable[..., Any]) -> None:
        functools.update_wrapper(self, plain)
        self.__module__ = "os"
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._call(*args, **kwargs)
        except BaseException as error:
            hide_frames(error)
            raise

    def __reduce__(self) -> str:
        return str(self.__name__)  # type: ignore[attr-defined]


def replace(name: str, call: Callable[..., Any]) -> None:
    """Put a call into the place of a function of ``os``, and where that tells what it can do: shutil asks."""
    plain = getattr(os, name)
    instead: Any = Instead(plain, call)
    setattr(os, name, instead)
    for able in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        if plain in able:
            able.add(instead)


def after(owner: Any, name: str, told: Callable[..., None]) -> None:
    """Have ``told`` called after a function, with its first positional argument and its result."""
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            result = plain(*args, **kwargs)
        except BaseException as error:
            hide_frames(error)
            raise
        told(*args[:1], result)
        return result

    if owner is os:
        replace(name, call)
    else:
        setattr(owner, name, call)
