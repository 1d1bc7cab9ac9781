"""Kernels and their modules, which virtual devices do not run: refused, and stderr says once what to do instead."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from peerlane.dialects.cuda.state import calls, define, gpu, resets
from peerlane.dialects.gpu.vendor import Reason

_CAUSE = "virtual devices run no kernels"
_REMEDY = (
    "compile the kernel for the processor and queue it as a host function: examples/c/processor_kernels.h"
)
_LOADS = ("Data", "DataEx", "FatBinary")
_DRIVERS = (
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuLaunchCooperativeKernel",
    "cuModuleLoad",
    *(f"cuModuleLoad{each}" for each in _LOADS),
    "cuLibraryLoadData",
    "cuLibraryLoadFromFile",
    "cuLinkCreate_v2",
)


class _Once:
    """Whether stderr got the sentence."""

    is_over = False


def _begin_anew() -> None:
    _Once.is_over = False


resets.append(_begin_anew)


def refusing(name: str) -> Callable[..., Any]:
    """Return the body of a call that runs or loads a kernel."""

    def refuse(*arguments: Any) -> Any:
        if not _Once.is_over:
            _Once.is_over = True
            declared = calls.declarations.functions.get(name)
            called = declared.name_in_source if declared else name
            print(
                f"peerlane: {called} returns 801 (not supported): {_CAUSE}; {_REMEDY}",
                file=sys.stderr,
                flush=True,
            )
        raise gpu.vendor.refusal(Reason.UNSUPPORTED, _CAUSE, _REMEDY)

    return refuse


for _name in _DRIVERS:
    define(_name, refusing(_name))
