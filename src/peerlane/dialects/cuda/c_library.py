"""The dialect for C: ``libcuda.so.1`` here, and other libraries in folders of their own."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib import import_module
from typing import Any

from peerlane.dialects._shared.c_library import Library, Words
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
from peerlane.dialects.cuda.quick import quick, with_variants
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


def _record_attributes(then: int, words: Words) -> None:
    count, numbers, _, address = words
    attributes.record(then, list((ctypes.c_int32 * count).from_address(numbers)), address)


_INT, _UUID = 4, 16  # bytes
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
        learn=with_variants(
            calls.declarations,
            {
                **dict.fromkeys(("cuCtxGetDevice", "cuCtxGetCurrent", "cuCtxPopCurrent_v2"), quick.thread),
                **dict.fromkeys(("cuCtxGetId", "cuCtxPushCurrent_v2", "cuCtxSetCurrent"), quick.context),
                "cuDevicePrimaryCtxRetain": lambda then, words: quick.primary(then, words[1]),
                "cuDevicePrimaryCtxGetState": lambda then, words: quick.primary(then, words[0]),
                "cuDevicePrimaryCtxRelease_v2": lambda then, words: quick.primary(then, words[0]),
                "cuDeviceGet": quick.constant("cuDeviceGet", _INT),
                "cuDeviceGetAttribute": quick.constant("cuDeviceGetAttribute", _INT),
                "cuDeviceGetCount": quick.constant("cuDeviceGetCount", _INT),
                **dict.fromkeys(
                    ("cuDeviceGetUuid", "cuDeviceGetUuid_v2"), quick.constant("cuDeviceGetUuid", _UUID)
                ),
                "cuPointerGetAttribute": lambda then, words: attributes.record(then, words[1:2], words[2]),
                "cuPointerGetAttributes": _record_attributes,
                **dict.fromkeys(_COPIES, quick.thread),
                **dict.fromkeys(_QUEUED, quick.stream),
                **quick.of_streams("cu"),
                **quick.of_pools("cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemFreeAsync"),
            },
        ),
    )
