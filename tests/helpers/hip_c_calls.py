"""Calls every function of libamdhip64.so with one value for all arguments: ``hip_c_calls.py nothing|few|most``.

It prints each function with what it returned, the name before the call: the last one is that which ended the process.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from peerlane.c_abi import directory
from peerlane.dialects._shared.c_declarations import Declarations, Declarator, Function
from peerlane.dialects._shared.c_names import declarations_of

_NUMBERS = {"nothing": 0, "few": 3, "most": -1}
_ENDING = {"hipDeviceReset", "hipDevicePrimaryCtxReset"}  # what the others are about
_INTEGERS = {1: ctypes.c_int8, 2: ctypes.c_int16, 4: ctypes.c_int32, 8: ctypes.c_int64}


def declarations() -> Declarations:
    """Return what the library declares."""
    return declarations_of("hip")


def library() -> ctypes.CDLL:
    """Open the library."""
    return ctypes.CDLL(str(directory() / "libamdhip64.so"))


def _struct(declared: Declarations, name: str) -> Any:
    fields = []
    for each in declared.structs[name].fields:
        width, _ = declared.scalar(Declarator(each.name, each.type, each.stars)) or (0, "")
        fields.append((each.name, _INTEGERS[width] * int(each.count or 1)))
    return type(name, (ctypes.Structure,), {"_fields_": fields})


def _argument(declared: Declarations, parameter: Declarator, number: int, memory: int) -> Any:
    scalar = declared.scalar(parameter)
    if scalar is None:
        return _struct(declared, parameter.type)()
    width, kind = scalar
    if kind == "p":
        return ctypes.c_void_p(memory if number else 0)
    return _INTEGERS[width](number)


def _result(function: Function) -> Any:
    if function.returns.is_pointer:
        return ctypes.c_char_p if function.returns.type == "char" else ctypes.c_void_p
    return ctypes.c_int


def main() -> None:
    """Call them."""
    declared, opened, number = declarations(), library(), _NUMBERS[sys.argv[1]]
    memory = ctypes.create_string_buffer(1 << 16)
    for name, function in declared.functions.items():
        if name in _ENDING:
            continue
        called = opened[name]
        called.restype = _result(function)
        ctypes.memset(memory, 0, len(memory))
        print(name, end=" ", flush=True)
        arguments = [
            _argument(declared, each, number, ctypes.addressof(memory)) for each in function.parameters
        ]
        print(called(*arguments), flush=True)


if __name__ == "__main__":
    main()
