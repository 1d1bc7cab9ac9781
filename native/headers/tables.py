"""Writes what a dialect reads of its vendor's header when a program starts: ``tables.py DIALECT HEADER FOLDER``.

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
    dialect, header, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    declared = c_declarations.read(header.read_text())
    (folder / f"{dialect}.declarations").write_bytes(pickle.dumps(declared.library(), 5))
    if header.with_name("_binding.py").exists():
        binding = importlib.import_module(f"peerlane.dialects.{dialect}._binding").binding_of(declared)
        (folder / f"{dialect}.binding").write_bytes(marshal.dumps(binding))


main()
