"""What ``torch.cuda`` asks of torch's native library for CUDA, under the names that it has there, on virtual devices.

torch's build for the processor has the Python code of ``torch.cuda``, and lacks the native functions below it.  This
module puts them into ``torch._C`` before ``torch.cuda`` is imported, so that torch's own code runs unchanged.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from enum import IntEnum
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

import torch
from torch import _C

from peerlane.dialects.cuda.code_texts import texts_of
from peerlane.dialects.cuda.devices import FIGURES
from peerlane.dialects.cuda.hardware import bus_of, chip_of
from peerlane.dialects.cuda.state import uuid_text
from peerlane.node.device import Device
from peerlane.support import torch_version as torch_version  # it may refuse torch
from peerlane.support.libraries import binding

# torch is half imported when this module is; what is above torch's native library is used when it is called.

_Served = TypeVar("_Served", bound=Callable[..., Any])
_served: dict[str, Any] = {"_has_cuda": True}
_RUNTIME = binding("cudart")
_codes = {
    name.replace("cudaSuccess", "success"): code for name, code in _RUNTIME["enums"]["cudaError_t"].items()
}
_text_of = texts_of(_RUNTIME["enums"])["cudaGetErrorString"]


def serve() -> None:
    """Put the functions and classes of this module into ``torch._C``; a name that is not served says so."""
    vars(_C).update(_served, __getattr__=_refuse_name)
    # Programs and torch's own code recognise a build with CUDA by it, where ``hip`` is the other answer.
    torch.version.cuda = ".".join(map(str, _RUNTIME["version"][:2]))


def count_without_driver() -> None:
    """Let ``torch.cuda`` count by the functions here alone, where a driver of the vendor knows other devices."""
    vars(sys.modules["torch.cuda"])["_device_count_nvml"] = lambda: -1


def allocate_without_pools() -> None:
    """Let ``torch.distributed._symmetric_memory.empty`` allocate without a pool of CUDA's caching allocator."""
    vars(sys.modules["torch.distributed._symmetric_memory"])["_use_implicit_mempool"] = False


def profile_without_cupti() -> None:
    """Let ``record_function`` not look for CUPTI: its import in a profile with stacks leaves events without names."""
    vars(torch.autograd.profiler)["_cupti_monitor_checked"] = True


def make_storages() -> None:
    """Let ``torch.UntypedStorage`` be made and resized on ``cuda``: torch's native code for it refuses that."""
    of_torch = torch.UntypedStorage.__new__

    def new(cls: type, *args: Any, device: Any = None, **options: Any) -> Any:
        if device is None or torch.device(device).type != "cuda":
            return of_torch(cls, *args, **({} if device is None else {"device": device}), **options)
        content = args[0] if args else 0
        make = torch.empty if isinstance(content, int) else torch.tensor
        return make(content, dtype=torch.uint8, device=device).untyped_storage()

    def resize(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        if not storage.is_cuda:
            return resize_of_torch(storage, size)
        _module().extension().resize_storage(
            torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage), size
        )
        return storage

    resize_of_torch = torch.UntypedStorage.resize_
    torch.UntypedStorage.__new__ = new
    torch.UntypedStorage.resize_ = resize


def _served_as_torch(item: _Served) -> _Served:
    _served[item.__name__] = item
    return item


def _sentence(name: str) -> str:
    return (
        f"torch._C.{name} is part of torch's library for CUDA, and peerlane does not serve it: virtual devices run "
        "kernels of the processor, without Triton, kernels of NCCL and CUDA graphs"
    )


def _refuse_name(name: str) -> Any:
    is_cudas = name.lower().startswith(("_cuda", "_nccl", "_gds"))
    raise AttributeError(
        _sentence(name) if is_cudas else f"module 'torch._C' has no attribute {name!r}", name=name, obj=_C
    )


def _refuse_class(name: str) -> None:
    def refuse(_cls: type, *_args: Any, **_options: Any) -> Any:
        raise RuntimeError(_sentence(name))

    _served[name] = type(name, (), {"__new__": refuse})


def _refuse_function(name: str) -> None:
    def refuse(*_args: Any, **_options: Any) -> Any:
        raise RuntimeError(_sentence(name))

    _served[name] = refuse


for _each in ("_CUDAGraph", "_MemPool", "_cuda_CUDAAllocator", "_cuda_CUDAAllocator_AllocatorState"):
    _refuse_class(_each)
