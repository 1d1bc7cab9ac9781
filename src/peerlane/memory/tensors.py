"""Tensors of PyTorch on the bytes of a buffer."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from peerlane.diagnostics.log import event_log
from peerlane.errors import InvalidValue, Refused, Unsupported

_CALL = "Buffer.tensor"


def on(buffer: Any, dtype: Any, shape: int | Sequence[int] | None) -> Any:
    """Return the tensor; parameters and errors are those of :meth:`peerlane.Buffer.tensor`."""
    torch = _torch()
    element = _element(torch, dtype)
    buffer.writable_address  # noqa: B018 - raises
    width = element.itemsize
    if buffer.size % width:
        raise InvalidValue(
            f"{_CALL}: {buffer.size:,} bytes are not a whole number of {element} ({width} bytes each); "
            f"{buffer.size % width} are left over, slice the buffer first",
            call=_CALL,
            detail=Refused(reason="no_whole_elements", size=buffer.size, width=width),
        )
    if event_log.active:
        event_log.alias(buffer)
    tensor = torch.from_numpy(buffer._array(_CALL, "uint8", None)).view(element)
    if shape is None:
        return tensor
    try:
        return tensor.reshape(shape)
    except (RuntimeError, ValueError):
        raise InvalidValue(
            f"{_CALL}: shape {shape} does not hold {tensor.numel():,} elements of {element} ({buffer.size:,} bytes); "
            "take a shape of as many, or slice the buffer first",
            call=_CALL,
            detail=Refused(
                reason="wrong_shape", shape=shape, elements=tensor.numel(), width=width, size=buffer.size
            ),
        ) from None


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise Unsupported(
            f"{_CALL}: a tensor needs the package torch, which is not installed; install it (pip install torch), or "
            "take a NumPy array with Buffer.view",
            call=_CALL,
            detail=Refused(reason="not_installed", name="tensor", package="torch"),
        ) from None


def _element(torch: Any, dtype: Any) -> Any:
    element = (
        torch.uint8 if dtype is None else getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    )
    if not isinstance(element, torch.dtype):
        raise TypeError(f"{_CALL}: dtype is a torch.dtype or its name, such as 'bfloat16', not {dtype!r}")
    return element
