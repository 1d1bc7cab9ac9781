"""The package ``torch_npu.contrib``, which has ``transfer_to_npu``."""

from __future__ import annotations

import importlib
from types import ModuleType

__path__: list[str] = []  # it is a package: `import torch_npu.contrib.transfer_to_npu`


def __getattr__(name: str) -> ModuleType:
    if name == "transfer_to_npu":
        return importlib.import_module("torch_npu.contrib.transfer_to_npu")
    raise AttributeError(
        f"torch_npu.contrib.{name} is not served: peerlane has transfer_to_npu there, and no kernels of CANN",
        name=name,
    )
