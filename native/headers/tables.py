"""Writes what a dialect reads of its vendor's header when a program starts: ``tables.py HEADER OUT``.

HEADER is ``NAME.h.txt`` in the dialect's folder, OUT the folder of the tables.

To read the header of HIP takes some forty milliseconds, to load these tables six.
"""

from __future__ import annotations

import importlib
import marshal
import pickle
import sys
from pathlib import Path

from sources import use_sources

use_sources()

from peerlane.dialects._shared import c_declarations  # noqa: E402


def main() -> None:
    """Write the declarations of the C library, and what the binding for Python makes of the header."""
    header, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    folder, name = header.parent, header.name.removesuffix(".h.txt")
    declared = c_declarations.read_header(folder, name)
    (out / f"{name}.declarations").write_bytes(pickle.dumps(declared.library(), 5))
    if (folder / "_binding.py").exists():
        binding = importlib.import_module(f"peerlane.dialects.{folder.name}._binding").binding_of(declared)
        (out / f"{name}.binding").write_bytes(marshal.dumps(binding))


main()
