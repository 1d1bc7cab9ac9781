"""What a program may expect of the functions of ``os``, whether or not a log is written."""

# ruff: noqa: PTH116, PTH208 - functions of os are meant

from __future__ import annotations

import os
import pickle
import shutil
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import peerlane as pl


class Accessor:
    """A class that has functions of ``os`` as attributes."""

    stat = os.stat
    open = os.open


def failure(call: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Return how a call fails."""
    try:
        call(*args, **kwargs)
    except (OSError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    """Use them."""
    pl.devices()
    sys.addaudithook(lambda *_: None)
    for name in ("stat", "open", "access", "waitpid"):
        assert pickle.loads(pickle.dumps(getattr(os, name))) is getattr(os, name), name
    assert os.stat in os.supports_fd
    assert {os.open, os.stat, os.access, os.readlink} <= os.supports_dir_fd
    assert shutil.rmtree.avoids_symlink_attacks
    folder = tempfile.mkdtemp()
    descriptor = Accessor().open(folder, os.O_RDONLY)
    assert Accessor().stat(folder).st_ino == os.stat(descriptor).st_ino
    os.close(os.open(path="a", flags=os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    assert os.listdir(descriptor) == ["a"]
    os.chdir(folder)
    shutil.rmtree(folder)
    assert failure(open, "b").startswith("FileNotFoundError")
    assert failure(os.stat, path="b").startswith("FileNotFoundError")
    assert failure(os.getcwd).startswith("FileNotFoundError")
    assert failure(os.stat, "\0").startswith("ValueError")
    assert failure(os.stat, 1.5).startswith("TypeError")
    assert failure(os.open, "b", dir_fd=descriptor).startswith("TypeError")
    print("as ever")


if __name__ == "__main__":
    main()
