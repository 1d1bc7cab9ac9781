"""Lets tests of the dialect `hip` call libamdhip64.so: ``pytest -p helpers.hip_through_c``."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from helpers.hip_c_calls import declarations, library
from helpers.through_c import NotForC, Through, write_down
from peerlane.dialects._shared.c_declarations import Declarator, Function
from peerlane.dialects.hip import c_library, hip
from peerlane.dialects.hip.binding import facts, real_name
from peerlane.dialects.hip.binding.arguments import shape_of
from peerlane.dialects.hip.binding.convention import SUCCESS, answers
from peerlane.dialects.hip.state import calls


def _passed(function: Function, args: Sequence[Any]) -> list[Any]:
    readers = shape_of(function.dialect).readers
    return [read(each) for read, each in zip(readers, args, strict=True)]


def _struct_of(parameter: Declarator, value: Any) -> bytes:
    if value is None or isinstance(value, bytes):
        raise NotForC
    return ctypes.string_at(int(value), int(facts()["structs"][real_name(parameter.type)]["size"]))


def pytest_configure() -> None:
    declared = declarations()
    through = Through(declared, library(), convert=_passed, success=(SUCCESS,), struct_of=_struct_of)
    for function in declared.functions.values():
        name = function.dialect
        if (
            function.is_refused
            or name in c_library._OTHERS
            or function.returns.type != answers(name).__name__
        ):
            continue
        calls._modules[""][name], call = through.wrap(function, calls._modules[""][name])
        setattr(hip, name, call)


def pytest_sessionfinish() -> None:
    write_down()
