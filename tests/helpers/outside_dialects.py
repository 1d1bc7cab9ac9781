"""The C library of a dialect outside peerlane, as the guide for authors of dialects builds it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from peerlane.c_abi import directory

_NATIVE = Path(__file__).parents[2] / "native"
_SECONDS = 120


def build_library(folder: Path, name: str) -> Path:
    """Build the library of a dialect's folder into its ``lib``, and return the library."""
    source, library = folder / "lib" / "entry_points.cpp", folder / "lib" / f"lib{name}.so"
    source.parent.mkdir()
    script = str(_NATIVE / "headers" / "entry_points.py")
    subprocess.run([sys.executable, script, folder / f"{name}.h.txt", source], check=True, timeout=_SECONDS)
    words = ["c++", "-std=c++20", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{_NATIVE}", source]
    links = [f"-L{directory()}", f"-Wl,-rpath,{directory()}", "-lpeerlane_c"]
    subprocess.run([*words, *links, "-o", library], check=True, timeout=_SECONDS)
    return library
