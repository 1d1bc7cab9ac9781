"""Memory pools of HIP, stream-ordered memory, and pools of other processes."""

from __future__ import annotations

import ctypes
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from helpers.hip_memory import code, descriptions, hip_peer, location, ok, read, spec, write
from helpers.peers import Peer
from peerlane.dialects.hip import explain

Enter = Callable[..., ModuleType]
INVALID = "hipErrorInvalidValue"
MIB = 1 << 20

pytestmark = pytest.mark.timeout(120)


def wanted(hip: ModuleType, device: int = 0, *, shared: bool = False, largest: int = 0) -> Any:
    """Return a hipMemPoolProps."""
    properties = hip.hipMemPoolProps()
    properties.allocType = hip.hipMemAllocationType.hipMemAllocationTypePinned
    properties.handleTypes = hip.hipMemAllocationHandleType(int(shared))
    properties.location.type = hip.hipMemLocationType.hipMemLocationTypeDevice
    properties.location.id = device
    properties.maxSize = largest
    return properties


def attribute(hip: ModuleType, pool: Any, name: str) -> int:
    """Return an attribute of a pool."""
    value = ctypes.c_uint64()
    ok(hip.hipMemPoolGetAttribute(pool, hip.hipMemPoolAttr[f"hipMemPool{name}"], value))
    return value.value


def set_attribute(hip: ModuleType, pool: Any, name: str, value: int) -> str:
    cell = ctypes.c_int(value) if name.startswith("Reuse") else ctypes.c_uint64(value)
    return code(hip.hipMemPoolSetAttribute(pool, hip.hipMemPoolAttr[f"hipMemPool{name}"], cell))


def test_hip_malloc_async_memory_is_usable_until_free_async(hip: ModuleType) -> None:
    stream = ok(hip.hipStreamCreate())
    pointer = ok(hip.hipMallocAsync(1000, stream))
    assert pointer.shape == (1000,)
    write(hip, pointer, b"\x07" * 1000)
    other = ok(hip.hipMallocAsync(1000, None))
    ok(hip.hipMemcpyAsync(other, pointer, 1000, hip.hipMemcpyKind(3), stream))
    ok(hip.hipStreamSynchronize(stream))
    assert read(hip, other, 1000) == b"\x07" * 1000
    for each in (pointer, other):
        ok(hip.hipFreeAsync(each, stream))
    ok(hip.hipStreamSynchronize(stream))
    for each in (pointer, other):
        assert code(hip.hipMemcpy(bytearray(1), each, 1, hip.hipMemcpyKind(2))) == INVALID


def test_hip_malloc_async_size_0_returns_success_and_null(hip: ModuleType) -> None:
    pool = ok(hip.hipDeviceGetDefaultMemPool(0))
    assert hip.hipMallocAsync(0, None) == (hip.hipError_t.hipSuccess, None)
    assert hip.hipMallocFromPoolAsync(0, pool, None) == (hip.hipError_t.hipSuccess, None)


def test_hip_free_async_runs_in_stream_order(hip: ModuleType) -> None:
    streams = [ok(hip.hipStreamCreate()) for _ in range(2)]
    kept = ok(hip.hipMalloc(4 * MIB))
    for round_ in range(8):
        pointer = ok(hip.hipMallocAsync(4 * MIB, streams[0]))
        data = bytes([round_]) * (4 * MIB)
        write(hip, pointer, data)
        ok(hip.hipMemcpyAsync(kept, pointer, 4 * MIB, hip.hipMemcpyKind(3), streams[1]))
        ok(hip.hipFreeAsync(pointer, streams[1]))  # behind the copy that reads it
        ok(hip.hipStreamSynchronize(streams[1]))
        assert read(hip, kept, 4 * MIB) == data
    assert hip.hipMemGetInfo()[1] == hip.hipMemGetInfo()[2] - 4 * MIB


def test_hip_free_and_free_async_free_memory_of_either_kind(hip: ModuleType) -> None:
    ok(hip.hipFree(ok(hip.hipMallocAsync(64, None))))
    for make in (hip.hipMalloc(64), hip.hipHostMalloc(64, 0)):
        pointer = ok(make)
        ok(hip.hipFreeAsync(pointer, None))
        assert code(hip.hipFree(pointer)) == INVALID
    ok(hip.hipFreeAsync(None, None))


