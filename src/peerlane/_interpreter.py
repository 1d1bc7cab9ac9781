"""Refuses platforms and interpreters for which the native module is not written, before anything loads it.

In a sub-interpreter a second load would break the first interpreter's types, which belong to one interpreter.
"""

from __future__ import annotations

import importlib
import os
import sys

if sys.platform != "linux":
    _instead = {
        "win32": "; on Windows install it in WSL 2",
        "darwin": "; on macOS use a Linux virtual machine or container",
    }
    raise ImportError(
        f"peerlane runs on Linux alone, and this is {sys.platform}{_instead.get(sys.platform, '')}"
    )
if os.uname().machine not in ("x86_64", "aarch64") or sys.maxsize < 2**63 - 1:
    raise ImportError(
        f"peerlane runs on 64-bit x86-64 and AArch64, and this is a {sys.maxsize.bit_length() + 1}-bit Python "
        f"on {os.uname().machine}"
    )
if sys.implementation.name != "cpython" or "t" in sys.abiflags:
    _this = "its free-threaded build" if sys.implementation.name == "cpython" else sys.implementation.name
    raise ImportError(f"peerlane needs CPython with the GIL, and this is {_this}")

for _name in ("_interpreters", "_xxsubinterpreters"):  # since Python 3.13; before that
    try:
        _module = importlib.import_module(_name)
    except ImportError:
        continue
    _current = _module.get_current()
    if int(_current[0] if isinstance(_current, tuple) else _current) != 0:
        raise ImportError("peerlane cannot be imported in a sub-interpreter; use a process of its own")
    break