for _each in (
    "_graph_pool_handle",
    "_cuda_beginAllocateToPool",
    "_cuda_beginAllocateCurrentThreadToPool",
    "_cuda_endAllocateToPool",
    "_cuda_releasePool",
):
    _refuse_function(_each)


# Devices


@_served_as_torch
def _cuda_init() -> None:
    torch.cuda._get_device_properties = _properties
    torch.cuda.default_generators = tuple(map(_module().default_generator, range(_cuda_getDeviceCount())))


def _module() -> ModuleType:
    from peerlane.torch import device_module  # it needs all of torch

    device_module.init()
    return device_module


def _devices() -> tuple[Device, ...]:
    from peerlane.torch import device_objects  # as above

    return device_objects.present()


@_served_as_torch
def _cuda_getDeviceCount() -> int:
    return int(_module().device_count())


@_served_as_torch
def _cuda_isInBadFork() -> bool:
    return bool(_module().is_in_bad_fork())


@_served_as_torch
def _cuda_getArchFlags() -> None:
    """Return no architectures: no kernel was compiled for any."""


@_served_as_torch
def _cuda_getDevice() -> int:
    return int(_C._accelerator_getDeviceIndex())


def _driver() -> ModuleType:
    from peerlane.torch_cuda import driver  # as above

    return driver


_of_torch = {
    name: getattr(_C, f"_accelerator_{name}")
    for name in ("setDeviceIndex", "exchangeDevice", "maybeExchangeDevice", "synchronizeDevice")
}


@_served_as_torch
def _accelerator_setDeviceIndex(device: int) -> None:
    _of_torch["setDeviceIndex"](device)
    _driver().choose(device)


def _exchanged(name: str, device: int) -> int:
    if device < 0:
        return -1
    before: int = _of_torch[name](device)
    _driver().choose(device)
    return before


@_served_as_torch
def _accelerator_exchangeDevice(device: int) -> int:
    return _exchanged("exchangeDevice", device)


@_served_as_torch
def _accelerator_maybeExchangeDevice(device: int) -> int:
    return _exchanged("maybeExchangeDevice", device)


@_served_as_torch
def _accelerator_synchronizeDevice(device: int) -> None:
    _of_torch["synchronizeDevice"](device)
    _driver().synchronize_others(device)


_served |= {
    "_cuda_setDevice": _accelerator_setDeviceIndex,
    "_cuda_exchangeDevice": _accelerator_exchangeDevice,
    "_cuda_maybeExchangeDevice": _accelerator_maybeExchangeDevice,
}


@_served_as_torch
def _cuda_canDeviceAccessPeer(device: int, peer: int) -> bool:
    return bool(_devices()[device].can_access(_devices()[peer]))


@_served_as_torch
def _cuda_synchronize() -> None:
    _C._accelerator_synchronizeDevice(_cuda_getDevice())


@_served_as_torch
class _CUuuid:
    """The UUID of a device, by which processes that number devices differently match them."""

    def __init__(self, device: Device) -> None:
        self.bytes = list(device.uuid)
        self._text = uuid_text(device).partition("-")[2]

    def __repr__(self) -> str:
        return self._text


@_served_as_torch
class _CudaDeviceProperties(SimpleNamespace):
    """The facts of a device: what the node has, and what the vendor publishes of such a chip."""


def _properties(ordinal: int) -> _CudaDeviceProperties:
    device = _devices()[ordinal]
    chip = chip_of(device)
    domain, bus = bus_of(device)
    return _CudaDeviceProperties(
        name=device.name,
        uuid=_CUuuid(device),
        pci_domain_id=domain,
        pci_bus_id=bus,
        pci_device_id=0,
        gcnArchName=device.name,
        major=chip.capability[0],
        minor=chip.capability[1],
        multi_processor_count=chip.multiprocessors,
        total_memory=device.total_bytes,
        is_integrated=0,
        is_multi_gpu_board=0,
        max_threads_per_block=FIGURES["MAX_THREADS_PER_BLOCK"],
        max_threads_per_multi_processor=FIGURES["MAX_THREADS_PER_MULTIPROCESSOR"],
        warp_size=FIGURES["WARP_SIZE"],
        regs_per_multiprocessor=FIGURES["MAX_REGISTERS_PER_MULTIPROCESSOR"],
        shared_memory_per_block=FIGURES["MAX_SHARED_MEMORY_PER_BLOCK"],
        shared_memory_per_block_optin=FIGURES["MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"],
        shared_memory_per_multiprocessor=FIGURES["MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"],
        L2_cache_size=chip.l2_bytes,
        clock_rate=1000 * chip.clock_mhz,
        memory_clock_rate=1000 * chip.memory_clock_mhz,
        memory_bus_width=chip.bus_width,
    )


