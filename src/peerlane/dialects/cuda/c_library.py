"""The dialect for C: ``libcuda.so.1`` here, and other libraries in folders of their own."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from peerlane.dialects._shared.c_library import Library
from peerlane.dialects.cuda import (  # noqa: F401 - they declare the calls
    attributes,
    batches,
    contexts,
    copies,
    devices,
    graphs,
    kernels,
    managed,
    memory,
    pools,
    sharing,
    streams,
    virtual,
)
from peerlane.dialects.cuda.entries import Entries
from peerlane.dialects.cuda.quick import learn_calls, learn_stream, learn_thread
from peerlane.dialects.cuda.state import calls, driver, gpu
from peerlane.dialects.gpu.vendor import Reason

_FOLDERS = {"cudart": "runtime", "cudart12": "runtime", "nvml": "nvml", "nccl": "nccl"}
_BEFORE_INIT = {
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetExportTable",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
}


def _refuse_before_init() -> None:
    if not driver.is_initialized:
        raise gpu.vendor.refusal(
            Reason.NOT_INITIALIZED, "the program has not called cuInit in this process", "call cuInit(0)"
        )
    driver.begin()


def _check() -> None:
    _refuse_before_init()
    gpu.unusable.refuse()


#: The calls that work though the context is unusable: about devices, and about which context is current.
_WITHOUT_CONTEXT = frozenset(
    name
    for name in calls.declarations.functions
    if name.startswith(
        (
            *("cuInit", "cuDevice", "cuCtxCreate", "cuCtxDestroy", "cuCtxGetCurrent", "cuCtxSetCurrent"),
            *("cuCtxPush", "cuCtxPop", "cuCtxGetDevice"),
        )
    )
)


def _function() -> Callable[[str], Callable[..., Any]]:
    """Return what returns a call as C makes it."""
    begun = Entries(calls, _refuse_before_init, _BEFORE_INIT).function
    usable = Entries(calls, _check, (), gpu.unusable.refuse_news).function
    return lambda name: (begun if name in _BEFORE_INIT | _WITHOUT_CONTEXT else usable)(name)


_COPIES = ("cuMemcpy", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuMemcpyDtoD_v2")
_QUEUED = ("cuMemcpyAsync", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2")


def library(header: str) -> Library:
    """Return the library of a header."""
    if header in _FOLDERS:
        module = import_module(f"peerlane.dialects.cuda.{_FOLDERS[header]}.c_library")
        other: Library = module.library(header)
        return other
    return Library(
        calls.declarations,
        call=_function(),
        refuse=calls.refuse_argument,
        learn={
            "cuCtxGetDevice": learn_thread,
            **dict.fromkeys(_COPIES, learn_thread),
            **dict.fromkeys(_QUEUED, learn_stream),
            "cuLaunchHostFunc": learn_calls,
        },
    )
