"""``libcudart.so.12`` and ``libcudart.so.13``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peerlane.dialects._shared.c_library import Library
from peerlane.dialects.cuda.entries import Entries
from peerlane.dialects.cuda.quick import learn_calls, learn_stream, learn_thread
from peerlane.dialects.cuda.runtime import (  # noqa: F401 - they declare calls
    copies,
    devices,
    graphs,
    kernels,
    lookup,
    memory,
    streams,
)
from peerlane.dialects.cuda.runtime.table import Runtime, current

_WITHOUT_CONTEXT = frozenset(
    {
        "cudaChooseDevice",
        "cudaDeviceCanAccessPeer",
        "cudaDeviceGetAttribute",
        "cudaDeviceGetByPCIBusId",
        "cudaDeviceGetP2PAttribute",
        "cudaDeviceGetPCIBusId",
        "cudaDeviceReset",
        "cudaDriverGetVersion",
        "cudaGetDevice",
        "cudaGetDeviceCount",
        "cudaGetDeviceFlags",
        "cudaGetDeviceProperties",
        "cudaGetDriverEntryPoint",
        "cudaGetDriverEntryPointByVersion",
        "cudaGetExportTable",
        "cudaInitDevice",
        "cudaSetDevice",
        "cudaSetDeviceFlags",
        "cudaSetValidDevices",
        "cudaThreadExit",
    }
)


def library(header: str) -> Library:
    """Return the library of a header."""
    runtime = Runtime(header)
    plain = lookup.plain(runtime)
    entries = Entries(runtime.calls, current.enter, _WITHOUT_CONTEXT)

    def call(name: str) -> Callable[..., Any]:
        return plain.get(name) or entries.function(name)

    return Library(
        runtime.calls.declarations,
        call=call,
        refuse=runtime.calls.refuse_argument,
        learn={
            "cudaGetDevice": learn_thread,
            "cudaMemcpy": learn_thread,
            "cudaMemcpyAsync": learn_stream,
            "cudaLaunchHostFunc": learn_calls,
        },
    )
