"""A pool of HIP reuses freed memory by the rules of the vendor's runtime and of its tests."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from helpers.hip_calls import Gate, code, content, done
from helpers.hip_memory import properties, write

Enter = Callable[..., ModuleType]
MIB = 1 << 20
NEVER = (1 << 64) - 1
INVALID = "hipErrorInvalidValue"

pytestmark = pytest.mark.timeout(60)


def new_pool(hip: ModuleType, device: int = 0, **settings: int) -> Any:
    """Return a pool with attributes set: ``new_pool(hip, AttrReleaseThreshold=MIB)``."""
    pool_properties = hip.hipMemPoolProps()
    pool_properties.allocType = hip.hipMemAllocationType.hipMemAllocationTypePinned
    pool_properties.location.type = hip.hipMemLocationType.hipMemLocationTypeDevice
    pool_properties.location.id = device
    pool = done(hip.hipMemPoolCreate(pool_properties))
    for name, value in settings.items():
        cell = ctypes.c_int(value) if name.startswith("Reuse") else ctypes.c_uint64(value)
        done(hip.hipMemPoolSetAttribute(pool, hip.hipMemPoolAttr[f"hipMemPool{name}"], cell))
    return pool


def attribute(hip: ModuleType, pool: Any, name: str) -> int:
    value = ctypes.c_uint64()
    done(hip.hipMemPoolGetAttribute(pool, hip.hipMemPoolAttr[f"hipMemPoolAttr{name}"], value))
    return value.value


def streams(hip: ModuleType) -> tuple[Any, Any, Gate]:
    """Return two streams that do not wait for each other, the first of which waits for a gate."""
    first, second = (done(hip.hipStreamCreateWithFlags(1)) for _ in range(2))
    gate = Gate(hip)
    gate.close(first)
    return first, second, gate


@pytest.mark.parametrize("nbytes", [1024, 2 * MIB, 8 * MIB + 5])
def test_hip_malloc_from_pool_async_same_stream_reuses_memory_before_free_runs(
    hip: ModuleType, nbytes: int
) -> None:
    pool = new_pool(hip)
    stream, _, gate = streams(hip)
    first = done(hip.hipMallocFromPoolAsync(nbytes, pool, stream))
    done(hip.hipMemsetAsync(first, 7, nbytes, stream))
    copied = done(hip.hipMalloc(nbytes))
    done(hip.hipMemcpyAsync(copied, first, nbytes, hip.hipMemcpyKind.hipMemcpyDefault, stream))
    done(hip.hipFreeAsync(first, stream))
    assert attribute(hip, pool, "UsedMemCurrent") == 0
    second = done(hip.hipMallocFromPoolAsync(nbytes, pool, stream))
    assert int(second) == int(first)
    done(hip.hipMemsetAsync(second, 9, nbytes, stream))
    assert attribute(hip, pool, "UsedMemCurrent") == attribute(hip, pool, "ReservedMemCurrent") == nbytes
    gate.open()
    done(hip.hipStreamSynchronize(stream))
    assert content(hip, copied, nbytes) == b"\x07" * nbytes  # the old work saw the old bytes
    assert content(hip, second, nbytes) == b"\x09" * nbytes
    assert attribute(hip, pool, "UsedMemHigh") == nbytes
    done(hip.hipFreeAsync(second, stream))
    assert code(hip.hipFreeAsync(second, stream)) == INVALID
    done(hip.hipStreamSynchronize(stream))
    assert attribute(hip, pool, "ReservedMemCurrent") == 0


def test_hip_malloc_async_default_pool_reuses_freed_memory(hip: ModuleType) -> None:
    first = done(hip.hipMallocAsync(4 * MIB, None))
    done(hip.hipFreeAsync(first, None))
    assert int(done(hip.hipMallocAsync(4 * MIB, None))) == int(first)


@pytest.mark.parametrize(
    ("kept", "asked", "is_reused"),
    [(900, 800, True), (900, 799, False), (800, 801, False), (9 * MIB, 8 * MIB, True)],
)
def test_hip_malloc_from_pool_async_reuses_memory_at_most_an_eighth_larger(
    hip: ModuleType, kept: int, asked: int, is_reused: bool
) -> None:
    pool = new_pool(hip)
    first = done(hip.hipMallocFromPoolAsync(kept, pool, None))
    done(hip.hipFreeAsync(first, None))
    second = done(hip.hipMallocFromPoolAsync(asked, pool, None))
    assert (int(second) == int(first)) is is_reused
    assert attribute(hip, pool, "UsedMemCurrent") == (kept if is_reused else asked)


@pytest.mark.parametrize("allowed", [1, 0])
def test_hip_malloc_from_pool_async_other_stream_reuses_only_after_free_ran(
    hip: ModuleType, allowed: int
) -> None:
    pool = new_pool(hip, ReuseAllowOpportunistic=allowed)
    stream, other, gate = streams(hip)
    first = done(hip.hipMallocFromPoolAsync(MIB, pool, stream))
    done(hip.hipFreeAsync(first, stream))
    assert int(done(hip.hipMallocFromPoolAsync(MIB, pool, other))) != int(first)
    gate.open()
    done(hip.hipEventSynchronize(event := done(hip.hipEventCreate())))  # never recorded: it waits for nothing
    while code(hip.hipStreamQuery(stream)) != "hipSuccess":
        pass
    second = done(hip.hipMallocFromPoolAsync(MIB, pool, other))
    assert (int(second) == int(first)) is bool(allowed)
    done(hip.hipEventDestroy(event))


@pytest.mark.parametrize("follows", [1, 0])
def test_hip_malloc_from_pool_async_stream_behind_event_reuses_freed_memory(
    hip: ModuleType, follows: int
) -> None:
    pool = new_pool(hip, ReuseFollowEventDependencies=follows)
    stream, other, gate = streams(hip)
    before, behind = (done(hip.hipEventCreate()) for _ in range(2))
    first = done(hip.hipMallocFromPoolAsync(MIB, pool, stream))
    done(hip.hipEventRecord(before, stream))
    done(hip.hipFreeAsync(first, stream))
    done(hip.hipEventRecord(behind, stream))
    done(hip.hipStreamWaitEvent(other, before, 0))
    assert int(done(hip.hipMallocFromPoolAsync(MIB, pool, other))) != int(first)
    done(hip.hipStreamWaitEvent(other, behind, 0))
    assert (int(done(hip.hipMallocFromPoolAsync(MIB, pool, other))) == int(first)) is bool(follows)
    gate.open()
    done(hip.hipDeviceSynchronize())


@pytest.mark.parametrize("wait", ["stream", "device", "event", "free", "reset"])
def test_hip_wait_calls_give_freed_pool_memory_back_to_device(hip: ModuleType, wait: str) -> None:
    total = hip.hipMemGetInfo()[1]
    other = done(hip.hipMalloc(64))
    held = total - hip.hipMemGetInfo()[1]
    event = done(hip.hipEventCreate())
    done(hip.hipFreeAsync(done(hip.hipMallocAsync(8 * MIB, None)), None))
    done(hip.hipEventRecord(event, None))
    assert hip.hipMemGetInfo()[1] == total - held - 8 * MIB
    done(
        {
            "stream": lambda: hip.hipStreamSynchronize(None),
            "device": hip.hipDeviceSynchronize,
            "event": lambda: hip.hipEventSynchronize(event),
            "free": lambda: hip.hipFree(other),
            "reset": hip.hipDeviceReset,
        }[wait]()
    )
    assert hip.hipMemGetInfo()[1] == total - (held if wait in ("stream", "device", "event") else 0)


def test_hip_pool_release_threshold_12_mib_keeps_8_of_24_mib(hip: ModuleType) -> None:
    pool = new_pool(hip, AttrReleaseThreshold=12 * MIB)
    memory = [done(hip.hipMallocFromPoolAsync(8 * MIB, pool, None)) for _ in range(3)]
    for each in memory:
        done(hip.hipFreeAsync(each, None))
    done(hip.hipDeviceSynchronize())
    assert attribute(hip, pool, "ReservedMemCurrent") == 8 * MIB
    assert attribute(hip, pool, "ReservedMemHigh") == 24 * MIB
    again = done(hip.hipMallocFromPoolAsync(8 * MIB, pool, None))
    assert int(again) in {int(each) for each in memory}


def test_hip_pool_release_threshold_maximum_keeps_all_until_trim(hip: ModuleType) -> None:
    pool = new_pool(hip, AttrReleaseThreshold=NEVER)
    memory = [done(hip.hipMallocFromPoolAsync(8 * MIB, pool, None)) for _ in range(3)]
    for each in memory:
        done(hip.hipFreeAsync(each, None))
    done(hip.hipDeviceSynchronize())
    assert attribute(hip, pool, "ReservedMemCurrent") == 24 * MIB
    done(hip.hipMemPoolTrimTo(pool, 9 * MIB))
    assert attribute(hip, pool, "ReservedMemCurrent") == 8 * MIB
    done(hip.hipMemPoolTrimTo(pool, 0))
    assert attribute(hip, pool, "ReservedMemCurrent") == 0


def test_hip_mem_pool_trim_to_leaves_memory_whose_free_is_queued(hip: ModuleType) -> None:
    pool = new_pool(hip, AttrReleaseThreshold=128 * MIB)
    stream, _, gate = streams(hip)
    done(hip.hipFreeAsync(done(hip.hipMallocFromPoolAsync(4 * MIB, pool, stream)), stream))
    done(hip.hipMemPoolTrimTo(pool, 0))
    assert attribute(hip, pool, "ReservedMemCurrent") == 4 * MIB
    gate.open()
    done(hip.hipStreamSynchronize(stream))
    assert attribute(hip, pool, "ReservedMemCurrent") == 4 * MIB
    done(hip.hipMemPoolTrimTo(pool, 0))
    assert attribute(hip, pool, "ReservedMemCurrent") == 0


@pytest.mark.parametrize("asked", ["hipMalloc", "hipMallocAsync", "hipMemCreate"])
def test_hip_allocations_without_room_take_memory_kept_by_pool(hip: ModuleType, asked: str) -> None:
    pool = new_pool(hip, AttrReleaseThreshold=NEVER)
    done(hip.hipFreeAsync(done(hip.hipMallocFromPoolAsync(48 * MIB, pool, None)), None))
    if asked == "hipMemCreate":
        done(hip.hipMemCreate(32 * MIB, properties(hip), 0))
    else:
        done(hip.hipMallocAsync(32 * MIB, None) if asked == "hipMallocAsync" else hip.hipMalloc(32 * MIB))
    assert attribute(hip, pool, "ReservedMemCurrent") == 0


def test_hip_malloc_no_room_while_free_is_queued_returns_out_of_memory(hip: ModuleType) -> None:
    stream, _, gate = streams(hip)
    first = done(hip.hipMallocAsync(48 * MIB, stream))
    copied = done(hip.hipMalloc(64))
    done(hip.hipMemsetAsync(first, 5, 48 * MIB, stream))
    done(hip.hipMemcpyAsync(copied, first, 64, hip.hipMemcpyKind.hipMemcpyDefault, stream))
    done(hip.hipFreeAsync(first, stream))
    assert code(hip.hipMalloc(32 * MIB)) == "hipErrorOutOfMemory"
    gate.open()
    done(hip.hipStreamSynchronize(stream))
    assert content(hip, copied, 64) == b"\x05" * 64
    done(hip.hipMalloc(32 * MIB))


def test_hip_free_async_exported_memory_is_not_kept(hip: ModuleType) -> None:
    first = done(hip.hipMallocAsync(4 * MIB, None))
    done(hip.hipMemPoolExportPointer(first))
    done(hip.hipFreeAsync(first, None))
    pool = done(hip.hipDeviceGetDefaultMemPool(0))
    assert attribute(hip, pool, "ReservedMemCurrent") == 0


def test_hip_mem_pool_destroy_releases_kept_memory(hip: ModuleType) -> None:
    total = hip.hipMemGetInfo()[1]
    pool = new_pool(hip, AttrReleaseThreshold=NEVER)
    stream, _, gate = streams(hip)
    first, second = (done(hip.hipMallocFromPoolAsync(4 * MIB, pool, stream)) for _ in range(2))
    done(hip.hipFreeAsync(first, stream))
    done(hip.hipMemPoolDestroy(pool))
    done(hip.hipFreeAsync(second, stream))
    gate.open()
    done(hip.hipStreamSynchronize(stream))
    assert hip.hipMemGetInfo()[1] == total


def test_hip_free_memory_kept_by_pool_message_names_free_async(hip: ModuleType) -> None:
    from peerlane.dialects.hip import explain

    pool = new_pool(hip, AttrReleaseThreshold=NEVER)
    pointer = done(hip.hipMallocFromPoolAsync(4096, pool, None))
    write(hip, pointer, b"x" * 4096)
    done(hip.hipFreeAsync(pointer, None))
    explain()
    assert code(hip.hipFree(pointer)) == INVALID
    assert "freed by hipFreeAsync" in explain()
