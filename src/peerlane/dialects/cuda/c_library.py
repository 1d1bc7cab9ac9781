"""The dialect for C: ``libcuda.so.1`` here, and other libraries in folders of their own."""

from __future__ import annotations

import ctypes
from importlib import import_module

from peerlane.dialects._shared.c_library import Library, Words
from peerlane.dialects._shared.call import Refusal
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
from peerlane.dialects.cuda.quick import quick
from peerlane.dialects.cuda.state import calls, driver, enums

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
_NOT_INITIALIZED = enums["CUresult"]["CUDA_ERROR_NOT_INITIALIZED"]


def _refuse_before_init() -> None:
    if not driver.is_initialized:
        raise Refusal(_NOT_INITIALIZED, "the program has not called cuInit in this process", "call cuInit(0)")


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
        call=Entries(calls, _refuse_before_init, _BEFORE_INIT).function,
        refuse=calls.refuse_argument,
        learn={
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
        },
    )
