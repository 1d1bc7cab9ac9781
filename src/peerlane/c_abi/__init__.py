"""C libraries with the vendors' functions, for programs in C and C++, for ctypes, and for bindings that open them.

The libraries lie in :func:`directory`.  Each function hands its arguments to the dialect of the vendor, which answers
as it answers Python: there is one implementation, and one node in a process that also imports peerlane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlane.support.libraries import folder as folder

if TYPE_CHECKING:
    from pathlib import Path


def directory() -> Path:
    """Return the folder of the libraries."""
    from pathlib import Path

    return Path(folder())
