"""The bytes of tensors in host memory."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from peerlane.torch.failures import refused


@functools.lru_cache(maxsize=4096)
def _bytes_type(nbytes: int) -> Any:
    return ctypes.c_ubyte * nbytes


def bytes_of(tensor: torch.Tensor) -> Any:
    """Return an array over the bytes of a contiguous tensor of any element type; it keeps the tensor alive."""
    nbytes = tensor.nbytes
    if not nbytes:
        return bytearray()
    array = _bytes_type(nbytes).from_address(tensor.data_ptr())
    array.tensor = tensor
    return array


def span_of(tensors: Sequence[torch.Tensor]) -> tuple[Any, list[int]]:
    """Return the memory from the first to the last byte of contiguous tensors, and where each begins in it.

    The bytes between the tensors may belong to others, or be unmapped.
    """
    filled = [tensor for tensor in tensors if tensor.nbytes]
    if not filled:
        return bytearray(), [0] * len(tensors)
    start = min(tensor.data_ptr() for tensor in filled)
    end = max(tensor.data_ptr() + tensor.nbytes for tensor in filled)
    array = _bytes_type(end - start).from_address(start)
    array.tensors = filled
    return array, [tensor.data_ptr() - start if tensor.nbytes else 0 for tensor in tensors]


def check(call: str, tensors: Iterable[torch.Tensor]) -> None:
    """Refuse tensors that are not strided, or not in host memory."""
    for tensor in tensors:
        if not tensor.is_cpu or tensor.layout is not torch.strided:
            raise refused(
                f"peerlane:{call} : a tensor is on {tensor.device} with layout {tensor.layout}; the back-end takes "
                "strided tensors on the processor"
            )


def check_alike(call: str, tensors: Sequence[torch.Tensor]) -> None:
    """Refuse tensors of different element types."""
    check(call, tensors)
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
    return torch.empty(sum(tensor.numel() for tensor in tensors), dtype=tensors[0].dtype)


def spread(tensors: Sequence[torch.Tensor], whole: torch.Tensor) -> None:
    """Copy elements that lie side by side to the tensors."""
    for tensor, part in zip(tensors, whole.split([each.numel() for each in tensors]), strict=True):
        tensor.detach().copy_(part.view(tensor.shape))


def sizes_of(tensors: Iterable[torch.Tensor]) -> list[int]:
    """Return the bytes of each tensor."""
    return [tensor.nbytes for tensor in tensors]
