"""The table of plain values that the build makes of a vendor's header for the dialect's modules; it loads fast."""

from __future__ import annotations

import marshal
from functools import cache
from pathlib import Path
from typing import Any

from peerlane.support import libraries


@cache
def table(dialect: str) -> dict[str, Any]:
    """Return the table of a dialect, read at the first use.

    Returns
    -------
    dict
        The return value of ``binding_of`` in the dialect's module ``_binding``.  Callers must not change it.
    """
    binding: dict[str, Any] = marshal.loads(Path(libraries.tables(), f"{dialect}.binding").read_bytes())
    return binding
