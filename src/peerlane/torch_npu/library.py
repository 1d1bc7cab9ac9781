"""The module ``torch_npu``: the import that programs for Ascend begin with."""

from __future__ import annotations

from typing import Any

from peerlane.torch_npu import npu

__all__ = ["npu"]
__path__: list[str] = []  # it is a package: `import torch_npu.npu`


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"torch_npu.{name} is not served: peerlane has the device npu, torch.npu and the back-end hccl, and no "
        "kernels of CANN. Use an operation of torch itself, which runs the processor's kernel",
        name=name,
    )
