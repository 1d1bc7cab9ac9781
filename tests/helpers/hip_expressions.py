"""Expressions on hip-python's classes, evaluated the same way on a public wheel and on the dialect.

Usage: ``WHEEL_PYTHON tests/helpers/hip_expressions.py``, with hip-python 10.0 installed, measures the expressions in
``tests/dialects/hip/hip_measured.json`` anew and writes what came out beside each.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

MEASURED = Path(__file__).parents[1] / "dialects" / "hip" / "hip_measured.json"
EXPRESSIONS: list[str] = list(json.loads(MEASURED.read_text()))

CRASH = "crash"


class CAI:
    """An object with the CUDA array interface that it is given."""

    def __init__(self, **interface: object) -> None:
        self.__cuda_array_interface__ = interface


class VP:
    """An object that gives itself as a C pointer."""

    def as_c_void_p(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(77)


def namespace(hip: Any, types: Any) -> dict[str, Any]:
    """Return what the expressions use."""
    interface = CAI(data=(4096, False), shape=(16,), typestr="<i4", version=3, strides=None)
    b = bytearray(range(64))
    return {
        "hip": hip,
        "T": types,
        "ctypes": ctypes,
        "array": array,
        "CAI": CAI,
        "VP": VP,
        "b": b,
        "c": types.CStr(b"abc"),
        "nd": types.NDBuffer(b),
        "d": types.DeviceArray.fromObj(b),
        "da": types.DeviceArray.fromObj(interface),
    }


def outcome(expression: str, make: Callable[[], dict[str, Any]]) -> str:
    """Return the repr of the value, addresses as #, or the exception's class."""
    try:
        text = repr(eval(expression, make()))
    except Exception as error:  # noqa: BLE001 - whatever it raises is what is asked
        return f"raises {type(error).__name__}"
    return re.sub(r"0x[0-9a-f]{9,}|\d{9,}", "#", text)


def in_a_child(expression: str, make: Callable[[], dict[str, Any]]) -> str:
    """Return the outcome, or CRASH when the interpreter ends."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            os.write(writer, outcome(expression, make).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        text = answer.read().decode()
    os.waitpid(child, 0)
    return text or CRASH


def main() -> None:
    from hip import _util, hip  # type: ignore[import-not-found]

    outcomes = {each: in_a_child(each, lambda: namespace(hip, _util.types)) for each in EXPRESSIONS}
    MEASURED.write_text(json.dumps(outcomes, indent=1) + "\n")


if __name__ == "__main__":
    main()
