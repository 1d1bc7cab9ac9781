"""Where the C libraries lie."""

from __future__ import annotations

import os
from importlib.util import find_spec


def folder() -> str:
    """Return the path of their folder, which is beside the native modules, and import little."""
    spec = find_spec("peerlane._core")  # to load it takes long
    assert spec is not None and spec.origin is not None
    return os.path.join(os.path.dirname(spec.origin), "lib")  # noqa: PTH118, PTH120
