"""C libraries with the vendors' functions, for programs in C and C++, for ctypes, and for bindings that open them.

The libraries lie in :func:`directory`.  Each function hands its arguments to the dialect of the vendor, which answers
as it answers Python: there is one implementation, and one node in a process that also imports peerlane.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def directory() -> Path:
    """Return the folder of the libraries."""
    from pathlib import Path

    return Path(folder())


def folder() -> str:
    """Return its path, which is beside that of the native modules, and import little."""
    spec = find_spec("peerlane._core")  # to load it takes long
    assert spec is not None and spec.origin is not None
    return os.path.join(os.path.dirname(spec.origin), "lib")  # noqa: PTH118, PTH120
