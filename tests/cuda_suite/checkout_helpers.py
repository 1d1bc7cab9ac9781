"""A plugin of pytest: helpers of NVIDIA's tests that the checkout of cuda.bindings has, and its wheel has not."""

from __future__ import annotations

from pathlib import Path

import cuda.bindings

cuda.bindings.__path__ += [
    str(each / "cuda_bindings" / "cuda" / "bindings")
    for each in Path.cwd().parents
    if (each / "cuda_bindings").is_dir()
]
