"""Serve ``cuda`` when a program imports torch: what is below ``torch.cuda`` before that, the device after torch."""

from __future__ import annotations

import importlib
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder

from peerlane.dialects._shared.hook import TORCH_CUDA
from peerlane.errors import Busy, Refused
from peerlane.support import torch_name

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any


def begin() -> None:
    """Serve ``cuda`` in this process and in its Python children; nothing is imported until the program imports torch.

    Raises
    ------
    Busy
        torch is imported already.
    """
    if "torch" in sys.modules:
        raise Busy(
            "torch cannot serve cuda on virtual devices: torch is imported already; begin before anything imports it",
            detail=Refused(reason="imported_already", module="torch"),
        )
    os.environ[TORCH_CUDA] = "1"
    if not torch_name.is_cuda:
        torch_name.is_cuda = True
        sys.meta_path.insert(0, _TorchFinder())


def _bindings() -> Any:
    return importlib.import_module("peerlane.torch_cuda.bindings")  # it imports torch


class _TorchFinder:
    """Finds torch as Python does, and adds to what happens when it is loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of ``torch`` or ``torch.cuda``; None for all other modules."""
        if fullname not in ("torch", "torch.cuda"):
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            if fullname == "torch":
                execute(module)
                _bindings().make_storages()
                importlib.import_module("peerlane.torch_cuda.nccl_group").serve()
                return
            _bindings().serve()
            execute(module)
            _bindings().count_without_driver(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
