"""The module ``torch.npu``: what ``torch.peerlane`` has, with the names that programs for Ascend use beside it."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import torch

from peerlane.torch import device_module


class Stream(torch.Stream):
    """A stream of a device, the current one if none is named."""

    def __new__(cls, device: Any = None, priority: int = 0, **numbers: int) -> Stream:
        if numbers:  # of a stream that exists
            known: Stream = super().__new__(cls, **numbers)
            return known
        return _with_npu_stream(device_module.Stream(device, priority))

    @property
    def npu_stream(self) -> int:
        """The number of the stream."""
        return int(self.stream_id)


def _with_npu_stream(stream: torch.Stream) -> Stream:
    return Stream(
        stream_id=stream.stream_id, device_index=stream.device_index, device_type=int(stream.device_type)
    )


def current_stream(device: Any = None) -> Stream:
    """Return the stream on which operations of this thread run."""
    return _with_npu_stream(device_module.current_stream(device))


def default_stream(device: Any = None) -> Stream:
    """Return the stream on which operations run in threads that have chosen none."""
    return _with_npu_stream(device_module.default_stream(device))


def is_current_stream_capturing() -> bool:
    """Return False: no operations are captured into graphs."""
    return False


#: ``torch.npu.amp``.
amp = SimpleNamespace(
    autocast=functools.partial(torch.autocast, "npu"),
    GradScaler=functools.partial(torch.amp.GradScaler, "npu"),
)


def __getattr__(name: str) -> Any:
    if hasattr(device_module, name):
        return getattr(device_module, name)
    raise AttributeError(
        f"torch.npu.{name} is part of the library torch_npu, and peerlane does not serve it: virtual devices run "
        "kernels of the processor, without graphs, memory pools and kernels of CANN",
        name=name,
    )
