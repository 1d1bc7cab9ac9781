"""Calls of CUDA's libraries in the process of a test."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from helpers.promises import Node
from peerlane import dialects
from peerlane.dialects._shared.c_layout import Layout
from peerlane.dialects._shared.c_names import declarations_of
from peerlane.support.libraries import folder

SUCCESS, INVALID_VALUE, NOT_INITIALIZED, NO_DEVICE = 0, 1, 3, 100
INVALID_DEVICE, INVALID_CONTEXT, PEER_NOT_SUPPORTED, OPERATING_SYSTEM = 101, 201, 217, 304
INVALID_HANDLE, NOT_FOUND, NOT_READY, NOT_SUPPORTED = 400, 500, 600, 801
PEER_ALREADY_ENABLED, PEER_NOT_ENABLED, CONTEXT_IS_DESTROYED = 704, 705, 709

LAYOUT = Layout(declarations_of("cuda").library())


class CudaError(Exception):
    """A call that returned a code other than 0."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} returned {code}")
        self.code = code


class Driver:
    """A library: each function takes words, returns what it writes, and raises for a code.

    The parameters that it writes are C types among the arguments: ``driver.cuMemAlloc_v2(c_uint64, 64)``.
    """

    def __init__(self, name: str = "libcuda.so.1") -> None:
        self.library = ctypes.CDLL(f"{folder()}/{name}")

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.library, name)

        def call(*arguments: Any) -> Any:
            written = [each() for each in arguments if isinstance(each, type)]
            words = iter(written)
            passed = [
                ctypes.byref(next(words)) if isinstance(each, type) else _word(each) for each in arguments
            ]
            code = function(*passed)
            if code:
                raise CudaError(name, code)
            values = [each.value for each in written]
            return values[0] if len(values) == 1 else values

        return call


def code(call: Callable[..., object], *arguments: object) -> int:
    """Return the code of a call that fails."""
    with pytest.raises(CudaError) as raised:
        call(*arguments)
    return raised.value.code


def begin(driver: Driver) -> Driver:
    """Call cuInit, and make the primary context of device 0 current."""
    driver.cuInit(0)
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(WORD, 0))
    return driver


def begun_driver(node: Node) -> Iterator[Driver]:
    """Begin the driver of a new process in device 0 of two: the function of a fixture."""
    node()
    dialects.begin_anew("cuda")
    yield begin(Driver())
    dialects.begin_anew("cuda")


def struct(name: str, **fields: Any) -> Any:
    """Return a struct of the driver's header with values for fields."""
    instance = LAYOUT.struct(name)()
    for each, value in fields.items():
        setattr(instance, each, value)
    return instance


def words(*numbers: int) -> ctypes.Array[ctypes.c_uint64]:
    """Return an array of words."""
    return (ctypes.c_uint64 * len(numbers))(*numbers)


def _word(value: Any) -> Any:
    return ctypes.c_uint64(value & (1 << 64) - 1) if isinstance(value, int) else value


WORD, INT = ctypes.c_uint64, ctypes.c_int
