"""Memory of the runtime: allocated, pitched, managed, registered, filled, and what an address is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peerlane.dialects.cuda.attributes import pointer_at
from peerlane.dialects.cuda.runtime.table import call, same_as_driver, same_as_driver_in_12
from peerlane.dialects.cuda.state import gpu, refuse_flags
from peerlane.dialects.gpu.streams import AnyStream
from peerlane.support.libraries import binding

memory = gpu.memory
_TYPES = binding("cudart")["enums"]["cudaMemoryType"]
_UNREGISTERED, _HOST, _DEVICE, _MANAGED = (
    _TYPES[f"cudaMemoryType{name}"] for name in ("Unregistered", "Host", "Device", "Managed")
)
_HOST_FLAGS = 0x7
_NO_DEVICE = -2

same_as_driver(
    cudaMemGetInfo="cuMemGetInfo_v2",
    cudaMallocManaged="cuMemAllocManaged",
    cudaHostRegister="cuMemHostRegister_v2",
    cudaHostUnregister="cuMemHostUnregister",
    cudaHostGetDevicePointer="cuMemHostGetDevicePointer_v2",
    cudaHostGetFlags="cuMemHostGetFlags",
    cudaMemPrefetchAsync="cuMemPrefetchAsync_v2",
    cudaMemPrefetchAsync_v2="cuMemPrefetchAsync_v2",
    cudaMemAdvise="cuMemAdvise_v2",
    cudaMemAdvise_v2="cuMemAdvise_v2",
    cudaMemRangeGetAttribute="cuMemRangeGetAttribute",
    cudaMemRangeGetAttributes="cuMemRangeGetAttributes",
    cudaMemPrefetchBatchAsync="cuMemPrefetchBatchAsync",
    cudaMemDiscardBatchAsync="cuMemDiscardBatchAsync",
    cudaMemDiscardAndPrefetchBatchAsync="cuMemDiscardAndPrefetchBatchAsync",
    cudaStreamAttachMemAsync="cuStreamAttachMemAsync",
    cudaIpcGetMemHandle="cuIpcGetMemHandle",
    cudaIpcOpenMemHandle="cuIpcOpenMemHandle_v2",
    cudaIpcCloseMemHandle="cuIpcCloseMemHandle",
    cudaIpcGetEventHandle="cuIpcGetEventHandle",
    cudaIpcOpenEventHandle="cuIpcOpenEventHandle",
    cudaDeviceGetDefaultMemPool="cuDeviceGetDefaultMemPool",
    cudaDeviceGetMemPool="cuDeviceGetMemPool",
    cudaDeviceSetMemPool="cuDeviceSetMemPool",
    cudaMemGetDefaultMemPool="cuMemGetDefaultMemPool",
    cudaMemGetMemPool="cuMemGetMemPool",
    cudaMemSetMemPool="cuMemSetMemPool",
    cudaMemPoolCreate="cuMemPoolCreate",
    cudaMemPoolDestroy="cuMemPoolDestroy",
    cudaMemPoolTrimTo="cuMemPoolTrimTo",
    cudaMemPoolSetAttribute="cuMemPoolSetAttribute",
    cudaMemPoolGetAttribute="cuMemPoolGetAttribute",
    cudaMemPoolSetAccess="cuMemPoolSetAccess",
    cudaMemPoolGetAccess="cuMemPoolGetAccess",
    cudaMemPoolExportToShareableHandle="cuMemPoolExportToShareableHandle",
    cudaMemPoolImportFromShareableHandle="cuMemPoolImportFromShareableHandle",
    cudaMemPoolExportPointer="cuMemPoolExportPointer",
    cudaMemPoolImportPointer="cuMemPoolImportPointer",
    cudaMallocFromPoolAsync="cuMemAllocFromPoolAsync",
)
same_as_driver_in_12(cudaMemPrefetchAsync="cuMemPrefetchAsync", cudaMemAdvise="cuMemAdvise")


@call
def cudaMalloc(size: int) -> int:
    """Allocate; 0 bytes are NULL."""
    return memory.allocate(size) if size else 0


@call
def cudaMallocAsync(size: int, hStream: AnyStream) -> int:
    return gpu.pools.allocate(size, hStream) if size else 0


@call
def cudaFree(devPtr: int) -> None:
    memory.free(devPtr, "cudaFree")


@call
def cudaFreeAsync(devPtr: int, hStream: AnyStream) -> None:
    gpu.pools.free(devPtr, hStream, "cudaFreeAsync")


@call
def cudaMallocHost(size: int) -> int:
    return memory.allocate_host(size, 0) if size else 0


@call
def cudaHostAlloc(size: int, flags: int) -> int:
    refuse_flags(flags, _HOST_FLAGS)
    return memory.allocate_host(size, flags) if size else 0


@call
def cudaFreeHost(ptr: int) -> None:
    memory.free(ptr, "cudaFreeHost", is_for_host=True)


@call
def cudaMallocPitch(width: int, height: int) -> tuple[int, int]:
    return memory.allocate_rows(width, height, 1)


@call
def cudaMalloc3D(extent: Mapping[str, int]) -> dict[str, int]:
    width, height = extent["width"], extent["height"]
    address, pitch = memory.allocate_rows(width, height, extent["depth"])
    return {"ptr": address, "pitch": pitch, "xsize": width, "ysize": height}


@call
def cudaMemset(devPtr: int, value: int, count: int) -> None:
    memory.fill(None, devPtr, value, count)


@call
def cudaMemsetAsync(devPtr: int, value: int, count: int, stream: AnyStream) -> None:
    memory.fill(stream, devPtr, value, count)


@call
def cudaMemset2D(devPtr: int, pitch: int, value: int, width: int, height: int) -> None:
    memory.fill_box(None, devPtr, value, (width, height, 1), (1, pitch, height))


@call
def cudaMemset2DAsync(
    devPtr: int, pitch: int, value: int, width: int, height: int, stream: AnyStream
) -> None:
    memory.fill_box(stream, devPtr, value, (width, height, 1), (1, pitch, height))


def _fill_3d(stream: AnyStream | None, pitched: Any, value: int, extent: Any) -> None:
    sizes = extent["width"], extent["height"], extent["depth"]
    memory.fill_box(stream, pitched["ptr"], value, sizes, (1, pitched["pitch"], pitched["ysize"]))


@call
def cudaMemset3D(pitchedDevPtr: Any, value: int, extent: Any) -> None:
    _fill_3d(None, pitchedDevPtr, value, extent)


@call
def cudaMemset3DAsync(pitchedDevPtr: Any, value: int, extent: Any, stream: AnyStream) -> None:
    _fill_3d(stream, pitchedDevPtr, value, extent)


@call
def cudaPointerGetAttributes(ptr: int) -> dict[str, int]:
    """Return what an address is; ordinary memory of the host is unregistered, and not refused."""
    pointer = pointer_at(ptr)
    if pointer is None:
        return {"type": _UNREGISTERED, "device": _NO_DEVICE, "devicePointer": 0, "hostPointer": ptr}
    region = pointer.region
    kind = _MANAGED if region.is_managed else _DEVICE if region.is_device else _HOST
    return {
        "type": kind,
        "device": pointer.device,
        "devicePointer": pointer.address,
        "hostPointer": pointer.host_address or 0,
    }
