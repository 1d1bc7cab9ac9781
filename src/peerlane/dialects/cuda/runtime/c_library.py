"""``libcudart.so.12`` and ``libcudart.so.13``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peerlane.dialects._shared.c_library import Library
from peerlane.dialects.cuda.codes import RUNTIME_NAMES
from peerlane.dialects.cuda.entries import Entries
from peerlane.dialects.cuda.quick import quick
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
from peerlane.dialects.cuda.state import speaking

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
        "cudaGetDeviceProperties_v2",
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


def _speaking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call whose texts have the runtime's names."""

    def speaking_call(*arguments: Any) -> Any:
        before, speaking.names = speaking.names, RUNTIME_NAMES
        try:
            return function(*arguments)
        finally:
            speaking.names = before

    return speaking_call


def library(header: str) -> Library:
    """Return the library of a header."""
    runtime = Runtime(header)
    runtime.calls.define("cudaGetDriverEntryPoint", lookup.entry_point_of(lookup.version_of(header)))
    plain = lookup.plain(runtime)
    entries = Entries(runtime.calls, current.enter, _WITHOUT_CONTEXT)

    def call(name: str) -> Callable[..., Any]:
        return plain.get(name) or _speaking(entries.function(name))

    return Library(
        runtime.calls.declarations,
        call=call,
        refuse=runtime.calls.refuse_argument,
        learn={
            "cudaGetDevice": quick.thread,
            "cudaMemcpy": quick.thread,
            "cudaMemcpyAsync": quick.stream,
            **quick.of_streams("cuda"),
        },
    )
