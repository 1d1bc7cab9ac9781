"""Lets tests of the dialect `acl` call libascendcl.so: ``pytest -p helpers.acl_through_c``."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

from helpers.c_programs import declarations
from helpers.through_c import NotForC, Through, write_down
from peerlane.c_abi import directory
from peerlane.dialects._shared.c_declarations import Declarator, Function
from peerlane.dialects.acl import c_library
from peerlane.dialects.acl._state import acl as calls

_LIBRARY = c_library.library("acl")


def _passed(_: Function, args: Sequence[Any]) -> Sequence[Any]:
    if not all(type(each) in (int, str, list, dict) for each in args):
        raise NotForC
    return args


def _struct_of(parameter: Declarator, value: Any) -> bytes:
    if not isinstance(value, dict):
        raise NotForC
    room = ctypes.create_string_buffer(ctypes.sizeof(_LIBRARY.layout.struct(parameter.type)))
    _LIBRARY.write_struct(parameter.type, ctypes.addressof(room), value)
    return room.raw


def pytest_configure() -> None:
    declared = declarations("acl")
    opened = ctypes.CDLL(str(directory() / "libascendcl.so"))
    through = Through(declared, opened, convert=_passed, success=0, struct_of=_struct_of)
    for function in declared.functions.values():
        module, _, short = function.dialect.rpartition(".")
        if function.dialect in c_library._OTHERS or function.returns.type != "aclError" or not module:
            continue
        calls._modules[module][short], call = through.wrap(function, calls._modules[module][short])
        setattr(sys.modules[f"peerlane.dialects.{module}"], short, call)


def pytest_sessionfinish() -> None:
    write_down()
