"""Give torch the device ``peerlane``: its name, its module, and the extension behind them."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch
from torch.utils.dlpack import DLDeviceType

from peerlane.support import torch_name
from peerlane.support.module_code import call_after
from peerlane.torch import compiling, device_module, extension_build, shared_tensors, symmetric_operations


class _NoDevice(torch._C._acc.PrivateUse1Hooks):
    """What torch asks of a device that has a name and was not compiled: a barrier of any back-end asks."""

    def is_available(self) -> bool:
        return False

    is_built = is_available

    def has_primary_context(self, index: int) -> bool:
        return False


def kinds() -> tuple[str, ...]:
    """Return the kinds of devices whose tensors the back-end of ``torch.distributed`` takes."""
    has_device = torch_name.name == "cuda" or torch._C._get_privateuse1_backend_name() == torch_name.name
    return ("cpu", device_module.kind()) if has_device else ("cpu",)


def register() -> None:
    """Name the device and load it; where it cannot be compiled, its first use says why.

    torch has one device that libraries may name.  If another library has named it, a warning says so, and the
    back-end of ``torch.distributed`` works without the device.
    """
    if torch_name.name != "cuda":
        named = torch._C._get_privateuse1_backend_name()
        if named not in ("privateuseone", torch_name.name):
            warnings.warn(
                f"torch has no device {torch_name.name!r} in this process: it has one device that libraries may "
                f"name, and another library has named it {named!r}. The back-end {torch_name.OWN!r} of "
                "torch.distributed works. "
                "For the device import peerlane.torch in a process without that library",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        _register_name()
    try:
        device_module.init()
    except extension_build.Unbuilt:
        if torch_name.name != "cuda":
            torch._C._acc.register_python_privateuseone_hook(_NoDevice())
        return
    shared_tensors.register()
    compiling.serve()
    symmetric_operations.register()
    call_after("torch.distributed.rpc.options", _refuse_device_maps)


def _register_name() -> None:
    torch.utils.rename_privateuse1_backend(torch_name.name)
    if not hasattr(torch, torch_name.name):
        torch._register_device_module(torch_name.name, device_module)
        torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
        _name_to_dlpack()


def _name_to_dlpack() -> None:
    # torch's own method knows the device by the name alone that it had before.
    of_torch = torch.Tensor.__dlpack_device__

    @functools.wraps(of_torch)
    def device_of(tensor: torch.Tensor) -> tuple[Any, int]:
        if tensor.device.type == torch_name.name:
            return DLDeviceType.kDLExtDev, tensor.device.index
        answer: tuple[Any, int] = of_torch(tensor)
        return answer

    torch.Tensor.__dlpack_device__ = device_of


def _refuse_device_maps(options: Any) -> None:
    # With a map torch sends the tensor, and its build for the processor ends the process there.
    of_torch = options._to_device_map

    @functools.wraps(of_torch)
    def map_of(device_map: dict[Any, Any]) -> Any:
        devices = of_torch(device_map)
        for each in (*devices, *devices.values()):
            if each.type == device_module.kind():
                raise NotImplementedError(
                    f"torch.distributed.rpc sends no tensors of {each}, so it takes no device map with virtual "
                    "devices: send tensor.cpu(), or tensors by torch.distributed and torch.multiprocessing"
                )
        return devices

    options._to_device_map = map_of
