"""Where what the build makes lies: the C libraries, and tables of the vendors' headers."""

from __future__ import annotations

import os
from importlib.util import find_spec


def folder() -> str:
    """Return the path of the C libraries' folder."""
    return _beside_native("lib")


def tables() -> str:
    """Return the path of the tables' folder."""
    return _beside_native("tables")


def _beside_native(name: str) -> str:
    """Return the path of a folder beside the native modules, and import little."""
    spec = find_spec("peerlane._core")  # to load it takes long
    assert spec is not None and spec.origin is not None
    return os.path.join(os.path.dirname(spec.origin), name)  # noqa: PTH118, PTH120