def test_hip_free_async_bad_arguments_return_documented_codes(hip: ModuleType) -> None:
    pointer = ok(hip.hipMallocAsync(64, None))
    for address in (0x1000, int(pointer) + 1, bytearray(4)):
        assert code(hip.hipFreeAsync(address, None)) == INVALID
    assert code(hip.hipFreeAsync(pointer, 4096)) == "hipErrorInvalidHandle"
    ok(hip.hipFreeAsync(pointer, None))
    assert code(hip.hipFreeAsync(pointer, None)) == INVALID


def test_hip_malloc_async_bad_arguments_return_documented_codes(hip: ModuleType) -> None:
    for size in (128 * MIB, 1 << 63, (1 << 64) - 1):
        assert code(hip.hipMallocAsync(size, None)) == "hipErrorOutOfMemory"
    assert code(hip.hipMallocAsync(64, 4096)) == "hipErrorInvalidHandle"
    for pool in (None, 64, ok(hip.hipStreamCreate())):
        assert code(hip.hipMallocFromPoolAsync(64, pool, None)) == INVALID


def test_hip_malloc_async_memory_queued_for_free_makes_room(hip: ModuleType) -> None:
    stream = ok(hip.hipStreamCreate())
    for _ in range(20):
        ok(hip.hipFreeAsync(ok(hip.hipMallocAsync(48 * MIB, stream)), stream))


def test_hip_malloc_async_takes_memory_of_device_of_stream(hip: ModuleType) -> None:
    ok(hip.hipSetDevice(1))
    stream = ok(hip.hipStreamCreate())
    ok(hip.hipSetDevice(0))
    free = hip.hipMemGetInfo()[1]
    ok(hip.hipMallocAsync(8 * MIB, stream))
    assert hip.hipMemGetInfo()[1] == free
    ok(hip.hipSetDevice(1))
    assert hip.hipMemGetInfo()[1] == free - 8 * MIB


@pytest.mark.parametrize("device", [0, 1])
def test_hip_device_set_mem_pool_changes_current_pool_until_destroyed(hip: ModuleType, device: int) -> None:
    default = ok(hip.hipDeviceGetDefaultMemPool(device))
    assert int(ok(hip.hipDeviceGetMemPool(device))) == int(default)
    pool = ok(hip.hipMemPoolCreate(wanted(hip, device)))
    ok(hip.hipDeviceSetMemPool(device, pool))
    assert int(ok(hip.hipDeviceGetMemPool(device))) == int(pool)
    ok(hip.hipSetDevice(device))
    ok(hip.hipMallocAsync(1000, None))
    assert [attribute(hip, each, "AttrUsedMemCurrent") for each in (default, pool)] == [0, 1000]
    ok(hip.hipMemPoolDestroy(pool))
    assert int(ok(hip.hipDeviceGetMemPool(device))) == int(default)


def test_hip_mem_set_mem_pool_by_location_equals_call_by_device(hip: ModuleType) -> None:
    pinned = hip.hipMemAllocationType.hipMemAllocationTypePinned
    device_location, pool = location(hip, 1), ok(hip.hipMemPoolCreate(wanted(hip, 1)))
    default = ok(hip.hipMemGetDefaultMemPool(device_location, pinned))
    assert int(default) == int(ok(hip.hipDeviceGetDefaultMemPool(1)))
    ok(hip.hipMemSetMemPool(device_location, pinned, pool))
    assert (
        int(ok(hip.hipMemGetMemPool(device_location, pinned)))
        == int(pool)
        == int(ok(hip.hipDeviceGetMemPool(1)))
    )
    invalid = hip.hipMemAllocationType.hipMemAllocationTypeInvalid
    assert code(hip.hipMemGetMemPool(device_location, invalid)) == INVALID
    assert code(hip.hipMemGetDefaultMemPool(None, pinned)) == INVALID
    assert code(hip.hipMemSetMemPool(location(hip, 0), pinned, pool)) == INVALID
    ok(hip.hipMemPoolDestroy(pool))
    assert int(ok(hip.hipMemGetMemPool(device_location, pinned))) == int(default)
    assert code(hip.hipMemSetMemPool(device_location, pinned, pool)) == INVALID


