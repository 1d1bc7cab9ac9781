"""Functions that programs pass: refused if they are none, and compared."""

from __future__ import annotations

import ctypes
from typing import Any

from peerlane.dialects._shared.call import Refusal, type_name
from peerlane.dialects.acl._codes import Code
from peerlane.streams.callbacks import CFunction

_Function: Any = ctypes.CFUNCTYPE(None).__mro__[1]  # the base class of every ctypes function


def refuse_other(code: Code, name: str, value: Any) -> Any:
    """Return a function; refuse any other value of an argument."""
    if not callable(value):
        kind = "NULL" if value is None else f"of type {type_name(value)}"
        raise Refusal(code, f"{name} is {kind}", "pass a function")
    return value


def identity_of(function: object) -> object:
    """Return a key that is equal for the same function: the address of C code, or the object."""
    if isinstance(function, CFunction):
        return function.code
    return ctypes.cast(function, ctypes.c_void_p).value if isinstance(function, _Function) else function
