"""Serve torch's device by the name of a vendor when a program imports torch: ``cuda`` or ``npu``.

A name is a row of `NAMES`.  torch has Python code for ``cuda``, so the native functions below it are served.  It has
no code for ``npu``: that is the device of a library, whose module is served.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.machinery import ModuleSpec

from peerlane.dialects._shared.hook import TORCH_DEVICE, Alias
from peerlane.errors import Busy, Refused
from peerlane.support import torch_name
from peerlane.support.module_code import spec_around

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType
    from typing import Any


class Name:
    """What a name changes; functions are texts, as nothing is imported before torch is.

    Attributes
    ----------
    before, after : dict
        By module of torch: the functions to call before and after its code runs.
    modules : dict
        By module of the vendor's library: the module that serves it.
    """

    def __init__(
        self,
        *,
        before: Mapping[str, Sequence[str]],
        after: Mapping[str, Sequence[str]],
        modules: Mapping[str, str],
    ) -> None:
        self.before = before
        self.after = after
        self.modules = modules


NAMES = {
    "cuda": Name(
        before={"torch.cuda": ["torch_cuda.builds.refuse_cuda_inside", "torch_cuda.bindings.serve"]},
        after={
            "torch.cuda": ["torch_cuda.bindings.count_without_driver"],
            "torch": [
                "torch_cuda.bindings.make_storages",
                "torch_cuda.bindings.profile_without_cupti",
                "torch_cuda.driver.share_streams",
                "torch_cuda.nccl_group.serve",
            ],
            "torch.distributed._symmetric_memory": ["torch_cuda.bindings.allocate_without_pools"],
        },
        modules={},
    ),
    "npu": Name(
        before={},
        after={"torch": ["torch_npu.serving.serve"]},
        modules={
            "torch_npu": "torch_npu.library",
            "torch_npu.npu": "torch_npu.npu",
            "torch_npu.contrib": "torch_npu.contrib",
            "torch_npu.contrib.transfer_to_npu": "torch_npu.transfer_to_npu",
        },
    ),
}


def begin(name: str) -> None:
    """Serve a name in this process and in its Python children; nothing is imported until the program imports torch.

    Raises
    ------
    Busy
        torch is imported already.
    """
    if "torch" in sys.modules:
        raise Busy(
            f"torch cannot serve {name} on virtual devices: torch is imported already; begin before anything "
            "imports it",
            detail=Refused(reason="imported_already", module="torch"),
        )
    os.environ[TORCH_DEVICE] = name
    if torch_name.name != name:
        torch_name.name = name
        sys.meta_path.insert(0, _TorchFinder(NAMES[name]))


def _call(functions: Sequence[str]) -> None:
    for path in functions:
        module, _, function = path.rpartition(".")
        getattr(importlib.import_module(f"peerlane.{module}"), function)()


class _TorchFinder:
    """Finds torch as Python does, and adds to what happens when it is loaded."""

    def __init__(self, name: Name) -> None:
        self._name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module of torch or the vendor's that the name changes; None for all others."""
        name = self._name
        if fullname in name.modules:
            importlib.import_module("torch")
            serving = f"peerlane.{name.modules[fullname]}"
            loader: Any = Alias(serving)
            is_package = any(each.startswith(f"{fullname}.") for each in name.modules)
            return ModuleSpec(fullname, loader, origin=serving, is_package=is_package)
        before, after = name.before.get(fullname, ()), name.after.get(fullname, ())
        if not before and not after:
            return None
        return spec_around(fullname, path, before=lambda: _call(before), after=lambda _module: _call(after))
