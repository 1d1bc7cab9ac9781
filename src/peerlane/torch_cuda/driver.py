"""What torch's device shares with CUDA's dialect: streams, and the device of a thread.

A program under ``--torch-cuda`` and ``--dialect cuda`` passes the number ``Stream.cuda_stream`` to the vendor's
libraries, as those that call NCCL themselves do.  So torch's streams are the dialect's, as on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from peerlane.dialects.cuda.memory import cuMemHostRegister_v2, cuMemHostUnregister
from peerlane.dialects.cuda.runtime.table import current
from peerlane.dialects.cuda.state import gpu
from peerlane.node.device import Device
from peerlane.streams.stream import Stream
from peerlane.torch import device_module, device_objects

_handles: dict[int, int] = {}  # by the core's number of a stream


def share_streams() -> None:
    """Let torch make its streams of the dialect's."""
    device_objects.make_stream = _make_stream


def _make_stream(device: Device, is_default: bool) -> Stream:
    stream = gpu.streams.null_of(device.ordinal) if is_default else gpu.streams.of_library(device)
    stream.queue.on_error = "stop"  # what is behind a failed operation of torch is cancelled
    _handles[stream.queue.id] = 0 if is_default else stream.handle
    return stream.queue


def handle_of(stream: torch.Stream) -> int:
    """Return the number by which the vendor's libraries know a stream of torch."""
    return _handles[device_module.stream_of(stream).id]


def choose(device: int) -> None:
    """Make torch's device of this thread that of the vendor's libraries, too."""
    current.choose(device_objects.present()[device])


def synchronize_others(device: int) -> None:
    """Wait for the streams of a device that torch did not make."""
    for stream in gpu.streams.others_on(device_objects.present()[device]):
        device_objects.synchronize(stream)


def register_host(address: int, nbytes: int, flags: int) -> int:
    """Pin memory that the program has, for torch's copies too; return the code of cudaHostRegister."""
    code = _code_of(cuMemHostRegister_v2, address, nbytes, flags)
    if code == 0:
        device_module.extension().note_registered(address, nbytes)
    return code


def unregister_host(address: int) -> int:
    """Take a registration back; return the code of cudaHostUnregister."""
    code = _code_of(cuMemHostUnregister, address)
    if code == 0:
        device_module.extension().note_registered(address, 0)
    return code


def _code_of(call: Callable[..., int], *arguments: int) -> int:
    current.enter()
    return call(*arguments)
