"""The operations of reductions, by element type: those of a group, and those that torch does itself."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from peerlane.torch.failures import refused

_OPS = dist.ReduceOp.RedOpType
_GROUPS = {_OPS.SUM: "sum", _OPS.AVG: "sum", _OPS.PRODUCT: "prod", _OPS.MIN: "min", _OPS.MAX: "max"}
# On bytes that are 0 or 1.
_TRUTHS = dict.fromkeys((_OPS.SUM, _OPS.BOR, _OPS.MAX), "max") | dict.fromkeys(
    (_OPS.PRODUCT, _OPS.BAND, _OPS.MIN), "min"
)
_BITS = {_OPS.BAND: torch.bitwise_and, _OPS.BOR: torch.bitwise_or, _OPS.BXOR: torch.bitwise_xor}
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True)
class Reduction:
    """How to combine elements.

    Attributes
    ----------
    view : dtype or None
        The type to view the elements as; None: their own.
    name : str
        The name of that type in a group.
    op : str
        The operation of a group; empty: it has none.
    fold : callable or None
        Without ``op``: combines the elements of two ranks.
    is_mean : bool
        Whether to divide the result by the number of ranks.
    """

    view: torch.dtype | None
    name: str
    op: str
    fold: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None
    is_mean: bool = False

    def seen(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a contiguous tensor's elements as the type that is combined."""
        tensor = tensor.detach()
        if tensor.is_complex():
            return torch.view_as_real(tensor)
        return tensor if self.view is None else tensor.view(self.view)

    def folded(self, parts: Iterable[torch.Tensor]) -> torch.Tensor:
        """Combine the elements of all ranks, in their order."""
        assert self.fold is not None
        return functools.reduce(self.fold, parts)

    def finish(self, tensor: torch.Tensor, ranks: int) -> None:
        """Turn the sum into a mean, if the operation is one; that of integers is rounded toward zero."""
        if self.is_mean:
            tensor.div_(ranks, rounding_mode=None if tensor.is_floating_point() else "trunc")


def find(call: str, op: dist.ReduceOp, dtype: torch.dtype) -> Reduction:
    """Return how to combine elements of a type, or raise what gloo raises."""
    return _reduction(call, op.op, dtype)


@functools.cache
def _reduction(call: str, kind: dist.ReduceOp.RedOpType, dtype: torch.dtype) -> Reduction:
    is_float = dtype.is_floating_point or dtype.is_complex
    if kind not in _GROUPS and kind not in _BITS:
        raise refused(f"peerlane:{call} : {kind} is not an operation of this back-end")
    if kind in _BITS and is_float:
        raise refused(f"peerlane:{call} : Cannot use {kind} with {dtype}, a non-integral dtype")
    if kind == _OPS.AVG and dtype == torch.bool:
        raise refused(f"peerlane:{call} : {kind} of {dtype} is not a {dtype}; valid are types of numbers")
    if dtype == torch.bool and kind in _TRUTHS:
        return Reduction(torch.uint8, "uint8", _TRUTHS[kind])
    if kind in _BITS:
        return Reduction(_INTEGERS[dtype.itemsize], "", "", _BITS[kind])
    if dtype.is_complex:
        if kind not in (_OPS.SUM, _OPS.AVG):
            raise refused(f"peerlane:{call} : {kind} has no meaning for {dtype}; valid are SUM and AVG")
        dtype = dtype.to_real()
    name = str(dtype).removeprefix("torch.")
    return Reduction(None, name, _GROUPS[kind], is_mean=kind == _OPS.AVG)
