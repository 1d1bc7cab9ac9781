"""``libnvidia-ml.so.1``: NVML for C."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from peerlane.dialects._shared.c_library import Library
from peerlane.dialects.cuda.entries import Entries
from peerlane.dialects.cuda.nvml import (  # noqa: F401 - they declare the calls
    devices,
    events,
    fields,
    links,
    processes,
    system,
    topology,
)
from peerlane.dialects.cuda.nvml.state import calls, declarations, initialized, refusal

_ALWAYS = {"nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags", "nvmlErrorString"}
#: Functions of older versions, whose struct is the beginning of today's: the newer function, and the struct's size.
SHORTER = {
    "nvmlDeviceGetPciInfo": ("nvmlDeviceGetPciInfo_v3", 32),
    "nvmlDeviceGetPciInfo_v2": ("nvmlDeviceGetPciInfo_v3", 36),
    "nvmlDeviceGetNvLinkRemotePciInfo": ("nvmlDeviceGetNvLinkRemotePciInfo_v2", 36),
}
_LONGEST = 68


class _Nvml(Library):
    """The functions of NVML."""

    def entry(self, symbol: str) -> Callable[..., Any]:
        """Return the Python function behind a C function; see :meth:`Library.entry`."""
        if symbol not in SHORTER:
            return super().entry(symbol)
        newer, size = SHORTER[symbol]
        entry = super().entry(newer)

        def shorter(*words: Any) -> Any:
            whole = (ctypes.c_char * _LONGEST)()
            result = entry(*words[:-1], words[-1] and ctypes.addressof(whole))
            if not result:
                ctypes.memmove(words[-1], whole, size)
            return result

        return shorter


def _refuse_unless(is_initialized: bool) -> None:
    if not is_initialized:
        raise refusal("UNINITIALIZED", "the program has not initialized NVML", "call nvmlInit_v2()")


def library(header: str) -> Library:
    """Return the library of the header."""
    entries = Entries(calls, lambda: _refuse_unless(initialized.count > 0), _ALWAYS)
    return _Nvml(declarations, call=entries.function, refuse=calls.refuse_argument)