class _Cudart:
    """The module ``torch.cuda.cudart()``."""

    cudaError: Any = IntEnum("cudaError", _codes)  # type: ignore[misc]

    def cudaGetErrorString(self, error: int) -> str:
        return _text_of(error)

    def cudaHostRegister(self, ptr: int, size: int, flags: int) -> Any:
        return self.cudaError(_driver().register_host(ptr, size, flags))

    def cudaHostUnregister(self, ptr: int) -> Any:
        return self.cudaError(_driver().unregister_host(ptr))

    def cudaMemGetInfo(self, device: int) -> tuple[int, int]:
        at = _devices()[device]
        return at.free_bytes, at.total_bytes

    def cudaProfilerStart(self) -> int:
        return 0

    def cudaProfilerStop(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(_sentence(f"_cudart.{name}"), name=name, obj=self)


_served["_cudart"] = _Cudart()


@_served_as_torch
def _set_cached_tensors_enabled(enabled: bool) -> None:
    if enabled:  # for CUDA graphs; torch._dynamo.reset disables it
        raise RuntimeError(_sentence("_set_cached_tensors_enabled"))


# Streams and events


@_served_as_torch
class _CudaStreamBase(torch.Stream):
    def __new__(
        cls,
        priority: int = 0,
        stream_id: int = 0,
        device_index: int = 0,
        device_type: int = 0,
        stream_ptr: int = 0,
    ) -> Any:
        if stream_ptr:
            raise RuntimeError(_sentence("_cuda_getStreamFromExternal"))
        if device_type:
            return super().__new__(
                cls,
                stream_id=stream_id,
                device_index=device_index,
                device_type=device_type,
                priority=priority,
            )
        return super().__new__(cls, torch.device("cuda", _cuda_getDevice()), priority=priority)

    @property
    def cuda_stream(self) -> int:
        return int(_driver().handle_of(self))

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, 0

    @property
    def priority(self) -> int:
        return 0


@_served_as_torch
class _CudaEventBase(torch.Event):
    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> Any:
        if interprocess:
            raise RuntimeError(_sentence("_CudaEventBase(interprocess=True)"))
        return super().__new__(cls, "cuda", enable_timing=enable_timing, blocking=blocking)

    def __init__(self, enable_timing: bool = False, **_options: Any) -> None:
        self._is_timed = enable_timing

    @property
    def cuda_event(self) -> int:
        return int(self.event_id)

    def elapsed_time(self, end_event: _CudaEventBase) -> float:
        """Return the milliseconds from this event to another one; torch's own takes no subclass of its events."""
        return float(_module().milliseconds_between(self, end_event))


@_served_as_torch
def _cuda_getCurrentStream(device: int) -> tuple[int, int, int]:
    stream = _C._accelerator_getStream(device)
    return stream.stream_id, stream.device_index, stream.device_type


@_served_as_torch
def _cuda_getDefaultStream(device: int) -> tuple[int, int, int]:
    return 0, device, _C._accelerator_getStream(device).device_type


@_served_as_torch
def _cuda_getCurrentRawStream(device: int) -> int:
    return int(_driver().handle_of(_C._accelerator_getStream(device)))


@_served_as_torch
def _cuda_setStream(stream_id: int, device_index: int, device_type: int) -> None:
    _C._accelerator_setStream(
        torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)
    )


@_served_as_torch
def _cuda_isCurrentStreamCapturing() -> bool:
    return False


@_served_as_torch
def _cuda_get_sync_debug_mode() -> int:
    return 0


