"""What the build makes of a vendor's header for the dialect's modules: a table of plain values, which loads fast."""

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
        What ``binding_of`` of the dialect's module ``_binding`` returns.  Callers do not change it.
    """
    found: dict[str, Any] = marshal.loads(Path(libraries.tables(), f"{dialect}.binding").read_bytes())
    return found
