"""Calls of HIP that allocate, register and free memory (facts/hip 1.3, 1.4)."""

from __future__ import annotations

import mmap
import os
import threading
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.hip_client import code, done, held, on, read, write
from peerlane.dialects.gpu.streams import PER_THREAD_STREAM
from peerlane.dialects.hip import explain
from peerlane.dialects.hip.streams.stream import create

pytestmark = pytest.mark.timeout(60)
COHERENT, NON_COHERENT, UNCACHED = 0x4000_0000, 0x8000_0000, 0x1000_0000


def test_hip_malloc_calls_size_0_return_success_and_null(hip: ModuleType) -> None:
    for result in (
        hip.hipMalloc(0),
        hip.hipHostMalloc(0, 0),
        hip.hipHostAlloc(0, 0),
        hip.hipMallocHost(0),
        hip.hipMemAllocHost(0),
        hip.hipExtMallocWithFlags(0, 0),
    ):
        assert done(result) is None
    assert done(hip.hipMallocPitch(0, 4)) == (None, 0)
    assert done(hip.hipMallocPitch(4, 0)) == (None, 0)
    assert done(hip.hipMalloc3D(hip.hipExtent(4, 4, 0))).ptr.is_ptr_null


@pytest.mark.parametrize("call", ["hipMallocHost", "hipMemAllocHost"])
def test_hip_malloc_host_returns_host_memory_that_free_host_ends(hip: ModuleType, call: str) -> None:
    memory = done(getattr(hip, call)(64))
    write(hip, memory, bytes(range(64)))
    assert read(hip, memory, 64).tobytes() == bytes(range(64))
    assert done(hip.hipHostGetFlags(memory)) == 0
    done(hip.hipFreeHost(memory))


@pytest.mark.parametrize("flags", [0, 1, 2, 4, 7, 0x2000_0000, COHERENT, NON_COHERENT, UNCACHED])
def test_hip_host_malloc_valid_flags_are_read_back(hip: ModuleType, flags: int) -> None:
    memory = done(hip.hipHostMalloc(64, flags))
    assert done(hip.hipHostGetFlags(memory)) == flags
    assert done(hip.hipHostGetFlags(int(memory) + 63)) == flags
    assert int(done(hip.hipHostGetDevicePointer(int(memory) + 5, 0))) == int(memory) + 5
    done(hip.hipHostFree(memory))
    assert code(hip.hipHostGetFlags(memory)) == "hipErrorInvalidValue"


@pytest.mark.parametrize("flags", [8, COHERENT | NON_COHERENT, UNCACHED | COHERENT, 1 << 20])
def test_hip_host_malloc_invalid_flags_return_invalid_value(hip: ModuleType, flags: int) -> None:
    assert hip.hipHostMalloc(64, flags) == (hip.hipError_t.hipErrorInvalidValue, None)


@pytest.mark.parametrize("flags", [COHERENT, NON_COHERENT, 0x2000_0000])
def test_hip_host_alloc_flags_that_only_host_malloc_has_return_invalid_value(
    hip: ModuleType, flags: int
) -> None:
    assert code(hip.hipHostAlloc(64, flags)) == "hipErrorInvalidValue"
    assert done(hip.hipHostGetFlags(done(hip.hipHostAlloc(64, 3)))) == 3


def test_hip_host_get_flags_memory_not_of_host_malloc_returns_invalid_value(hip: ModuleType) -> None:
    numbers = np.zeros(8)
    done(hip.hipHostRegister(numbers, 64, 1))
    for other in (None, done(hip.hipMalloc(8)), numbers, np.zeros(1)):
        assert hip.hipHostGetFlags(other) == (hip.hipError_t.hipErrorInvalidValue, 0)
    assert code(hip.hipHostGetDevicePointer(np.zeros(1), 0)) == "hipErrorInvalidValue"
    assert code(hip.hipHostGetDevicePointer(None, 0)) == "hipErrorInvalidValue"
    assert code(hip.hipHostGetDevicePointer(done(hip.hipHostMalloc(8, 0)), 1)) == "hipErrorInvalidValue"


