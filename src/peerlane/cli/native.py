"""Programs that Python does not run: they replace this process, with the C libraries of the vendors in place.

``python -m peerlane.cli.native PROGRAM ARGS`` is how ``launch`` starts such a rank.
"""

from __future__ import annotations

import os
import signal
import sys

from peerlane.dialects._shared.hook import FINDER, WATCH
from peerlane.dialects._shared.hook import folders as dialect_folders

_ELF = b"\x7fELF"
_VARIABLE = "LD_LIBRARY_PATH"


def located(program: str) -> str:
    """Return a program, or its path in ``PATH`` if its name has no slash and no file here has it."""
    if "/" in program or os.path.exists(program):  # noqa: PTH110
        return program
    import shutil  # as every start of a file would wait for it

    return shutil.which(program) or program


def is_native(path: str) -> bool:
    """Return whether a file is not for this Python: a program of machine code, or a script of another interpreter."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib is not needed for anything else
            head = file.read(256)
    except OSError:
        return False
    if head.startswith(_ELF):
        return True
    first = head.partition(b"\n")[0]
    return first.startswith(b"#!") and b"python" not in first and os.access(path, os.X_OK)


def set_library_path(program: str = "") -> None:
    """Set the variables by which children load the vendors' C libraries, and those start this Python.

    ``program``: the program of machine code that replaces this process.
    """
    from peerlane.c_abi import folders

    ours = folders()
    others = [each for each in os.environ.get(_VARIABLE, "").split(":") if each and each not in ours]
    os.environ[_VARIABLE] = ":".join([*ours, *others])
    os.environ.setdefault("PEERLANE_PYTHON", sys.executable)
    is_chosen = len(FINDER.installed) < len(dialect_folders())
    for each in WATCH.adapters.values():
        if first := each["loads_first"](program, is_chosen=is_chosen):
            _load_first(first)


def load_libraries() -> None:
    """Open the libraries in this process, whose loader has read the variable before it was set."""
    from _ctypes import dlopen

    from peerlane.c_abi import folders

    for folder in folders():
        for name in os.listdir(folder):  # noqa: PTH208 - pathlib is not needed for anything else
            if ".so" in name:  # some end in a number
                dlopen(f"{folder}/{name}", 0)


def _load_first(name: str) -> None:
    """Let programs load a library of peerlane before all others."""
    from peerlane.c_abi import folder

    library, known = f"{folder()}/preload/lib{name}.so", os.environ.get("LD_PRELOAD", "")
    if library not in known.split(":"):
        os.environ["LD_PRELOAD"] = f"{library}:{known}" if known else library
    # AddressSanitizer refuses to run behind another library, which does it no harm if it takes no memory before.
    options = os.environ.get("ASAN_OPTIONS", "")
    if "verify_asan_link_order" not in options:
        os.environ["ASAN_OPTIONS"] = ":".join(filter(None, (options, "verify_asan_link_order=0")))


def execute(words: list[str]) -> int:
    """Replace this process by a program; return the shell's exit code for one that does not start."""
    set_library_path(words[0])
    if os.environ.get("PEERLANE_LOG"):
        _load_first("peerlane_threads")  # the log has the order of the program's threads
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and a program inherits that
    try:
        os.execv(words[0] if "/" in words[0] else f"./{words[0]}", words)
    except OSError as error:
        print(f"peerlane: {words[0]} does not start: {error.strerror}", file=sys.stderr)
        return 126


if __name__ == "__main__":
    sys.exit(execute(sys.argv[1:]))
