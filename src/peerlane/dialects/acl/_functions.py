"""Functions of the program: which of them are the same."""

from __future__ import annotations

import ctypes
from typing import Any

from peerlane.streams.callbacks import CFunction

_Function: Any = ctypes.CFUNCTYPE(None).__mro__[1]  # of every ctypes function


def address_of(function: object) -> object:
    """Return what two functions have in common that are the same: the address of code of C, or the object."""
    if isinstance(function, CFunction):
        return function.code
    return ctypes.cast(function, ctypes.c_void_p).value if isinstance(function, _Function) else function
