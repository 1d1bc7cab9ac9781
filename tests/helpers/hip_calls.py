"""Small steps of the tests of ``hip``."""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any

from peerlane.dialects.hip import explain

GTE, EQ, AND, NOR = range(4)
ALL = 0xFFFFFFFF


def code(result: tuple[Any, ...]) -> str:
    """Return the name of a call's code."""
    return str(result[0].name)


def done(result: tuple[Any, ...]) -> Any:
    """Check that a call succeeded, and return its outputs."""
    assert code(result) == "hipSuccess", explain()
    return result[1] if len(result) == 2 else result[1:]


def content(hip: ModuleType, pointer: Any, nbytes: int) -> bytes:
    """Return bytes of any memory, in the order of the null stream."""
    copied = bytearray(nbytes)
    done(hip.hipMemcpy(copied, pointer, nbytes, hip.hipMemcpyKind.hipMemcpyDefault))
    return bytes(copied)


def holding(hip: ModuleType, data: bytes) -> Any:
    """Return memory of the current device that holds these bytes."""
    memory = done(hip.hipMalloc(len(data)))
    done(hip.hipMemcpy(memory, data, len(data), hip.hipMemcpyKind.hipMemcpyHostToDevice))
    return memory


class Gate:
    """A word of pinned memory that a stream waits for until the test opens the gate."""

    def __init__(self, hip: ModuleType) -> None:
        self._hip = hip
        self.address = int(done(hip.hipHostMalloc(8, 0)))
        self._word = ctypes.c_uint32.from_address(self.address)
        self._word.value = 0

    def close(self, stream: Any) -> None:
        """Make operations submitted from now on wait until the gate is open."""
        done(self._hip.hipStreamWaitValue32(stream, self.address, 1, GTE, ALL))

    def open(self) -> None:
        """Let everything go on."""
        self._word.value = 1