@pytest.mark.parametrize("flags", range(5))
def test_hip_ext_malloc_with_flags_gives_memory_of_that_kind(hip: ModuleType, flags: int) -> None:
    memory = done(hip.hipExtMallocWithFlags(8, flags))
    attributes = done(hip.hipPointerGetAttributes(memory))
    assert attributes.type.name == ("hipMemoryTypeHost" if flags == 2 else "hipMemoryTypeDevice")
    assert attributes.allocationFlags == flags
    assert memory.size == 8
    write(hip, memory, b"12345678")
    assert read(hip, memory, 8).tobytes() == b"12345678"
    done(hip.hipFree(memory))


def test_hip_ext_malloc_with_flags_bad_flags_or_size_return_invalid_value(hip: ModuleType) -> None:
    assert code(hip.hipExtMallocWithFlags(8, 5)) == "hipErrorInvalidValue"
    assert code(hip.hipExtMallocWithFlags(16, 2)) == "hipErrorInvalidValue"


@pytest.mark.parametrize("flags", [1, 2])
def test_hip_malloc_managed_memory_is_used_by_host_and_both_devices(hip: ModuleType, flags: int) -> None:
    memory = done(hip.hipMallocManaged(64, flags))
    host = np.asarray(memory)
    host[:] = np.arange(64)
    other = on(hip, 1, 64)
    done(hip.hipMemcpy(other, memory, 64, hip.hipMemcpyKind.hipMemcpyDefault))
    done(hip.hipMemcpyPeer(memory, 0, on(hip, 0, 64, 9), 0, 32))
    done(hip.hipDeviceSynchronize())
    assert (host[:32] == 9).all()
    assert (host[32:] == np.arange(32, 64)).all()
    assert (read(hip, other, 64) == np.arange(64)).all()
    del host
    done(hip.hipFree(memory))


def test_hip_malloc_managed_size_0_or_bad_flags_return_invalid_value(hip: ModuleType) -> None:
    assert hip.hipMallocManaged(0, 1) == (hip.hipError_t.hipErrorInvalidValue, None)
    for flags in (0, 3, 4):
        assert code(hip.hipMallocManaged(8, flags)) == "hipErrorInvalidValue"


def test_hip_malloc_pitch_rounds_pitch_up_to_256_and_refuses_bad_sizes(hip: ModuleType) -> None:
    for width, pitch in ((1, 256), (256, 256), (257, 512)):
        memory, attributes = done(hip.hipMallocPitch(width, 3))
        assert attributes == pitch
        assert done(hip.hipMemPtrGetInfo(memory)) == 3 * pitch
    for element in (4, 8, 16):
        assert done(hip.hipMemAllocPitch(100, 2, element))[1] == 256
    for words in ((100, 2, 2), (0, 2, 4), (2, 0, 4)):
        assert code(hip.hipMemAllocPitch(*words)) == "hipErrorInvalidValue"
    assert code(hip.hipMallocPitch((1 << 64) - 5, 2)) == "hipErrorInvalidValue"
    assert code(hip.hipMallocPitch(1 << 40, 1 << 40)) == "hipErrorOutOfMemory"
    assert code(hip.hipMallocPitch(1 << 20, 1 << 20)) == "hipErrorOutOfMemory"
    assert code(hip.hipMalloc3D(None)) == "hipErrorInvalidValue"


def test_hip_malloc_3d_hip_python_7_shape_fills_the_callers_struct(hip: ModuleType) -> None:
    box = hip.hipPitchedPtr()
    done(hip.hipMalloc3D(box, hip.hipExtent(10, 3, 2)))
    assert (box.pitch, box.xsize, box.ysize) == (256, 10, 3)
    assert done(hip.hipMemPtrGetInfo(box.ptr)) == 256 * 3 * 2


@pytest.mark.parametrize("call", ["hipFree", "hipHostFree", "hipFreeHost"])
def test_hip_free_calls_free_device_and_host_memory_once(hip: ModuleType, call: str) -> None:
    free = getattr(hip, call)
    done(free(None))
    for memory in (
        done(hip.hipMalloc(64)),
        done(hip.hipHostMalloc(64, 0)),
        done(hip.hipMallocManaged(64, 1)),
    ):
        assert code(free(int(memory) + 8)) == "hipErrorInvalidValue"
        done(free(memory))
        assert code(free(memory)) == "hipErrorInvalidValue"