def test_hip_mem_set_mem_pool_managed_leaves_pool_of_malloc_async(hip: ModuleType) -> None:
    managed = hip.hipMemAllocationType.hipMemAllocationTypeManaged
    pinned = hip.hipMemAllocationType.hipMemAllocationTypePinned
    device_location, asked = location(hip, 0), wanted(hip)
    asked.allocType = managed
    default, pool = ok(hip.hipMemGetDefaultMemPool(device_location, managed)), ok(hip.hipMemPoolCreate(asked))
    assert int(default) == int(ok(hip.hipMemGetMemPool(device_location, managed)))
    assert int(default) != int(ok(hip.hipDeviceGetDefaultMemPool(0)))
    assert code(hip.hipMemSetMemPool(device_location, pinned, pool)) == INVALID
    ok(hip.hipMemSetMemPool(device_location, managed, pool))
    assert int(ok(hip.hipMemGetMemPool(device_location, managed))) == int(pool)
    assert int(ok(hip.hipDeviceGetMemPool(0))) == int(ok(hip.hipDeviceGetDefaultMemPool(0)))
    ok(hip.hipMemPoolDestroy(pool))
    assert int(ok(hip.hipMemGetMemPool(device_location, managed))) == int(default)
    assert code(hip.hipMemPoolDestroy(default)) == INVALID


@pytest.mark.parametrize("device", [-1, 2])
def test_hip_mem_pool_calls_unknown_device_return_documented_codes(hip: ModuleType, device: int) -> None:
    assert code(hip.hipDeviceGetDefaultMemPool(device)) == "hipErrorInvalidDevice"
    assert code(hip.hipDeviceGetMemPool(device)) == INVALID
    assert code(hip.hipDeviceSetMemPool(device, ok(hip.hipDeviceGetDefaultMemPool(0)))) == INVALID
    assert code(hip.hipMemPoolCreate(wanted(hip, device))) == INVALID


def test_hip_device_set_mem_pool_null_or_of_other_device_returns_documented_code(hip: ModuleType) -> None:
    assert code(hip.hipDeviceSetMemPool(0, None)) == INVALID
    other = ok(hip.hipMemPoolCreate(wanted(hip, 1)))
    assert code(hip.hipDeviceSetMemPool(0, other)) == "hipErrorInvalidDevice"


def test_hip_mem_pool_create_bad_properties_return_documented_codes(hip: ModuleType) -> None:
    assert code(hip.hipMemPoolCreate(None)) == INVALID
    properties = wanted(hip)
    properties.allocType = hip.hipMemAllocationType.hipMemAllocationTypeInvalid
    assert code(hip.hipMemPoolCreate(properties)) == INVALID
    properties = wanted(hip)
    properties.location.type = hip.hipMemLocationType.hipMemLocationTypeHost
    assert code(hip.hipMemPoolCreate(properties)) == INVALID


@pytest.mark.parametrize("kind", [0, 1, 2, 4, 8, 32764])
def test_hip_mem_pool_create_does_not_look_at_handle_types(hip: ModuleType, kind: int) -> None:
    properties, fd = wanted(hip), ctypes.c_int(-1)
    ctypes.c_int.from_address(int(properties) + 4).value = kind
    pool = ok(hip.hipMemPoolCreate(properties))
    ok(hip.hipFreeAsync(ok(hip.hipMallocFromPoolAsync(64, pool, None)), None))
    posix = hip.hipMemAllocationHandleType.hipMemHandleTypePosixFileDescriptor
    shared = hip.hipMemPoolExportToShareableHandle(fd, pool, posix, 0)
    assert code(shared) == ("hipSuccess" if kind == 1 else INVALID)
    if fd.value >= 0:
        os.close(fd.value)
    ok(hip.hipMemPoolDestroy(pool))


def test_hip_mem_pool_destroy_keeps_memory_in_use_and_refuses_default_pool(hip: ModuleType) -> None:
    pool = ok(hip.hipMemPoolCreate(wanted(hip)))
    pointer = ok(hip.hipMallocFromPoolAsync(64, pool, None))
    ok(hip.hipMemPoolDestroy(pool))
    write(hip, pointer, b"x" * 64)
    assert read(hip, pointer, 64) == b"x" * 64
    ok(hip.hipFreeAsync(pointer, None))
    for each in (pool, None, 64, ok(hip.hipDeviceGetDefaultMemPool(0))):
        assert code(hip.hipMemPoolDestroy(each)) == INVALID


