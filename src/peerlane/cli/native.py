"""Programs that Python does not run: they replace this process, with the C libraries of the vendors in place.

``python -m peerlane.cli.native PROGRAM ARGS`` is how ``launch`` starts such a rank.
"""

from __future__ import annotations

import os
import sys

_ELF = b"\x7fELF"
_VARIABLE = "LD_LIBRARY_PATH"


def is_native(path: str) -> bool:
    """Tell whether Python does not run a file: a program of machine code, or a text for another interpreter."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib is not needed for anything else
            head = file.read(256)
    except OSError:
        return False
    if head.startswith(_ELF):
        return os.access(path, os.X_OK)
    first = head.partition(b"\n")[0]
    return first.startswith(b"#!") and b"python" not in first and os.access(path, os.X_OK)


def put_libraries_in_place() -> None:
    """Let the children of this process find the vendors' C libraries, and the Python that answers for them."""
    from peerlane.c_abi import directory

    folder, known = str(directory()), os.environ.get(_VARIABLE, "")
    if folder not in known.split(":"):
        os.environ[_VARIABLE] = f"{folder}:{known}" if known else folder
    os.environ.setdefault("PEERLANE_PYTHON", sys.executable)


def load_libraries() -> None:
    """Open the libraries in this process, so that their names mean them; its loader read the variable long ago."""
    from _ctypes import dlopen

    from peerlane.c_abi import directory

    folder = str(directory())
    for name in os.listdir(folder):  # noqa: PTH208 - pathlib is not needed for anything else
        if name.endswith(".so"):
            dlopen(f"{folder}/{name}", 0)


def execute(words: list[str]) -> int:
    """Replace this process by a program; return the shell's exit code for one that does not start."""
    put_libraries_in_place()
    path = words[0] if "/" in words[0] else f"./{words[0]}"
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    try:
        os.execv(path, words)
    except OSError as error:
        print(f"peerlane: {words[0]} does not start: {error.strerror}", file=sys.stderr)
        return 126


if __name__ == "__main__":
    sys.exit(execute(sys.argv[1:]))