def test_hip_free_memory_not_allocated_by_hip_returns_invalid_value(hip: ModuleType) -> None:
    numbers = np.zeros(8)
    assert code(hip.hipFree(numbers)) == "hipErrorInvalidValue"
    done(hip.hipHostRegister(numbers, 64, 0))
    assert code(hip.hipFree(numbers)) == "hipErrorInvalidValue"
    assert code(hip.hipHostFree(numbers)) == "hipErrorInvalidValue"


@pytest.mark.parametrize("kind", ["device", "host"])
@pytest.mark.parametrize("flags", [0, 1])
def test_hip_free_waits_for_queued_copies(hip: ModuleType, kind: str, flags: int) -> None:
    source = on(hip, 0, 64, 5)
    memory = done(hip.hipMalloc(64) if kind == "device" else hip.hipHostMalloc(64, 0))
    kept = on(hip, 0, 64)
    stream = create(flags)
    default = hip.hipMemcpyKind.hipMemcpyDefault
    results: list[Any] = []
    with held(stream):
        done(hip.hipMemcpyAsync(memory, source, 64, default, stream))
        done(hip.hipMemcpyAsync(kept, memory, 64, default, stream))
        thread = threading.Thread(target=lambda: results.append(hip.hipFree(memory)))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        assert code(hip.hipPointerGetAttributes(memory)) == "hipSuccess"
    thread.join(20)
    assert [code(each) for each in results] == ["hipSuccess"]
    assert (read(hip, kept, 64) == 5).all()


def test_hip_free_succeeds_when_streams_end_while_it_waits(hip: ModuleType) -> None:
    memory, ready, go = on(hip, 0, 64), threading.Event(), threading.Event()

    def use_stream_of_thread() -> None:
        done(hip.hipStreamSynchronize(PER_THREAD_STREAM))
        ready.set()
        go.wait(20)

    first, ending = create(1), create(0)
    other = threading.Thread(target=use_stream_of_thread)
    other.start()
    ready.wait(20)
    results: list[Any] = []
    with held(first):
        thread = threading.Thread(target=lambda: results.append(hip.hipFree(memory)))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        done(hip.hipStreamDestroy(ending))
        go.set()
        other.join(20)
    thread.join(20)
    assert [code(each) for each in results] == ["hipSuccess"]


def test_hip_free_leaves_failure_of_work_to_its_stream(hip: ModuleType) -> None:
    stream = done(hip.hipStreamCreate())
    memory, wild = on(hip, 0, 64), mmap.mmap(-1, mmap.PAGESIZE)
    address = np.frombuffer(wild, np.uint8).ctypes.data
    done(hip.hipHostRegister(address, mmap.PAGESIZE, 0))
    wild = None  # type: ignore[assignment]  # unmaps the memory while it is registered
    default = hip.hipMemcpyKind.hipMemcpyDefault
    done(hip.hipMemcpyAsync(memory, address, 64, default, stream))
    done(hip.hipFree(memory))
    assert code(hip.hipStreamSynchronize(stream)) == "hipErrorIllegalAddress"


def test_hip_host_register_again_keeps_the_first_and_is_not_counted(hip: ModuleType) -> None:
    numbers = np.arange(1024, dtype=np.uint8)
    done(hip.hipHostRegister(numbers, 1024, 0))
    assert int(done(hip.hipHostGetDevicePointer(numbers[10:], 0))) == numbers.ctypes.data + 10
    done(hip.hipHostRegister(numbers, 16, 1))
    assert done(hip.hipPointerGetAttributes(numbers)).allocationFlags == 0
    assert int(done(hip.hipHostGetDevicePointer(numbers[1000:], 0))) == numbers.ctypes.data + 1000
    assert code(hip.hipHostUnregister(numbers[1:])) == "hipErrorHostMemoryNotRegistered"
    done(hip.hipHostUnregister(numbers))
    twice = hip.hipHostUnregister(numbers)
    assert (code(twice), int(twice[0])) == ("hipErrorHostMemoryNotRegistered", 713)


