"""C libraries with the vendors' functions, for programs in C and C++, for ctypes, and for bindings that open them.

The libraries lie in :func:`directory`, those of dialects outside peerlane in ``lib`` of the dialect's folder.  Each
function hands its arguments to the dialect of the vendor, which answers as it answers Python: there is one
implementation, and one node in a process that also imports peerlane.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from peerlane.dialects import manifest_of, registered
from peerlane.support.libraries import folder as folder

if TYPE_CHECKING:
    from pathlib import Path


def folders() -> list[str]:
    """Return the paths of all folders with libraries, that of peerlane first."""
    others = (f"{manifest_of(name).folder}/lib" for name in registered())
    return [folder(), *(each for each in others if os.path.isdir(each))]  # noqa: PTH112 - its import takes long


def directory() -> Path:
    """Return the folder of the libraries."""
    from pathlib import Path

    return Path(folder())
