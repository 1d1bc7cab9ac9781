"""The dialect for C: ``libcuda.so.1`` here, and other libraries in folders of their own."""

from __future__ import annotations

from importlib import import_module

from peerlane.backend import host
from peerlane.dialects._shared.c_library import Library, Words
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.cuda import (  # noqa: F401 - they declare the calls
    attributes,
    batches,
    contexts,
    copies,
    devices,
    kernels,
    managed,
    memory,
    pools,
    sharing,
    streams,
    virtual,
)
from peerlane.dialects.cuda.entries import Entries
from peerlane.dialects.cuda.state import calls, driver, enums, gpu, machine
from peerlane.streams import callbacks

_FOLDERS = {"cudart": "runtime", "cudart12": "runtime"}
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


def _learn_thread(then: int, _: Words = ()) -> bool:
    context = machine.context()
    if not machine.is_native(context):
        return False
    host.know_c_thread("cuda", then, machine.id_of(context.device.ordinal), bool(machine.registrations))
    if context.default_stream is not None:
        host.know_c_stream("cuda", then, 0, context.default_stream.neutral)
    return True


def _learn_stream(then: int, words: Words) -> bool:
    handle = words[-1]
    if not _learn_thread(then) or handle not in machine.resources:
        return False
    host.know_c_stream("cuda", then, handle, gpu.streams.of(handle).neutral)
    return True


def _learn_calls(then: int, words: Words) -> None:
    if _learn_stream(then, words[:1]) if words[0] else _learn_thread(then):
        host.know_c_callbacks("cuda", then, callbacks.runner.queue())


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
            "cuCtxGetDevice": _learn_thread,
            **dict.fromkeys(_COPIES, _learn_thread),
            **dict.fromkeys(_QUEUED, _learn_stream),
            "cuLaunchHostFunc": _learn_calls,
        },
    )
