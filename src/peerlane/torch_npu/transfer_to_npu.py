"""The module ``torch_npu.contrib.transfer_to_npu``: what a program calls ``cuda`` is ``npu`` once it is imported
(facts/torch 3.3).

A ``torch.device("cuda")`` stays one, and means ``npu`` where it is passed: to functions that make tensors, to methods
that move them, to autocast, generators and process groups.  NCCL means HCCL.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed
from torch.utils._device import _device_constructors

from peerlane.torch import device_module
from peerlane.torch_npu import npu

_NAMES = {"cuda": "npu", "nccl": "hccl"}
_LIKE = [name for name in dir(torch) if name.endswith("_like")]
_OF_TENSORS = ["to", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros"]


def _meant(value: Any) -> Any:
    """Return what an argument means: a name, a device or a map of locations."""
    if isinstance(value, str):
        for name, means in _NAMES.items():
            value = value.replace(name, means)
        return value
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("npu", value.index)
    if type(value) is dict:
        return {_meant(key): _meant(each) for key, each in value.items()}
    return value


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        return function(*map(_meant, arguments), **{name: _meant(each) for name, each in named.items()})

    return call


def _wrap(owner: Any, names: Iterable[str]) -> None:
    for name in names:
        setattr(owner, name, _wrapped(getattr(owner, name)))


class _KindOfGenerator(type(torch.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _GeneratorOfTorch)


_GeneratorOfTorch = torch.Generator


class _Generator(torch.Generator, metaclass=_KindOfGenerator):
    def __new__(cls, device: Any = "cpu") -> _Generator:
        generator: _Generator = super().__new__(cls, _meant(device))
        return generator


def _transfer() -> None:
    makers = [each.__name__ for each in _device_constructors() if hasattr(torch, each.__name__)]
    _wrap(torch, [*makers, *_LIKE, "load", "set_default_device", "get_device_module"])
    _wrap(torch.Tensor, _OF_TENSORS)
    _wrap(torch.nn.Module, ["to", "to_empty"])
    _wrap(torch.amp.autocast_mode.autocast, ["__init__"])
    _wrap(torch.amp.grad_scaler.GradScaler, ["__init__"])
    _wrap(torch.distributed, ["init_process_group", "new_group", "init_device_mesh"])
    torch.Tensor.cuda, torch.nn.Module.cuda = torch.Tensor.npu, torch.nn.Module.npu
    vars_of_tensor: Any = torch.Tensor
    vars_of_tensor.is_cuda = property(lambda tensor: tensor.is_npu)
    vars(torch).update(Generator=_Generator)
    for module in (device_module, npu):  # torch's own modules need the other names of torch.cuda
        for name, each in vars(module).items():
            if getattr(each, "__module__", "") == module.__name__ and not name.startswith("__"):
                setattr(torch.cuda, name, each)


_transfer()
