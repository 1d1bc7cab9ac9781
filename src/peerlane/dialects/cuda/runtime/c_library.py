"""``libcudart.so.12`` and ``libcudart.so.13``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peerlane.dialects._shared.c_library import Library
from peerlane.dialects.cuda.codes import RUNTIME_NAMES
from peerlane.dialects.cuda.entries import Entries
from peerlane.dialects.cuda.quick import quick, with_variants
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
from peerlane.dialects.cuda.state import driver, gpu, thread_names

_BEFORE_BEGIN = frozenset(
    {
        "cudaDriverGetVersion",
        "cudaGetDriverEntryPoint",
        "cudaGetDriverEntryPointByVersion",
        "cudaGetExportTable",
    }
)
_WITHOUT_CONTEXT = _BEFORE_BEGIN | frozenset(
    {
        "cudaChooseDevice",
        "cudaDeviceCanAccessPeer",
        "cudaDeviceGetAttribute",
        "cudaDeviceGetByPCIBusId",
        "cudaDeviceGetP2PAttribute",
        "cudaDeviceGetPCIBusId",
        "cudaDeviceReset",
        "cudaGetDevice",
        "cudaGetDeviceCount",
        "cudaGetDeviceFlags",
        "cudaGetDeviceProperties",
        "cudaGetDeviceProperties_v2",
        "cudaInitDevice",
        "cudaSetDevice",
        "cudaSetDeviceFlags",
        "cudaSetValidDevices",
        "cudaThreadExit",
    }
)


def _with_runtime_names(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call whose texts have the runtime's names."""

    def named_call(*arguments: Any) -> Any:
        before, thread_names.names = thread_names.names, RUNTIME_NAMES
        try:
            return function(*arguments)
        finally:
            thread_names.names = before

    return named_call


def library(header: str) -> Library:
    """Return the library of a header."""
    runtime = Runtime(header)
    runtime.calls.define("cudaGetDriverEntryPoint", lookup.entry_point_of(lookup.version_of(header)))
    plain = lookup.plain(runtime)
    entering = Entries(runtime.calls, current.enter, (), gpu.unusable.refuse_news).function
    beginning = Entries(runtime.calls, driver.begin, _BEFORE_BEGIN).function

    def call(name: str) -> Callable[..., Any]:
        base = name.removesuffix("_ptds").removesuffix("_ptsz")
        function = beginning if base in _WITHOUT_CONTEXT else entering
        return plain.get(name) or _with_runtime_names(function(name))

    return Library(
        runtime.calls.declarations,
        call=call,
        refuse=runtime.calls.refuse_argument,
        learn=with_variants(
            runtime.calls.declarations,
            {
                "cudaGetDevice": quick.thread,
                "cudaMemcpy": quick.thread,
                "cudaMemcpyAsync": quick.stream,
                **quick.of_streams("cuda"),
                **quick.of_pools("cudaMallocAsync", "cudaMallocFromPoolAsync", "cudaFreeAsync"),
            },
        ),
    )
