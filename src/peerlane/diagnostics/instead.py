"""Functions that take the place of others, and tell the event log what was called."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

#: Modules whose frames lie between a function that was replaced, or raises an audit event, and who called it.
BETWEEN = frozenset(
    f"peerlane.diagnostics.{name}" for name in ("instead", "used_files", "ways_out", "host_processes")
)


class Instead:
    """A function in the place of one of ``os``: like that, it can be pickled, and is not bound as a method."""

    def __init__(self, plain: Callable[..., Any], call: Callable[..., Any]) -> None:
        functools.update_wrapper(self, plain)
        self.__module__ = "os"
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

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
        result = plain(*args, **kwargs)
        told(*args[:1], result)
        return result

    if owner is os:
        replace(name, call)
    else:
        setattr(owner, name, call)
