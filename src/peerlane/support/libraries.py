"""Where what the build makes lies: the C libraries, and tables of the vendors' headers."""

from __future__ import annotations

import marshal
import os
from functools import cache
from importlib.util import find_spec
from typing import Any


def folder() -> str:
    """Return the path of the C libraries' folder."""
    return _beside_native("lib")


def tables() -> str:
    """Return the path of the tables' folder."""
    return _beside_native("tables")


@cache
def binding(dialect: str) -> dict[str, Any]:
    """Return the table of plain values that the build makes of a vendor's header, read at the first use.

    Returns the return value of ``binding_of`` in the dialect's module ``_binding``.  Callers must not change it.
    """
    with open(f"{tables()}/{dialect}.binding", "rb") as file:  # noqa: PTH123
        values: dict[str, Any] = marshal.loads(file.read())  # load() asks the file for each value
    return values


def address_of(library: str, symbol: str) -> int:
    """Return the address of a function of a C library, by the library's file; 0 if it has none of that name."""
    import ctypes  # few processes look a function up

    function = getattr(_opened(library), symbol, None)
    return ctypes.cast(function, ctypes.c_void_p).value or 0 if function is not None else 0


@cache
def _opened(library: str) -> Any:
    import ctypes

    return ctypes.CDLL(f"{folder()}/{library}")


def _beside_native(name: str) -> str:
    """Return the path of a folder beside the native modules, and import little."""
    spec = find_spec("peerlane._core")  # to load it takes long
    assert spec is not None and spec.origin is not None
    return os.path.join(os.path.dirname(spec.origin), name)  # noqa: PTH118, PTH120
