"""``libcuda.so.1``: the dialect for C."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peerlane.dialects._shared.c_library import Library
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.cuda import (  # noqa: F401 - they declare the calls
    attributes,
    contexts,
    copies,
    devices,
    memory,
    pools,
    sharing,
    streams,
    virtual,
)
from peerlane.dialects.cuda.state import calls, driver, enums, gpu

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


def library() -> Library:
    """Return the library."""
    return Library("cuda", call=_call, refuse=calls.refuse_argument)
