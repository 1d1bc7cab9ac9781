"""Expressions give the results that were measured on the public wheel of hip-python 10.0."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helpers.each import for_each
from helpers.hip_expressions import CRASH, EXPRESSIONS, MEASURED, namespace, outcome
from peerlane.dialects.hip.binding import types
from peerlane.dialects.hip.binding.enums import enumeration, is_enumeration
from peerlane.dialects.hip.binding.structs import struct

pytestmark = pytest.mark.any_schedule

RESULTS: dict[str, str] = json.loads(MEASURED.read_text())

# Where the wheel's result cannot be used, and where peerlane accepts more.
OTHERWISE = {
    "memoryview(T.NDBuffer(5))": "raises BadAddress",  # the wheel's view ends the interpreter when it is read
    "memoryview(T.NDBuffer(None))": "raises BadAddress",
    "hip.hipMemAllocationProp.fromObj(None).location": "raises ValueError",  # the wheel's struct lies at address 8
    "T.NDBuffer(ctypes.create_string_buffer(5)).shape": "(5,)",
    # The wheel says "B" and elements of 4 bytes, which no consumer reads; here they are bytes.
    'memoryview(T.NDBuffer(memoryview(bytearray(16)).cast("i"))).itemsize': "1",
}


class Names:
    def __getattr__(self, name: str) -> Any:
        return enumeration(name) if is_enumeration(name) else struct(name)


@for_each("expression", EXPRESSIONS)
def test_hip_types_expression_gives_result_measured_on_the_wheel(expression: str) -> None:
    measured = outcome(expression, lambda: namespace(Names(), types))
    expected = OTHERWISE.get(expression, RESULTS[expression])
    assert expected in (measured, CRASH)
