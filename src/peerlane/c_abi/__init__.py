"""C libraries with the vendors' functions, for programs in C and C++, for ctypes, and for bindings that open them.

The libraries lie in :func:`directory`, those of dialects outside peerlane in ``lib`` of the dialect's folder.  Each
function hands its arguments to the dialect of the vendor, which answers as it answers Python: there is one
implementation, and one node in a process that also imports peerlane.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from peerlane.dialects import has_driver, installed, manifest_of, registered
from peerlane.support.libraries import folder as folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def folders() -> list[str]:
    """Return the paths of all folders with libraries, that of peerlane first.

    Without the libraries of a dialect that is not installed and whose vendor's driver is on this machine.
    """
    left_out = [name for name in registered() if name not in installed() and has_driver(name)]
    others = (f"{manifest_of(name).folder}/lib" for name in registered() if name not in left_out)
    own = _without(left_out) if left_out else folder()
    return [own, *(each for each in others if os.path.isdir(each))]  # noqa: PTH112 - its import takes long


def _without(dialects: Sequence[str]) -> str:
    """Return a folder of links to the libraries of peerlane but for those of some dialects; make it if need be."""
    import shutil
    import tempfile
    from hashlib import sha256
    from pathlib import Path

    from peerlane.support.runtime_directory import runtime_directory

    names = [name.split(".")[0] for each in dialects for name in manifest_of(each).libraries]
    paths = [
        each
        for each in sorted(Path(folder()).iterdir())
        if not each.name.startswith(tuple(f"lib{name}.so" for name in names))
    ]
    digest = sha256("\0".join(map(str, paths)).encode()).hexdigest()[:16]
    links = runtime_directory() / f"libraries-{digest}"
    if not links.exists():
        scratch = Path(tempfile.mkdtemp(dir=links.parent))
        for each in paths:
            (scratch / each.name).symlink_to(each)
        try:
            scratch.rename(links)
        except OSError:  # another process was quicker
            shutil.rmtree(scratch)
    return str(links)


def directory() -> Path:
    """Return the folder of the libraries."""
    from pathlib import Path

    return Path(folder())
