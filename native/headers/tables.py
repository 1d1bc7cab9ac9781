"""Writes what a dialect reads of its vendor's header when a program starts: ``tables.py FOLDER OUT``.

FOLDER is the dialect's, with its header, OUT that of the tables.

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
    folder, out = map(Path, sys.argv[1:])
    dialect = folder.name
    declared = c_declarations.read((folder / f"{dialect}.h.txt").read_text())
    (out / f"{dialect}.declarations").write_bytes(pickle.dumps(declared.library(), 5))
    if (folder / "_binding.py").exists():
        binding = importlib.import_module(f"peerlane.dialects.{dialect}._binding").binding_of(declared)
        (out / f"{dialect}.binding").write_bytes(marshal.dumps(binding))


main()
