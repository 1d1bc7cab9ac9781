"""What native code records to answer calls of CUDA without Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from peerlane.dialects._shared.c_declarations import Declarations, Function
from peerlane.dialects._shared.c_library import Words
from peerlane.dialects.cuda.state import LOG_FILE, gpu
from peerlane.dialects.gpu.quick import ASK, QuickCalls
from peerlane.dialects.gpu.streams import PER_THREAD_STREAM
from peerlane.dialects.gpu.vendor import Reason

_NOT_READY = gpu.vendor.code(Reason.NOT_READY)
_STREAMS = ("CUstream", "cudaStream_t")
_Record = Callable[[int, Words], object]
quick = QuickCalls("cuda", gpu, not_ready=lambda: ASK if os.environ.get(LOG_FILE) else _NOT_READY)


def with_variants(declarations: Declarations, records: Mapping[str, _Record]) -> dict[str, _Record]:
    """Return what is recorded after some functions, and after their variants for threads' default streams."""
    variants = {}
    for name, record in records.items():
        function = declarations.functions[name]
        if function.variant:
            variants[f"{name}_{function.variant}"] = _of_thread(function, record)
    return {**records, **variants}


def _of_thread(function: Function, record: _Record) -> _Record:
    """Return what is recorded after a variant: 0 is the thread's own stream, and without a stream it is that one."""
    at = next((at for at, each in enumerate(function.parameters) if each.type in _STREAMS), None)
    if at is None:
        return lambda then, _: quick.stream(then, (PER_THREAD_STREAM,))

    def record_own(then: int, words: Words) -> object:
        return record(then, (*words[:at], words[at] or PER_THREAD_STREAM, *words[at + 1 :]))

    return record_own
