"""Wrappers of other functions, which log the calls.

An error that leaves such a function shows none of its frames, so the program's tracebacks stay as they are.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

#: Modules whose frames lie between a wrapped function, or one that raises an audit event, and its caller.
WRAPPERS = frozenset(f"{__package__}.{name}" for name in ("wrappers", "files", "ipc", "processes", "zeromq"))
_ALL_WRAPPERS = WRAPPERS | {f"{__package__}.threads"}


def hide_frames(error: BaseException) -> None:
    """Remove the frames of wrappers from the start of a traceback.

    For a handler that raises the error again by a bare ``raise``, which adds no frame, and for :data:`frames_hidden`;
    Python 3.10 keeps the frames.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__") in _ALL_WRAPPERS:
        trace = trace.tb_next
    error.__traceback__ = trace


class _FramesHidden:
    """Hides the frames of wrappers from an error that leaves the block."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            hide_frames(error)


frames_hidden = _FramesHidden()


class Replacement:
    """A replacement of a function of ``os``, which as the function can be pickled and is not bound as a method."""

    def __init__(self, plain: Callable[..., Any], call: Callable[..., Any]) -> None:
        functools.update_wrapper(self, plain)
        self.__module__ = "os"
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with frames_hidden:
            return self._call(*args, **kwargs)

    def __reduce__(self) -> str:
        return str(self.__name__)  # type: ignore[attr-defined]


def replace(name: str, call: Callable[..., Any]) -> None:
    """Replace a function of ``os``, also in the sets such as ``os.supports_fd``, which shutil reads."""
    plain = getattr(os, name)
    replacement: Any = Replacement(plain, call)
    setattr(os, name, replacement)
    for supported in (
        os.supports_fd,
        os.supports_dir_fd,
        os.supports_follow_symlinks,
        os.supports_effective_ids,
    ):
        if plain in supported:
            supported.add(replacement)


def after(owner: Any, name: str, then: Callable[..., None]) -> None:
    """Have ``then`` called after a function, with its first positional argument and its result."""
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        with frames_hidden:
            result = plain(*args, **kwargs)
        then(*args[:1], result)
        return result

    if owner is os:
        replace(name, call)
    else:
        setattr(owner, name, call)
