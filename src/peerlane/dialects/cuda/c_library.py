"""``libcuda.so.1``: the dialect for C."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peerlane.backend import host
from peerlane.dialects._shared.c_library import Library, Words
from peerlane.dialects._shared.c_names import declarations_of
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.cuda import (  # noqa: F401 - they declare the calls
    attributes,
    batches,
    contexts,
    copies,
    devices,
    managed,
    memory,
    pools,
    sharing,
    streams,
    virtual,
)
from peerlane.dialects.cuda.state import calls, driver, enums, gpu, machine
from peerlane.streams import callbacks

_VARIANTS = ("_ptds", "_ptsz")  # for the default streams of threads
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


def _call(name: str) -> Callable[..., Any]:
    """Return a call as C makes it: refused before cuInit; in a variant NULL is the thread's own stream."""
    base = name[: -len(_VARIANTS[0])] if name.endswith(_VARIANTS) else name
    body = calls.function(base)
    outputs = (0,) * len(calls.declarations.outputs_of(calls.declarations.functions[base]))

    def checked(*arguments: Any) -> Any:
        if not driver.is_initialized:
            refusal = Refusal(
                _NOT_INITIALIZED, "the program has not called cuInit in this process", "call cuInit(0)"
            )
            code = calls.fail(base, refusal, tuple)
            return (*outputs, code) if outputs else code
        return body(*arguments)

    served = body if base in _BEFORE_INIT else checked
    if base == name:
        return served

    def of_thread(*arguments: Any) -> Any:
        with gpu.streams.null_is_own():
            return served(*arguments)

    return of_thread


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
    return Library(
        declarations_of("cuda", header),
        call=_call,
        refuse=calls.refuse_argument,
        learn={
            "cuCtxGetDevice": _learn_thread,
            **dict.fromkeys(_COPIES, _learn_thread),
            **dict.fromkeys(_QUEUED, _learn_stream),
            "cuLaunchHostFunc": _learn_calls,
        },
    )
