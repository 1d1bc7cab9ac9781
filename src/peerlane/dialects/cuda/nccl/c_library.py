"""``libnccl.so.2``: the functions of NCCL for C."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from peerlane.backend import host
from peerlane.dialects._shared.c_library import Library
from peerlane.dialects.cuda.code_texts import texts_of
from peerlane.dialects.cuda.nccl import (  # noqa: F401 - they declare the calls
    collectives,
    communicators,
    groups,
    memory,
    reductions,
    windows,
)
from peerlane.dialects.cuda.nccl.codes import IN_PROGRESS, SUCCESS, enums
from peerlane.dialects.cuda.nccl.communicators import last_message
from peerlane.dialects.cuda.nccl.config import CollectiveConfig, Config
from peerlane.dialects.cuda.nccl.groups import take_begun
from peerlane.dialects.cuda.nccl.state import calls, failures
from peerlane.dialects.cuda.quick import quick

_MAKING = {
    "ncclCommInitRankConfig",
    "ncclCommInitRankScalable",
    "ncclCommSplit",
    "ncclCommShrink",
    "ncclGroupEnd",
}
#: What native code may queue without Python.
_QUEUED = (
    *("ncclAllReduce", "ncclReduce", "ncclReduceScatter", "ncclBroadcast", "ncclBcast", "ncclAllGather"),
    *("ncclAlltoAll", "ncclScatter", "ncclSend", "ncclRecv"),
)
TEXTS: dict[str, Callable[..., Any]] = {
    "ncclGetErrorString": texts_of(enums)["ncclGetErrorString"],
    "ncclGetLastError": last_message,
}
_SIZED = {"ncclConfig_t": Config, "ncclCollConfig_t": CollectiveConfig}


class Nccl(Library):
    """NCCL's functions; structs of older programs are shorter."""

    def size_at(self, name: str, address: int) -> int:
        """Return what the first field of the struct says."""
        return (
            ctypes.c_size_t.from_address(address).value if name in _SIZED else super().size_at(name, address)
        )


def _call(name: str) -> Callable[..., Any]:
    """Return a call as C makes it: ncclInProgress if what it began goes on in another thread."""
    body = TEXTS.get(name) or calls.function(name)
    if name not in _MAKING:
        return body

    def call_in_progress(*arguments: Any) -> Any:
        result = body(*arguments)
        if not take_begun():
            return result
        *outputs, code = result if isinstance(result, tuple) else (result,)
        code = IN_PROGRESS if code == SUCCESS else code
        return (*outputs, code) if outputs else code

    return call_in_progress


def library(header: str) -> Library:
    """Return the library of a header, which is `nccl`."""
    functions = Nccl(
        calls.declarations,
        call=_call,
        refuse=calls.refuse_argument,
        forms=_SIZED,
        learn={
            **dict.fromkeys(_QUEUED, quick.stream),
            "ncclGroupStart": quick.thread,
        },
    )
    groups.recall = lambda name, words: failures.newest() if functions.entry(name)(*words) else None
    host.know_nccl_elements(*reductions.known_natively())
    return functions