@_served_as_torch
def _cuda_sleep(cycles: int) -> None:
    """Keep the current stream busy for a number of cycles of the chip's clock."""
    at = _cuda_getDevice()
    _module().sleep(cycles * 1000 // chip_of(_devices()[at]).clock_mhz, at)


# Ranges of a profiler: nobody reads them

_served["_nvtx"] = SimpleNamespace(
    rangePushA=lambda _message: 0,
    rangePop=lambda: 0,
    rangeStartA=lambda _message: 0,
    rangeEnd=lambda _number: None,
    markA=lambda _message: None,
    deviceRangeStart=lambda _message, _stream: None,
    deviceRangeEnd=lambda _range, _stream: None,
)


# Memory


@_served_as_torch
def _cuda_emptyCache() -> None:
    _module().empty_cache()


@_served_as_torch
def _host_emptyCache() -> None:
    torch.accelerator.empty_host_cache()


@_served_as_torch
def _cuda_memorySnapshot(_pool: object = None) -> dict[str, Any]:
    traces: list[Any] = [[] for _ in _devices()]  # of a history, which is not recorded
    segments = _module().memory_snapshot()
    return {
        "segments": segments,
        "device_traces": traces,
        "allocator_settings": {},
        "external_annotations": [],
    }


@_served_as_torch
def _cuda_setMemoryFraction(fraction: float, device: int) -> None:
    _module().set_per_process_memory_fraction(fraction, device)


@_served_as_torch
def _cuda_getMemoryFraction(device: int) -> float:
    return float(_module().get_per_process_memory_fraction(device))


@_served_as_torch
def _cuda_memoryStats(device: int) -> Any:
    return _C._accelerator_getDeviceStats(device)


@_served_as_torch
def _cuda_resetPeakMemoryStats(device: int) -> None:
    _C._accelerator_resetPeakStats(device)


@_served_as_torch
def _cuda_resetAccumulatedMemoryStats(device: int) -> None:
    _C._accelerator_resetAccumulatedStats(device)


@_served_as_torch
def _cuda_hostMemoryStats() -> Any:
    return _module().extension().host_memory_stats()


@_served_as_torch
def _cuda_resetPeakHostMemoryStats() -> None:
    _module().extension().reset_peak_host_memory_stats()


@_served_as_torch
def _cuda_resetAccumulatedHostMemoryStats() -> None:
    _module().extension().reset_accumulated_host_memory_stats()


@_served_as_torch
def _cuda_getAllocatorBackend() -> str:
    return "native"


@_served_as_torch
def _cuda_ipc_collect() -> None:
    _module().collect_shared()


# NCCL, of which torch.distributed uses the back-end alone (nccl_group.py)


@_served_as_torch
def _nccl_version() -> int:
    from peerlane.dialects.cuda.nccl.communicators import VERSION  # few programs ask

    major, rest = divmod(VERSION, 10_000)
    minor, patch = divmod(rest, 100)
    return major << 32 | minor << 16 | patch


@_served_as_torch
def _nccl_version_suffix() -> bytes:
    return b""


# Tensors on several devices at once, for DataParallel


@_served_as_torch
def _broadcast(tensor: torch.Tensor, indices: Sequence[int]) -> list[torch.Tensor]:
    return [tensor.to(torch.device("cuda", each), non_blocking=True) for each in indices]


@_served_as_torch
def _broadcast_out(tensor: torch.Tensor, out: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [each.copy_(tensor, non_blocking=True) for each in out]


@_served_as_torch
def _broadcast_coalesced(
    tensors: Sequence[torch.Tensor], indices: Sequence[int], buffer_size: int
) -> list[list[torch.Tensor]]:
    return [
        [tensor.to(torch.device("cuda", each), non_blocking=True) for tensor in tensors] for each in indices
    ]


@_served_as_torch
def _scatter(
    tensor: torch.Tensor,
    indices: Sequence[int],
    chunk_sizes: Sequence[int] | None,
    dim: int,
    streams: Sequence[Any] | None,
) -> list[torch.Tensor]:
    chunks = tensor.split(list(chunk_sizes), dim) if chunk_sizes else tensor.chunk(len(indices), dim)
    scattered = []
    for number, (chunk, index) in enumerate(zip(chunks, indices, strict=False)):
        with torch.cuda.stream(streams[number] if streams else None):
            scattered.append(chunk.contiguous().to(torch.device("cuda", index), non_blocking=True))
    return scattered


@_served_as_torch
def _scatter_out(
    tensor: torch.Tensor, out: Sequence[torch.Tensor], dim: int, streams: Sequence[Any] | None
) -> Sequence[torch.Tensor]:
    chunks = tensor.split([each.size(dim) for each in out], dim)
    for number, (chunk, each) in enumerate(zip(chunks, out, strict=True)):
        with torch.cuda.stream(streams[number] if streams else None):
            each.copy_(chunk, non_blocking=True)
    return out


@_served_as_torch
def _gather(tensors: Sequence[torch.Tensor], dim: int, destination: int | None) -> torch.Tensor:
    at = torch.device("cpu") if destination == -1 else torch.device("cuda", destination or 0)
    return torch.cat([each.to(at) for each in tensors], dim)


@_served_as_torch
def _gather_out(tensors: Sequence[torch.Tensor], out: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.cat([each.to(out.device) for each in tensors], dim, out=out)