def test_hip_malloc_from_pool_async_beyond_max_size_returns_out_of_memory(hip: ModuleType) -> None:
    pool = ok(hip.hipMemPoolCreate(wanted(hip, largest=MIB)))
    first = ok(hip.hipMallocFromPoolAsync(MIB // 2, pool, None))
    assert code(hip.hipMallocFromPoolAsync(MIB, pool, None)) == "hipErrorOutOfMemory"
    ok(hip.hipFreeAsync(first, None))
    assert int(ok(hip.hipMallocFromPoolAsync(MIB // 2, pool, None))) == int(first)
    ok(hip.hipMallocFromPoolAsync(MIB // 2, pool, None))


def test_hip_malloc_from_pool_async_max_size_counts_memory_that_went_back(hip: ModuleType) -> None:
    pool = ok(hip.hipMemPoolCreate(wanted(hip, largest=MIB)))
    ok(hip.hipFreeAsync(ok(hip.hipMallocFromPoolAsync(MIB, pool, None)), None))
    ok(hip.hipStreamSynchronize(None))
    ok(hip.hipMemPoolTrimTo(pool, 1024))
    assert attribute(hip, pool, "AttrReservedMemCurrent") == 0
    assert code(hip.hipMallocFromPoolAsync(MIB, pool, None)) == "hipErrorOutOfMemory"
    assert "1,048,576 were reserved, of which it may have given some back" in explain()
    assert set_attribute(hip, pool, "AttrReservedMemHigh", 0) == "hipSuccess"
    ok(hip.hipMallocFromPoolAsync(MIB, pool, None))


def test_hip_mem_pool_set_attribute_values_are_read_back(hip: ModuleType) -> None:
    pool = ok(hip.hipMemPoolCreate(wanted(hip)))
    for name in (
        "ReuseFollowEventDependencies",
        "ReuseAllowOpportunistic",
        "ReuseAllowInternalDependencies",
    ):
        assert attribute(hip, pool, name) == 1
        assert set_attribute(hip, pool, name, 0) == "hipSuccess"
        assert attribute(hip, pool, name) == 0
    assert attribute(hip, pool, "AttrReleaseThreshold") == 0
    assert set_attribute(hip, pool, "AttrReleaseThreshold", (1 << 64) - 1) == "hipSuccess"
    assert attribute(hip, pool, "AttrReleaseThreshold") == (1 << 64) - 1


def test_hip_mem_pool_high_marks_reset_only_to_0(hip: ModuleType) -> None:
    pool = ok(hip.hipMemPoolCreate(wanted(hip)))
    first, second = (ok(hip.hipMallocFromPoolAsync(size, pool, None)) for size in (1000, 500))
    ok(hip.hipFreeAsync(first, None))
    for kind, now in (("Used", 500), ("Reserved", 1500)):
        assert attribute(hip, pool, f"Attr{kind}MemCurrent") == now
        assert attribute(hip, pool, f"Attr{kind}MemHigh") == 1500
        assert set_attribute(hip, pool, f"Attr{kind}MemCurrent", 0) == INVALID
        assert set_attribute(hip, pool, f"Attr{kind}MemHigh", 7) == INVALID
        assert set_attribute(hip, pool, f"Attr{kind}MemHigh", 0) == "hipSuccess"
        assert attribute(hip, pool, f"Attr{kind}MemHigh") == 0
    third = ok(hip.hipMallocFromPoolAsync(200, pool, None))
    assert attribute(hip, pool, "AttrUsedMemHigh") == 700
    assert attribute(hip, pool, "AttrReservedMemHigh") == 1700
    ok(hip.hipFree(third))
    ok(hip.hipStreamSynchronize(None))
    assert attribute(hip, pool, "AttrReservedMemCurrent") == 500
    ok(hip.hipFree(second))
    assert attribute(hip, pool, "AttrUsedMemCurrent") == 0


def test_hip_mem_pool_attribute_calls_bad_arguments_return_documented_codes(hip: ModuleType) -> None:
    pool = ok(hip.hipDeviceGetDefaultMemPool(0))
    one = hip.hipMemPoolAttr.hipMemPoolAttrReleaseThreshold
    for call in (hip.hipMemPoolGetAttribute, hip.hipMemPoolSetAttribute):
        assert code(call(pool, one, None)) == INVALID
        assert code(call(None, one, ctypes.c_uint64())) == INVALID
        assert code(call(pool, one, ctypes.c_int())) == INVALID
        assert code(call(pool, one, 0x1000)) == "hipErrorIllegalAddress"


def test_hip_mem_pool_trim_to_null_pool_returns_invalid_value(hip: ModuleType) -> None:
    pool = ok(hip.hipDeviceGetDefaultMemPool(0))
    ok(hip.hipFree(ok(hip.hipMallocAsync(4 * MIB, None))))
    ok(hip.hipMemPoolTrimTo(pool, 0))
    assert code(hip.hipMemPoolTrimTo(None, 0)) == INVALID


def test_hip_mem_pool_set_access_is_read_back(hip: ModuleType) -> None:
    pool = ok(hip.hipMemPoolCreate(wanted(hip)))
    rights = [
        ok(hip.hipMemPoolGetAccess(pool, location(hip, device))).name.removeprefix("hipMemAccessFlagsProt")
        for device in (0, 1)
    ]
    assert rights == ["ReadWrite", "None"]
    for granted in ("Read", "ReadWrite", "None"):
        ok(hip.hipMemPoolSetAccess(pool, *descriptions(hip, d1=granted)))
        assert (
            ok(hip.hipMemPoolGetAccess(pool, location(hip, 1))).name.removeprefix("hipMemAccessFlagsProt")
            == granted
        )


def test_hip_mem_pool_access_calls_bad_arguments_return_documented_codes(hip_on: Enter) -> None:
    hip = hip_on("devices=4,switch=2,memory=16MiB")
    pool = ok(hip.hipMemPoolCreate(wanted(hip)))
    good, count = descriptions(hip, d1="Read")
    assert code(hip.hipMemPoolSetAccess(None, good, count)) == INVALID
    assert code(hip.hipMemPoolSetAccess(pool, None, count)) == INVALID
    assert code(hip.hipMemPoolSetAccess(pool, good, 2)) == INVALID  # more descriptions than given
    assert code(hip.hipMemPoolSetAccess(pool, good, 5)) == "hipErrorInvalidDevice"  # more than devices
    for bad in ("d4", "d-1"):
        result = hip.hipMemPoolSetAccess(pool, *descriptions(hip, **{bad: "Read"}))
        assert code(result) == "hipErrorInvalidDevice"
    assert code(hip.hipMemPoolSetAccess(pool, *descriptions(hip, d0="None"))) == "hipErrorInvalidDevice"
    assert code(hip.hipMemPoolSetAccess(pool, *descriptions(hip, d0="Read"))) == "hipErrorNotSupported"
    assert code(hip.hipMemPoolSetAccess(pool, *descriptions(hip, d0="ReadWrite"))) == "hipSuccess"
    assert code(hip.hipMemPoolSetAccess(pool, *descriptions(hip, d2="Read"))) == "hipErrorInvalidDevice"
    assert code(hip.hipMemPoolGetAccess(pool, None)) == INVALID
    assert code(hip.hipMemPoolGetAccess(pool, location(hip, 4))) == INVALID
    assert code(hip.hipMemPoolGetAccess(None, location(hip, 0))) == INVALID


def test_hip_device_reset_ends_pools_and_their_memory(hip: ModuleType) -> None:
    pool = ok(hip.hipMemPoolCreate(wanted(hip)))
    ok(hip.hipDeviceSetMemPool(0, pool))
    free = hip.hipMemGetInfo()[2]
    ok(hip.hipMallocAsync(4 * MIB, None))
    ok(hip.hipDeviceReset())
    assert hip.hipMemGetInfo()[1] == free
    assert code(hip.hipMemPoolTrimTo(pool, 0)) == INVALID
    default = ok(hip.hipDeviceGetMemPool(0))
    assert int(default) == int(ok(hip.hipDeviceGetDefaultMemPool(0)))
    assert attribute(hip, default, "AttrUsedMemCurrent") == 0


PROPS = """
props = hip.hipMemPoolProps()
props.allocType = hip.hipMemAllocationType.hipMemAllocationTypePinned
props.handleTypes = FD
props.location.type = hip.hipMemLocationType.hipMemLocationTypeDevice
props.location.id = 1
pool = ok(hip.hipMemPoolCreate(props))
fd = ctypes.c_int()
ok(hip.hipMemPoolExportToShareableHandle(fd, pool, FD, 0))
p = int(ok(hip.hipMallocFromPoolAsync(4096, pool, None)))
write(p, b"pool" * 1024)
result = [fd.value, bytes(ok(hip.hipMemPoolExportPointer(p)).reserved).hex()]
"""


@pytest.fixture
def shared(hip_on: Enter) -> Iterator[tuple[ModuleType, Peer, int, bytes]]:
    node = spec("pools")
    hip = hip_on(node)
    with hip_peer(node) as other:
        number, data = other.run(PROPS)
        fd = os.open(f"/proc/{other.pid}/fd/{number}", os.O_RDONLY)
        yield hip, other, fd, bytes.fromhex(data)
        os.close(fd)


def imported(hip: ModuleType, fd: Any) -> Any:
    return hip.hipMemPoolImportFromShareableHandle(
        fd, hip.hipMemAllocationHandleType.hipMemHandleTypePosixFileDescriptor, 0
    )


@pytest.mark.parametrize("form", ["descriptor", "address"])
def test_hip_mem_pool_import_pointer_shares_bytes_in_both_directions(
    shared: tuple[ModuleType, Peer, int, bytes], form: str
) -> None:
    hip, other, fd, data = shared
    cell = ctypes.c_int(fd)
    pool = ok(imported(hip, fd if form == "descriptor" else ctypes.addressof(cell)))
    pointer = ok(hip.hipMemPoolImportPointer(pool, data))
    assert read(hip, pointer, 4096) == b"pool" * 1024
    write(hip, pointer, b"back" * 1024)
    assert other.run("result = read(p, 4096) == b'back' * 1024")
    assert attribute(hip, pool, "AttrUsedMemCurrent") == 4096
    ok(hip.hipFreeAsync(pointer, None))
    ok(hip.hipStreamSynchronize(None))
    assert attribute(hip, pool, "AttrUsedMemCurrent") == 0
    assert code(hip.hipMemcpy(bytearray(1), pointer, 1, hip.hipMemcpyKind(2))) == INVALID
    assert other.run("result = read(p, 4)[:4] == b'back'")


@pytest.mark.parametrize(("granted", "seen"), [("Read", 1), ("ReadWrite", 3), ("None", 0)])
def test_hip_mem_pool_import_takes_access_and_flags_of_export(
    shared: tuple[ModuleType, Peer, int, bytes], granted: str, seen: int
) -> None:
    hip, other, fd, _ = shared
    before = ok(imported(hip, fd))
    number = other.run(f"""
desc = hip.hipMemAccessDesc.allocate(1)
place = desc.get_location(0)
place.type, place.id = hip.hipMemLocationType.hipMemLocationTypeDevice, 0
desc.set_flags(0, hip.hipMemAccessFlags.hipMemAccessFlagsProt{granted})
ok(hip.hipMemPoolSetAccess(pool, desc, 1))
ok(hip.hipMemPoolSetAttribute(pool, hip.hipMemPoolAttr.hipMemPoolReuseAllowOpportunistic, ctypes.c_int(0)))
fd = ctypes.c_int()
ok(hip.hipMemPoolExportToShareableHandle(fd, pool, FD, 0))
result = fd.value
""")
    again = os.open(f"/proc/{other.pid}/fd/{number}", os.O_RDONLY)
    pool = ok(imported(hip, again))
    os.close(again)
    assert int(ok(hip.hipMemPoolGetAccess(pool, location(hip, 0)))) == seen
    assert int(ok(hip.hipMemPoolGetAccess(pool, location(hip, 1)))) == 3
    assert int(ok(hip.hipMemPoolGetAccess(before, location(hip, 0)))) == 0  # as at its export
    flags = ("ReuseFollowEventDependencies", "ReuseAllowOpportunistic", "ReuseAllowInternalDependencies")
    assert [attribute(hip, pool, each) for each in flags] == [1, 0, 1]


def test_hip_peer_copies_strict_policy_uses_access_of_imported_pool(hip_on: Enter) -> None:
    node = spec("granted")
    hip = hip_on(node, POLICY="peer_copies=strict")
    with hip_peer(node) as other:
        number, data = other.run(PROPS)
        first = os.open(f"/proc/{other.pid}/fd/{number}", os.O_RDONLY)
        number = other.run("""
desc = hip.hipMemAccessDesc.allocate(1)
place = desc.get_location(0)
place.type, place.id = hip.hipMemLocationType.hipMemLocationTypeDevice, 0
desc.set_flags(0, hip.hipMemAccessFlags.hipMemAccessFlagsProtRead)
ok(hip.hipMemPoolSetAccess(pool, desc, 1))
ok(hip.hipMemPoolExportToShareableHandle(fd, pool, FD, 0))
result = fd.value
""")
        second = os.open(f"/proc/{other.pid}/fd/{number}", os.O_RDONLY)
        mine = ok(hip.hipMalloc(4096))
        for fd, expected in ((first, "hipErrorPeerAccessNotEnabled"), (second, "hipSuccess")):
            theirs = ok(hip.hipMemPoolImportPointer(ok(imported(hip, fd)), bytes.fromhex(data)))
            assert code(hip.hipMemcpyPeer(mine, 0, theirs, 1, 4096)) == expected
            ok(hip.hipFree(theirs))
            os.close(fd)
        assert read(hip, mine, 4096) == b"pool" * 1024


def test_hip_mem_pool_import_pointer_own_export_is_the_same_memory(hip: ModuleType) -> None:
    pool = ok(hip.hipMemPoolCreate(wanted(hip, shared=True)))
    fd = ctypes.c_int()
    ok(
        hip.hipMemPoolExportToShareableHandle(
            fd, pool, hip.hipMemAllocationHandleType.hipMemHandleTypePosixFileDescriptor, 0
        )
    )
    memory = ok(hip.hipMallocFromPoolAsync(64, pool, None))
    data = ok(hip.hipMemPoolExportPointer(memory))
    opened = ok(imported(hip, fd.value))
    os.close(fd.value)
    again = ok(hip.hipMemPoolImportPointer(opened, data))
    assert int(again) == int(memory)
    write(hip, again, b"the same bytes")
    assert read(hip, memory, 14) == b"the same bytes"
    ok(hip.hipFree(memory))
    assert code(hip.hipMemPoolImportPointer(opened, data)) != "hipSuccess"


def test_hip_mem_pool_import_changed_file_returns_out_of_memory(hip: ModuleType) -> None:
    posix = hip.hipMemAllocationHandleType.hipMemHandleTypePosixFileDescriptor
    cell = ctypes.c_int()
    pool = ok(hip.hipMemPoolCreate(wanted(hip, shared=True)))
    ok(hip.hipMemPoolSetAccess(pool, *descriptions(hip, d1="Read")))
    ok(hip.hipMemPoolExportToShareableHandle(cell, pool, posix, 0))
    good = os.pread(cell.value, 1000, 0)
    os.close(cell.value)
    bad = [
        good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :] for at in (0, 8, len(good) - 1, len(good) - 5)
    ]
    bad += [good[:-1], good + b"\0", good[: -len(good) // 2], good[:40] + b"\xff" * 4 + good[44:]]
    for content in (good, *bad):
        fd = os.memfd_create("pool", os.MFD_ALLOW_SEALING)
        os.write(fd, content)
        fcntl.fcntl(fd, 1033, 15)  # F_ADD_SEALS: seal, shrink, grow, write
        assert code(imported(hip, fd)) == ("hipSuccess" if content == good else "hipErrorOutOfMemory")
        os.close(fd)


def test_hip_imported_pool_calls_bad_arguments_return_documented_codes(
    shared: tuple[ModuleType, Peer, int, bytes],
) -> None:
    hip, other, fd, data = shared
    pool = ok(imported(hip, fd))
    assert code(hip.hipMallocFromPoolAsync(64, pool, None)) == INVALID
    posix = hip.hipMemAllocationHandleType.hipMemHandleTypePosixFileDescriptor
    assert code(hip.hipMemPoolExportToShareableHandle(ctypes.c_int(), pool, posix, 0)) == INVALID
    own = ok(hip.hipMemPoolCreate(wanted(hip, shared=True)))
    assert code(hip.hipMemPoolImportPointer(own, data)) == INVALID
    assert code(hip.hipMemPoolImportPointer(None, data)) == INVALID
    assert code(hip.hipMemPoolImportPointer(pool, None)) == INVALID
    assert code(hip.hipMemPoolImportPointer(pool, bytes(64))) == INVALID
    assert code(hip.hipMemPoolImportPointer(pool, b"x" * 64)) == "hipErrorInvalidDevicePointer"
    mine = bytes(ok(hip.hipMemPoolExportPointer(ok(hip.hipMalloc(64)))).reserved)
    assert code(hip.hipMemPoolImportPointer(pool, mine)) == INVALID
    other.run("ok(hip.hipFree(p))")
    assert code(hip.hipMemPoolImportPointer(pool, data)) == "hipErrorInvalidDevicePointer"
    other.kill()
    assert code(hip.hipMemPoolImportPointer(pool, data)) == "hipErrorInvalidDevicePointer"


def test_hip_mem_pool_export_bad_arguments_return_codes_and_leak_nothing(hip: ModuleType) -> None:
    kinds, fd = hip.hipMemAllocationHandleType, ctypes.c_int(-1)
    posix = kinds.hipMemHandleTypePosixFileDescriptor
    pool, private = (ok(hip.hipMemPoolCreate(wanted(hip, shared=shared))) for shared in (True, False))
    before = len(list(Path("/proc/self/fd").iterdir()))
    for arguments in (
        (None, pool, posix, 0),
        (fd, None, posix, 0),
        (fd, pool, posix, 1),
        (fd, pool, kinds.hipMemHandleTypeNone, 0),
        (fd, private, posix, 0),
    ):
        assert code(hip.hipMemPoolExportToShareableHandle(*arguments)) == INVALID
    assert code(hip.hipMemPoolExportToShareableHandle(0x1000, pool, posix, 0)) == "hipErrorIllegalAddress"
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
    for pointer in (None, 0x1000, bytearray(4)):
        assert code(hip.hipMemPoolExportPointer(pointer)) == INVALID


def test_hip_mem_pool_import_not_a_pool_descriptor_returns_out_of_memory(
    hip: ModuleType, tmp_path: Path
) -> None:
    posix = hip.hipMemAllocationHandleType.hipMemHandleTypePosixFileDescriptor
    assert code(imported(hip, None)) == INVALID
    assert code(hip.hipMemPoolImportFromShareableHandle(5, posix, 1)) == INVALID
    ends = os.pipe()
    plain = os.open(tmp_path / "plain", os.O_RDWR | os.O_CREAT)
    os.ftruncate(plain, 36)
    cut = os.memfd_create("peerlane-pool")
    for fd in (*ends, plain, cut, 999_999):
        assert code(imported(hip, fd)) == "hipErrorOutOfMemory"
    for fd in (*ends, plain, cut):
        os.close(fd)


def test_hip_mem_pool_import_pool_of_other_node_returns_out_of_memory(
    shared: tuple[ModuleType, Peer, int, bytes], hip_on: Enter
) -> None:
    hip = hip_on(spec("elsewhere"))
    assert code(imported(hip, shared[2])) == "hipErrorOutOfMemory"


def test_hip_mem_pool_export_pointer_older_shape_fills_the_callers_struct(hip_on: Enter) -> None:
    hip = hip_on(VERSION="7.2")
    properties = hip.hipMemPoolPtrExportData()
    assert hip.hipMemPoolExportPointer(properties, ok(hip.hipMallocAsync(64, None))) == (
        hip.hipError_t.hipSuccess,
    )
    assert any(ctypes.string_at(int(properties), 64)[:48])
    assert bytes(properties.reserved) == ctypes.string_at(int(properties), 64).partition(b"\0")[0]
