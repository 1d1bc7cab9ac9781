"""The event logs that this process writes for readers of its own."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def own_logs() -> int:
    """Return how many there are."""
    paths = set()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            if str(each.readlink()).startswith("/memfd:peerlane-log"):
                paths.add(os.stat(each).st_ino)  # noqa: PTH116 - the file, not the link
    return len(paths)