def test_hip_host_register_overlapping_ranges_live_apart(hip: ModuleType) -> None:
    numbers = np.arange(1024, dtype=np.uint8)
    for start, nbytes in ((0, 1024), (100, 10), (512, 512)):
        done(hip.hipHostRegister(numbers[start:], nbytes, 0))
    assert done(hip.hipMemPtrGetInfo(numbers[105:])) == 10
    assert done(hip.hipMemPtrGetInfo(numbers[5:])) == 1024
    done(hip.hipHostUnregister(numbers[100:]))
    assert done(hip.hipMemPtrGetInfo(numbers[105:])) == 1024
    done(hip.hipHostUnregister(numbers))
    assert done(hip.hipMemPtrGetInfo(numbers[600:])) == 512
    done(hip.hipHostUnregister(numbers[512:]))
    owned = done(hip.hipHostMalloc(64, 0))
    assert hip.hipHostRegister(owned, 64, 0) == (hip.hipError_t.hipErrorHostMemoryAlreadyRegistered,)


@pytest.mark.parametrize("flags", [0, 1, 2, 3, 4, 8, 0x8000_0000])
def test_hip_host_register_flags_are_read_back(hip: ModuleType, flags: int) -> None:
    numbers = np.zeros(8)
    done(hip.hipHostRegister(numbers, 64, flags))
    assert done(hip.hipPointerGetAttributes(numbers)).allocationFlags == flags


def test_hip_host_register_bad_arguments_return_documented_codes(hip: ModuleType) -> None:
    numbers = np.zeros(8)
    assert code(hip.hipHostRegister(None, 64, 0)) == "hipErrorInvalidValue"
    assert code(hip.hipHostRegister(numbers, 0, 0)) == "hipErrorInvalidValue"
    assert code(hip.hipHostRegister(numbers, 65, 0)) == "hipErrorInvalidValue"
    assert code(hip.hipHostRegister(numbers, 64, 16)) == "hipErrorInvalidValue"
    assert code(hip.hipHostRegister(64, 64, 0)) == "hipErrorInvalidValue"
    assert code(hip.hipHostRegister((1 << 64) - 8, 64, 0)) == "hipErrorInvalidValue"
    assert code(hip.hipHostRegister(done(hip.hipHostMalloc(64, 0)), 64, 0)) == (
        "hipErrorHostMemoryAlreadyRegistered"
    )
    assert code(hip.hipHostUnregister(None)) == "hipErrorInvalidValue"


def test_hip_memcpy_async_registered_memory_waits_for_stream(hip: ModuleType) -> None:
    numbers, source = np.zeros(64, np.uint8), on(hip, 0, 64, 5)
    done(hip.hipHostRegister(numbers, 64, 0))
    stream = done(hip.hipStreamCreate())
    default = hip.hipMemcpyKind.hipMemcpyDefault
    with held(stream):
        done(hip.hipMemcpyAsync(int(numbers.ctypes.data), source, 64, default, stream))
        assert not numbers.any()
    assert (numbers == 5).all()
    assert code(hip.hipMemcpy(numbers.ctypes.data + 8, source, 57, default)) == "hipErrorInvalidValue"
    done(hip.hipHostUnregister(numbers))


def test_hip_host_unregister_waits_for_queued_copy(hip: ModuleType) -> None:
    numbers, source = np.zeros(64, np.uint8), on(hip, 0, 64, 5)
    done(hip.hipHostRegister(numbers, 64, 0))
    stream = done(hip.hipStreamCreate())
    results: list[Any] = []
    with held(stream):
        done(hip.hipMemcpyAsync(numbers, source, 64, hip.hipMemcpyKind.hipMemcpyDefault, stream))
        thread = threading.Thread(target=lambda: results.append(hip.hipHostUnregister(numbers)))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
    thread.join(20)
    assert [code(each) for each in results] == ["hipSuccess"]
    assert (numbers == 5).all()


def test_hip_mem_get_info_counts_allocated_bytes(hip: ModuleType) -> None:
    before, total = done(hip.hipMemGetInfo())
    memory = done(hip.hipMalloc(8 << 20))
    assert done(hip.hipMemGetInfo()) == (before - (8 << 20), total)
    done(hip.hipFree(memory))
    assert done(hip.hipMemGetInfo()) == (before, total)


@pytest.mark.parametrize("call", ["hipHostMalloc", "hipHostAlloc", "hipMallocManaged"])
def test_hip_host_malloc_beyond_host_memory_returns_out_of_memory(hip: ModuleType, call: str) -> None:
    present = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    explain()
    assert getattr(hip, call)(present + 4096, 1) == (hip.hipError_t.hipErrorOutOfMemory, None)
    assert f"the host has {present:,} in all" in explain()
