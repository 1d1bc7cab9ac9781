"""What mypy says of programs.  It runs in a process of its own: its heap would slow down each later collection."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path


def write_stubs(stubs: Mapping[str, str], folder: Path) -> None:
    """Write the stubs of a package beside programs that import it."""
    for name, text in stubs.items():
        path = folder / name.replace("-stubs/", "/", 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def checked(programs: Iterable[Path], cache: Path) -> str:
    """Return the output of ``mypy --strict`` on some files."""
    words = ["mypy", "--strict", "--cache-dir", str(cache), "--config-file", "", *map(str, programs)]
    done = subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode in (0, 1) and not done.stderr, done.stderr
    return done.stdout
