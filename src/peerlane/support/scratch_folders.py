"""Folders of a command, which do not stay if its process is killed: the next command removes them."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from peerlane.support.variables import OWN_FOLDER

_PREFIX, _YOUNG_SECONDS = f"{OWN_FOLDER}scratch-", 60.0


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Make a folder, and remove it after the block.

    The folders of processes that were killed are removed first, once they are a minute old.

    ``parent``: the folder that it is made in; the one of temporary files by default.
    Yields the folder, which no other user can read.
    """
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    _sweep(parent)
    scratch = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        with _locked(scratch):
            yield scratch
    finally:
        for _ in range(100):  # a process that outlives the run may begin its log meanwhile
            shutil.rmtree(scratch, ignore_errors=True)
            if not scratch.exists():
                break


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock of a folder, which ends with this process; BlockingIOError if another process has it."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(file)


def _sweep(parent: Path) -> None:
    """Remove the folders of killed processes."""
    for left in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            # A younger one may not be locked yet.
            if time.time() - left.stat().st_mtime > _YOUNG_SECONDS:
                with _locked(left):
                    shutil.rmtree(left, ignore_errors=True)
