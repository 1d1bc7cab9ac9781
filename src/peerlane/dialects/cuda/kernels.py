"""Kernels and their modules, which virtual devices do not run: refused, and stderr says once what to do instead."""

from __future__ import annotations

import sys
from collections import Counter
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


#: How often each call was refused; stderr gets a sentence for the first of them.
refused: Counter[str] = Counter()
resets.append(refused.clear)


def refusing(name: str) -> Callable[..., Any]:
    """Return the body of a call that runs or loads a kernel."""

    def refuse(*arguments: Any) -> Any:
        declared = calls.declarations.functions.get(name)
        called = declared.name_in_source if declared else name
        is_first = not refused
        refused[called] += 1
        if is_first:
            print(
                f"peerlane: {called} returns 801 (not supported): {_CAUSE}; {_REMEDY}",
                file=sys.stderr,
                flush=True,
            )
        raise gpu.vendor.refusal(Reason.UNSUPPORTED, _CAUSE, _REMEDY)

    return refuse


for _name in _DRIVERS:
    define(_name, refusing(_name))
