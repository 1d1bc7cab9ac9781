"""Streams, events and host functions of the runtime."""

from __future__ import annotations

from peerlane.dialects.cuda.runtime.table import call, same_as_driver
from peerlane.dialects.cuda.state import gpu, machine
from peerlane.dialects.gpu.events import GpuEvent
from peerlane.dialects.gpu.streams import AnyStream

_SAME = (
    "StreamCreateWithPriority",
    "StreamGetPriority",
    "StreamGetFlags",
    "StreamGetId",
    "StreamGetDevice",
    "StreamCopyAttributes",
    "StreamGetAttribute",
    "StreamSetAttribute",
    "StreamWaitEvent",
    "StreamAddCallback",
    "StreamSynchronize",
    "StreamQuery",
    "EventRecord",
    "EventRecordWithFlags",
    "EventQuery",
    "EventSynchronize",
    "EventElapsedTime",
    "EventElapsedTime_v2",
    "LaunchHostFunc",
    "LaunchHostFunc_v2",
)
same_as_driver(
    cudaStreamCreateWithFlags="cuStreamCreate",
    cudaEventCreateWithFlags="cuEventCreate",
    **{f"cuda{name}": f"cu{name}" for name in _SAME},
)


@call
def cudaStreamCreate() -> int:
    return gpu.streams.create(0)


@call
def cudaStreamDestroy(stream: AnyStream) -> None:
    gpu.streams.destroy(stream.handle, "cudaStreamDestroy")


@call
def cudaEventCreate() -> int:
    return gpu.events.create(0)


@call
def cudaEventDestroy(event: GpuEvent) -> None:
    machine.drop(event, "cudaEventDestroy")
    event.end()
