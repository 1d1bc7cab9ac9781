"""Steps that tests of HIP share, and work that waits."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from peerlane import Host, Stream, raw
from peerlane.dialects.hip.streams.stream import stream_of, streams


def code(result: tuple[Any, ...]) -> str:
    """Return the name of a call's code."""
    return str(result[0].name)


def done(result: tuple[Any, ...]) -> Any:
    """Check that a call succeeded, and return its outputs."""
    assert code(result) == "hipSuccess"
    return result[1] if len(result) == 2 else result[1:]


def on(hip: ModuleType, device: int, nbytes: int, fill: int = 0) -> Any:
    """Make a device current and return memory of it, filled."""
    done(hip.hipSetDevice(device))
    memory = done(hip.hipMalloc(nbytes))
    done(
        hip.hipMemcpy(
            memory, np.full(nbytes, fill, np.uint8), nbytes, hip.hipMemcpyKind.hipMemcpyHostToDevice
        )
    )
    return memory


def read(hip: ModuleType, array: Any, nbytes: int) -> Any:
    """Return the bytes at an address."""
    content = np.zeros(nbytes, np.uint8)
    done(hip.hipMemcpy(content, array, nbytes, hip.hipMemcpyKind.hipMemcpyDefault))
    return content


def write(hip: ModuleType, array: Any, data: bytes) -> None:
    """Put bytes at an address."""
    done(hip.hipMemcpy(array, data, len(data), hip.hipMemcpyKind.hipMemcpyDefault))


def neutral(stream: Any) -> Stream:
    """Return the neutral stream below a stream of HIP; a device's number stands for its null stream."""
    if isinstance(stream, int):
        return streams.null_of(stream).neutral
    return stream_of(int(stream)).neutral


@contextmanager
def held(*streams: Any) -> Iterator[None]:
    """Let what streams are given wait for the end of the block; a device's number means its null stream."""
    with Host().allocate(8) as word:
        number = ctypes.c_uint64.from_address(word.address)
        number.value = 0
        for stream in streams:
            raw.wait_value(word.address, 1, stream=neutral(stream), timeout=30)
        try:
            yield
        finally:
            number.value = 1
        for stream in streams:
            neutral(stream).sync()
