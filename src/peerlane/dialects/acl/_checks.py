"""Checks of single arguments, with the codes of the vendor: its upper layer checks first, then the runtime."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Container
from functools import partial
from typing import Any

from peerlane.dialects._shared import checks
from peerlane.dialects._shared.call import Check, Refusal, type_name
from peerlane.dialects.acl._codes import Code
from peerlane.streams.callbacks import CFunction

_Function: Any = ctypes.CFUNCTYPE(None).__mro__[1]  # the base class of every ctypes function

null = partial(checks.null, Code.INVALID_PARAM)
zero = partial(checks.zero, Code.INVALID_PARAM)
reserved = partial(checks.reserved, Code.INVALID_PARAM)
reserved_below = partial(checks.reserved, Code.RT_PARAM_INVALID)  # the runtime checks it


def one_of(
    name: str,
    valid: Container[object],
    remedy: str,
    *,
    code: Code = Code.RT_PARAM_INVALID,
    shown: Callable[[Any], str] = str,
) -> Check:
    """Refuse a value that is not valid, with the runtime's code unless ``code`` is another."""
    return checks.one_of(code, valid, remedy, names=(name,), shown=shown)


def refuse_no_function(code: Code, name: str, value: Any) -> Any:
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
