"""The bytes of tensors, in host memory and on devices."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from peerlane.errors import BadAddress
from peerlane.memory import raw
from peerlane.torch.failures import refused


@functools.lru_cache(maxsize=4096)
def _bytes_type(nbytes: int) -> Any:
    return ctypes.c_ubyte * nbytes


def bytes_of(tensor: torch.Tensor) -> Any:
    """Return the bytes of a contiguous tensor of any element type: on a device a buffer, else an array.

    An array keeps the tensor alive.  A buffer does not: the order of streams decides who has its bytes.
    """
    nbytes = tensor.nbytes
    if not nbytes:
        return bytearray()
    if not tensor.is_cpu:
        return raw.buffer(tensor.data_ptr(), nbytes)
    array = _bytes_type(nbytes).from_address(tensor.data_ptr())
    array.tensor = tensor
    return array


def span_of(tensors: Sequence[torch.Tensor]) -> tuple[Any, list[int]] | None:
    """Return the memory from the first to the last byte of contiguous tensors, and where each begins in it.

    The bytes between the tensors may belong to others, or be unmapped.  Tensors in several allocations of a device
    have no such memory: None.
    """
    filled = [tensor for tensor in tensors if tensor.nbytes]
    if not filled:
        return bytearray(), [0] * len(tensors)
    start = min(tensor.data_ptr() for tensor in filled)
    end = max(tensor.data_ptr() + tensor.nbytes for tensor in filled)
    at = [tensor.data_ptr() - start if tensor.nbytes else 0 for tensor in tensors]
    if not filled[0].is_cpu:
        try:
            return raw.buffer(start, end - start), at
        except BadAddress:
            return None
    array = _bytes_type(end - start).from_address(start)
    array.tensors = filled
    return array, at


def tensors_in(items: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors among arguments, in lists too."""
    for item in items:
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, list | tuple):
            yield from tensors_in(item)


def completed(argument: Any) -> Any:
    """Return an argument with the results of functional collectives in it; the current streams wait for them."""
    functional = sys.modules.get("torch.distributed._functional_collectives")
    return argument if functional is None else _completed(argument, functional.AsyncCollectiveTensor)


def _completed(argument: Any, owed: Any) -> Any:
    if isinstance(argument, list | tuple):
        return [_completed(each, owed) for each in argument]
    return argument.trigger_wait() if isinstance(argument, owed) else argument


def is_shape(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a shape without bytes: on ``meta``, or of ``FakeTensorMode``."""
    if type(tensor) is torch.Tensor or tensor.is_meta:
        return bool(tensor.is_meta)
    fake = sys.modules.get("torch._subclasses.fake_tensor")
    return fake is not None and isinstance(tensor, fake.FakeTensor)


def wraps_others(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has no bytes of its own: its class runs operations on the tensors in it."""
    if type(tensor) is torch.Tensor or is_shape(tensor) or tensor.layout is not torch.strided:
        return False
    return bool(tensor.nbytes and not tensor.data_ptr())


def check(call: str, tensors: Sequence[torch.Tensor], devices: Sequence[str]) -> None:
    """Refuse wrappers of tensors, and tensors not strided, on another kind of device, or on several devices."""
    for tensor in tensors:
        if is_shape(tensor):
            if tensor.is_meta:
                continue
        elif wraps_others(tensor):
            raise refused(
                f"peerlane:{call} : a {type(tensor).__name__} has no bytes of its own: it wraps other tensors. "
                "Pass those"
            )
        if tensor.device.type not in devices or tensor.layout is not torch.strided:
            raise refused(
                f"peerlane:{call} : a tensor is on {tensor.device} with layout {tensor.layout}; this process group "
                f"takes strided tensors on {' and '.join(devices)}"
            )
    several = sorted({str(tensor.device) for tensor in tensors})
    if len(several) > 1:
        raise refused(f"peerlane:{call} : the tensors are on {', '.join(several)}; all must be on one device")


def check_alike(call: str, tensors: Sequence[torch.Tensor], devices: Sequence[str]) -> None:
    """Refuse tensors of different element types."""
    check(call, tensors, devices)
    kinds = {tensor.dtype for tensor in tensors}
    if len(kinds) > 1:
        names = ", ".join(sorted(map(str, kinds)))
        raise refused(f"peerlane:{call} : the tensors have the element types {names}; all must have one")


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor if it is contiguous and its bytes are its values, else a copy for which that holds."""
    if tensor.is_contiguous() and not tensor.is_neg() and not (tensor.dtype.is_complex and tensor.is_conj()):
        return tensor
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def put_back(tensor: torch.Tensor, contiguous: torch.Tensor) -> None:
    """Copy the values of a copy by :func:`flat` into its tensor."""
    if contiguous is not tensor:
        tensor.detach().copy_(contiguous)


def joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the elements of all tensors side by side."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def room_for(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return new memory for the elements of all tensors, side by side."""
    return tensors[0].new_empty(sum(tensor.numel() for tensor in tensors))


def spread(tensors: Sequence[torch.Tensor], whole: torch.Tensor) -> None:
    """Copy elements that lie side by side to the tensors."""
    for tensor, part in zip(tensors, whole.split([each.numel() for each in tensors]), strict=True):
        tensor.detach().copy_(part.view(tensor.shape))


def sizes_of(tensors: Iterable[torch.Tensor]) -> list[int]:
    """Return the bytes of each tensor."""
    return [tensor.nbytes for tensor in tensors]
