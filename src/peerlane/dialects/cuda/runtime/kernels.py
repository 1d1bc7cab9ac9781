"""Launches of kernels by the runtime, which are refused as the driver's are."""

from __future__ import annotations

from peerlane.dialects.cuda.kernels import refusing
from peerlane.dialects.cuda.runtime.table import own

for _name in (
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cudaLaunchCooperativeKernel",
    "cudaLibraryLoadData",
    "cudaLibraryLoadFromFile",
):
    own[_name] = refusing(_name)
