"""The trees of the native tests, one for each sanitizer; ``python -m native.trees NAME...`` builds some."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SANITIZERS = {"address": "address,undefined", "thread": "thread", "undefined": "undefined"}
SECONDS = 1200  # for a build


def command(*words: str, seconds: int, **extra: str) -> None:
    """Run a command that ends with 0 in time."""
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=seconds, env=os.environ | extra, check=False
    )
    assert done.returncode == 0, f"{' '.join(words)} ended with {done.returncode}\n{done.stdout}{done.stderr}"


def build(tree: str) -> Path:
    """Build a tree; `make soak` builds the last one source by source, which finds missing includes."""
    batches = "OFF" if tree == "undefined" else "ON"
    return configured(
        tree,
        "-DPEERLANE_NATIVE_TESTS=ON",
        f"-DPEERLANE_SANITIZE={SANITIZERS[tree]}",
        f"-DPEERLANE_BATCHES={batches}",
    )


def configured(tree: str, *settings: str) -> Path:
    """Configure and build a folder; of several workers one builds it, and the others wait at its lock."""
    folder = ROOT / "build" / f"native-{tree}"
    folder.mkdir(parents=True, exist_ok=True)
    words = ["cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", *settings]
    last = folder / "configured"  # a configuration takes longer than a build that has nothing to do
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not last.exists() or last.read_text() != "\n".join(words):
            command(*words, seconds=SECONDS)
            last.write_text("\n".join(words))
        at_once = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(os.cpu_count())  # compilers need memory
        command("cmake", "--build", str(folder), "--parallel", at_once, seconds=SECONDS)
    return folder


if __name__ == "__main__":
    for name in sys.argv[1:]:
        build(name)
