"""Virtual memory of HIP: the rows of facts/hip 3.6 in one process."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from helpers.hip_memory import G, code, descriptions, location, mapped, ok, properties, read, write

Enter = Callable[..., ModuleType]
INVALID = "hipErrorInvalidValue"

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def reserved(hip: ModuleType) -> int:
    return int(ok(hip.hipMemAddressReserve(4 * G, 0, None, 0)))


@pytest.fixture
def handle(hip: ModuleType) -> Any:
    return ok(hip.hipMemCreate(G, properties(hip), 0))


def wrong_properties(hip: ModuleType) -> dict[str, Any]:
    """Return invalid properties by the reason why they are invalid."""
    cases = {
        "NULL": None,
        "type Invalid": properties(hip, kind="Invalid"),
        "type Managed": properties(hip, kind="Managed"),
        "id -1": properties(hip, -1),
        "id count": properties(hip, 2),
    }
    for kind in ("Invalid", "Host", "HostNuma"):
        allocation_properties = cases[f"location {kind}"] = properties(hip)
        allocation_properties.location.type = hip.hipMemLocationType[f"hipMemLocationType{kind}"]
    return cases


@pytest.mark.parametrize("option", ["Minimum", "Recommended"])
@pytest.mark.parametrize("device", [0, 1])
def test_hip_mem_get_allocation_granularity_returns_2_mib(hip: ModuleType, option: str, device: int) -> None:
    kind = hip.hipMemAllocationGranularity_flags[f"hipMemAllocationGranularity{option}"]
    assert ok(hip.hipMemGetAllocationGranularity(properties(hip, device), kind)) == G


def test_hip_mem_get_allocation_granularity_bad_properties_return_invalid_value(hip: ModuleType) -> None:
    option = hip.hipMemAllocationGranularity_flags(0)
    for what, prop in wrong_properties(hip).items():
        assert code(hip.hipMemGetAllocationGranularity(prop, option)) == INVALID, what
    with pytest.raises(TypeError):
        hip.hipMemGetAllocationGranularity(properties(hip), 0xFF)


@pytest.mark.parametrize(
    ("size", "alignment", "expected"),
    [
        *((*bad, INVALID) for bad in ((0, 0), (G - 1, 0), (G, 3), (1, G))),
        *((*large, "hipErrorOutOfMemory") for large in ((G, 1 << 40), (1 << 63, 0))),
    ],
)
def test_hip_mem_address_reserve_bad_size_returns_documented_code(
    hip: ModuleType, size: int, alignment: int, expected: str
) -> None:
    result = hip.hipMemAddressReserve(size, alignment, None, 0)
    assert (code(result), result[1]) == (expected, None)


def test_hip_mem_address_reserve_flags_return_invalid_value(hip: ModuleType) -> None:
    assert code(hip.hipMemAddressReserve(G, 0, None, 1)) == INVALID


@pytest.mark.parametrize("alignment", [0, 1, 4096, G, 16 * G, 1 << 30])
def test_hip_mem_address_reserve_returns_aligned_address(hip: ModuleType, alignment: int) -> None:
    address = int(ok(hip.hipMemAddressReserve(G, alignment, None, 0)))
    assert address % max(alignment, G) == 0


def test_hip_mem_address_reserve_taken_address_returns_other_address(hip: ModuleType) -> None:
    address = int(ok(hip.hipMemAddressReserve(G, 0, None, 0)))
    other = int(ok(hip.hipMemAddressReserve(G, 0, address, 0)))
    assert other != address
    ok(hip.hipMemAddressFree(address, G))
    assert int(ok(hip.hipMemAddressReserve(G, 0, address, 0))) == address


def test_hip_mem_address_free_inexact_or_mapped_range_returns_invalid_value(
    hip: ModuleType, reserved: int, handle: Any
) -> None:
    for address, size in (
        (None, 4 * G),
        (reserved, 0),
        (reserved, G),
        (reserved + G, 3 * G),
        (0x1000, G),
        (ok(hip.hipMalloc(G)), G),
    ):
        assert code(hip.hipMemAddressFree(address, size)) == INVALID
    ok(hip.hipMemMap(reserved, G, 0, handle, 0))
    assert code(hip.hipMemAddressFree(reserved, 4 * G)) == INVALID
    ok(hip.hipMemUnmap(reserved, G))
    ok(hip.hipMemAddressFree(reserved, 4 * G))
    assert code(hip.hipMemAddressFree(reserved, 4 * G)) == INVALID


def test_hip_mem_create_bad_arguments_return_documented_codes(hip: ModuleType) -> None:
    for what, prop in wrong_properties(hip).items():
        result = hip.hipMemCreate(G, prop, 0)
        expected = "hipErrorInvalidDevice" if what.startswith("id") else INVALID
        assert (code(result), result[1]) == (expected, None), what
    for size, flags in ((0, 0), (G - 1, 0), (G + 1, 0), (G, 1)):
        assert code(hip.hipMemCreate(size, properties(hip), flags)) == INVALID
    for kind in (2, 4, 8):
        assert code(hip.hipMemCreate(G, properties(hip, requested=kind), 0)) == "hipErrorNotSupported"
    for size in (128 << 20, 1 << 62):
        assert code(hip.hipMemCreate(size, properties(hip), 0)) == "hipErrorOutOfMemory"


def test_hip_mem_create_and_release_change_free_memory(hip: ModuleType) -> None:
    _, before, _ = hip.hipMemGetInfo()
    for granules in range(1, 9):
        handle = ok(hip.hipMemCreate(granules * G, properties(hip), 0))
        assert before - hip.hipMemGetInfo()[1] == granules * G
        ok(hip.hipMemRelease(handle))
        assert code(hip.hipMemRelease(handle)) == INVALID
    assert hip.hipMemGetInfo()[1] == before


def test_hip_mem_release_not_a_handle_returns_invalid_value(hip: ModuleType) -> None:
    for handle in (None, 64, ok(hip.hipStreamCreate())):
        assert code(hip.hipMemRelease(handle)) == INVALID


def test_hip_mem_release_while_mapped_keeps_memory_until_unmap(hip: ModuleType) -> None:
    address, size = mapped(hip, (0, G))
    write(hip, address, b"\x11" * size)
    assert read(hip, address, size) == b"\x11" * size
    free = hip.hipMemGetInfo()[1]
    ok(hip.hipMemUnmap(address, size))
    assert hip.hipMemGetInfo()[1] == free + size
    assert code(hip.hipMemcpy(bytearray(1), address, 1, hip.hipMemcpyKind(2))) == INVALID


def test_hip_mem_map_bad_arguments_return_invalid_value(hip: ModuleType, reserved: int, handle: Any) -> None:
    plain = ok(hip.hipMalloc(G))
    for what, arguments in {
        "NULL": (None, G, 0, handle, 0),
        "size 0": (reserved, 0, 0, handle, 0),
        "size": (reserved, 2 * G, 0, handle, 0),
        "part": (reserved, G // 2, 0, handle, 0),
        "offset": (reserved, G, G, handle, 0),
        "flags": (reserved, G, 0, handle, 1),
        "no handle": (reserved, G, 0, None, 0),
        "another handle": (reserved, G, 0, 64, 0),
        "not reserved": (plain, G, 0, handle, 0),
        "alignment": (reserved + 4096, G, 0, handle, 0),
        "end": (reserved + 4 * G, G, 0, handle, 0),
    }.items():
        assert code(hip.hipMemMap(*arguments)) == INVALID, what
    with pytest.raises(OverflowError):
        hip.hipMemMap(reserved, G, -1, handle, 0)
    ok(hip.hipMemMap(reserved, G, 0, handle, 0))
    assert code(hip.hipMemMap(reserved, G, 0, handle, 0)) == INVALID


def test_hip_memcpy_mapped_memory_without_set_access_returns_unknown(
    hip: ModuleType, reserved: int, handle: Any
) -> None:
    ok(hip.hipMemMap(reserved, G, 0, handle, 0))
    for device in (0, 1):
        assert ok(hip.hipMemGetAccess(location(hip, device), reserved)) == 0
    assert code(hip.hipMemcpy(reserved, b"x", 1, hip.hipMemcpyKind(1))) == "hipErrorUnknown"


def test_hip_mem_map_one_handle_at_three_addresses_shares_bytes(
    hip: ModuleType, reserved: int, handle: Any
) -> None:
    other = int(ok(hip.hipMemAddressReserve(G, 0, None, 0)))
    for address in (reserved, reserved + 2 * G, other):
        ok(hip.hipMemMap(address, G, 0, handle, 0))
        ok(hip.hipMemSetAccess(address, G, *descriptions(hip, d0="ReadWrite")))
    write(hip, reserved, b"a" * G)
    write(hip, reserved + 2 * G + 5, b"bcd")
    assert read(hip, other, 10) == b"aaaaabcdaa"
    ok(hip.hipMemUnmap(reserved, G))
    assert read(hip, other, 10) == b"aaaaabcdaa"


def test_hip_mem_map_adjacent_handles_form_one_range(hip: ModuleType) -> None:
    address, size = mapped(hip, (0, G), (1, 2 * G), (0, G), access={"d0": "ReadWrite", "d1": "ReadWrite"})
    data = bytes(range(251)) * (size // 251 + 1)
    write(hip, address, data[:size])
    assert read(hip, address, size) == data[:size]
    assert read(hip, address + G - 3, 6) == data[G - 3 : G + 3]
    plain = ok(hip.hipMalloc(size))
    ok(hip.hipMemcpy(plain, address, size, hip.hipMemcpyKind(3)))
    assert read(hip, plain, size) == data[:size]
    ok(hip.hipMemUnmap(address, size))  # all in one call
    ok(hip.hipMemAddressFree(address, size))


def test_hip_mem_unmap_bad_range_unmaps_nothing(hip: ModuleType) -> None:
    address, size = mapped(hip, (0, G), (0, G))
    for pointer, nbytes in (
        (None, size),
        (address, 0),
        (address, size - 1),
        (address, G + 1),
        (address + 1, G),
        (address, 4 * G),
        (ok(hip.hipMalloc(G)), G),
    ):
        assert code(hip.hipMemUnmap(pointer, nbytes)) == INVALID
    write(hip, address, b"x" * size)  # nothing was unmapped
    ok(hip.hipMemUnmap(address, G))
    assert code(hip.hipMemUnmap(address, G)) == INVALID
    ok(hip.hipMemUnmap(address + G, G))


def test_hip_mem_set_access_bad_arguments_change_nothing(hip: ModuleType) -> None:
    address, size = mapped(hip, (0, G), (0, G), access={})
    good, one = descriptions(hip, d0="ReadWrite")
    for what, arguments in {
        "NULL": (None, size, good, one),
        "size 0": (address, 0, good, one),
        "size - 1": (address, size - 1, good, one),
        "size + 1": (address, size + 1, good, one),
        "NULL desc": (address, size, None, one),
        "count 0": (address, size, good, 0),
        "count 2": (address, size, good, 2),
        "count 99": (address, size, good, 99),
        "id -1": (address, size, *descriptions(hip, **{"d-1": "Read"})),
        "id count": (address, size, *descriptions(hip, d2="Read")),
        "one of two": (address, size, *descriptions(hip, d0="Read", d7="Read")),
        "not reserved": (ok(hip.hipMalloc(G)), G, good, one),
        "not mapped": (int(ok(hip.hipMemAddressReserve(G, 0, None, 0))), G, good, one),
    }.items():
        assert code(hip.hipMemSetAccess(*arguments)) == INVALID, what
    for offset, value in ((0, 0), (0, 4), (8, 2), (8, 7)):
        bad, _ = descriptions(hip, d0="Read")
        ctypes.c_int.from_address(int(bad) + offset).value = value
        assert code(hip.hipMemSetAccess(address, size, bad, 1)) == INVALID
    assert ok(hip.hipMemGetAccess(location(hip, 0), address)) == 0


@pytest.mark.parametrize("is_imported", [False, True])
def test_hip_mem_set_access_takes_the_host_alone_and_among_devices(
    hip: ModuleType, is_imported: bool
) -> None:
    address, size = mapped(hip, (0, G), access={})
    if is_imported:
        fd = ctypes.c_int()
        kind = hip.hipMemAllocationHandleType.hipMemHandleTypePosixFileDescriptor
        held = ok(hip.hipMemRetainAllocationHandle(address))
        ok(hip.hipMemExportToShareableHandle(ctypes.addressof(fd), held, kind, 0))
        opened = ok(hip.hipMemImportFromShareableHandle(fd.value, kind))
        os.close(fd.value)
        address = int(ok(hip.hipMemAddressReserve(size, 0, None, 0)))
        ok(hip.hipMemMap(address, size, 0, opened, 0))
    # hipMemAccessDesc: location.type, location.id, flags
    for access, rights in (
        ([(2, 0, 3)], 0),
        ([(2, 0, 3), (1, 0, 1)], 1),
        ([(1, 0, 3), (2, 7, 1)], 3),
        ([(1, 0, 1), (1, 1, 1), (2, 0, 3)], 1),
        ([(2, 0, 0)], 1),
    ):
        flat = [number for each in access for number in each]
        described = hip.hipMemAccessDesc.fromObj((ctypes.c_int * len(flat))(*flat))
        ok(hip.hipMemSetAccess(address, size, described, len(access)))
        assert ok(hip.hipMemGetAccess(location(hip, 0), address)) == rights
    for wrong in ((2, 0, 2), (2, 0, 7), (0, 0, 3), (5, 0, 3)):
        described = hip.hipMemAccessDesc.fromObj((ctypes.c_int * 3)(*wrong))
        assert code(hip.hipMemSetAccess(address, size, described, 1)) == INVALID, wrong
    host = hip.hipMemAccessDesc.fromObj((ctypes.c_int * 3)(2, 0, 3))
    assert code(hip.hipMemSetAccess(address, size - 1, host, 1)) == INVALID
    assert code(hip.hipMemSetAccess(ok(hip.hipMalloc(G)), G, host, 1)) == INVALID


def test_hip_mem_set_access_unreachable_device_changes_nothing(hip_on: Enter) -> None:
    hip = hip_on("devices=4,switch=2,memory=16MiB")
    address, size = mapped(hip, (0, G))
    assert code(hip.hipMemSetAccess(address, size, *descriptions(hip, d1="Read", d2="Read"))) == INVALID
    assert [ok(hip.hipMemGetAccess(location(hip, device), address)) for device in range(4)] == [3, 0, 0, 0]
    ok(hip.hipMemSetAccess(address, size, *descriptions(hip, d1="Read", d2="None")))


def test_hip_mem_get_access_returns_rights_per_device_and_mapping(hip: ModuleType) -> None:
    address, size = mapped(hip, (0, G), (0, G), access={"d0": "ReadWrite"})
    assert ok(hip.hipMemGetAccess(location(hip, 0), address)) == 3
    assert ok(hip.hipMemGetAccess(location(hip, 1), address)) == 0
    ok(hip.hipMemSetAccess(address, size, *descriptions(hip, d0="ReadWrite", d1="ReadWrite")))
    assert [ok(hip.hipMemGetAccess(location(hip, device), address + G + 5)) for device in (0, 1)] == [3, 3]
    ok(hip.hipMemSetAccess(address + G, G, *descriptions(hip, d1="Read")))
    assert [ok(hip.hipMemGetAccess(location(hip, 1), address + at)) for at in (0, G)] == [3, 1]


def test_hip_mem_get_access_bad_arguments_return_invalid_value(hip: ModuleType) -> None:
    address, size = mapped(hip, (0, G))
    near = location(hip, 0)
    for memory, pointer in (
        (None, address),
        (near, None),
        (location(hip, 2), address),
        (location(hip, -1), address),
        (location(hip, 0, "Invalid"), address),
        (near, address + size),
        (near, ok(hip.hipMalloc(64))),
        (near, bytearray(8)),
    ):
        assert code(hip.hipMemGetAccess(memory, pointer)) == INVALID


def test_hip_memcpy_mapped_memory_obeys_changed_rights(hip: ModuleType) -> None:
    violation = "hipErrorUnknown"
    address, size = mapped(hip, (0, G))
    write(hip, address, b"\x21" * size)
    ok(hip.hipMemSetAccess(address, size, *descriptions(hip, d0="Read")))
    assert read(hip, address, size) == b"\x21" * size
    assert code(hip.hipMemcpy(address, b"x", 1, hip.hipMemcpyKind(1))) == violation
    ok(hip.hipMemSetAccess(address, size, *descriptions(hip, d0="None")))
    assert code(hip.hipMemcpy(address, b"x", 1, hip.hipMemcpyKind(1))) == violation
    assert code(hip.hipMemcpy(bytearray(1), address, 1, hip.hipMemcpyKind(2))) == violation
    ok(hip.hipMemSetAccess(address, size, *descriptions(hip, d0="ReadWrite")))
    assert read(hip, address, size) == b"\x21" * size


def test_hip_memcpy_mapped_memory_obeys_rights_of_current_device(hip: ModuleType) -> None:
    address, size = mapped(hip, (0, G), access={"d1": "ReadWrite"})
    assert code(hip.hipMemcpy(address, b"x", 1, hip.hipMemcpyKind(1))) == "hipErrorUnknown"
    ok(hip.hipSetDevice(1))
    write(hip, address, b"\x61" * size)
    assert read(hip, address, size) == b"\x61" * size
    ok(hip.hipMemSetAccess(address, size, *descriptions(hip, d1="Read")))
    assert code(hip.hipMemcpy(address, b"x", 1, hip.hipMemcpyKind(1))) == "hipErrorUnknown"
    assert read(hip, address, 1) == b"\x61"
    ok(hip.hipDeviceSynchronize())


@pytest.mark.parametrize("access_name", ["Read", "None"])
def test_hip_memcpy_peer_mapped_memory_needs_read_right_of_current_device(
    hip: ModuleType, access_name: str
) -> None:
    address, size = mapped(hip, (0, G))
    write(hip, address, b"\x31" * size)
    ok(hip.hipMemSetAccess(address, size, *descriptions(hip, d0="None", d1=access_name)))
    ok(hip.hipSetDevice(1))
    plain = ok(hip.hipMalloc(size))
    result = hip.hipMemcpyPeer(plain, 1, address, 0, size)
    if access_name == "None":
        assert code(result) == "hipErrorUnknown"
        return
    ok(result)
    ok(hip.hipDeviceSynchronize())
    assert read(hip, plain, size) == b"\x31" * size


def test_hip_mapped_memory_host_access_map_is_read_by_host(hip_on: Enter) -> None:
    hip = hip_on("devices=1,memory=64MiB,host_access=map")
    address, size = mapped(hip, (0, G))
    ctypes.memset(address, 0x41, size)
    assert read(hip, address, size) == b"A" * size
    assert ctypes.string_at(address + 5, 3) == b"AAA"


def test_hip_mem_retain_allocation_handle_adds_a_reference(
    hip: ModuleType, reserved: int, handle: Any
) -> None:
    ok(hip.hipMemMap(reserved + G, G, 0, handle, 0))
    for inside in (0, 5, G - 1):
        assert int(ok(hip.hipMemRetainAllocationHandle(reserved + G + inside))) == int(handle)
    for _ in range(4):
        ok(hip.hipMemRelease(handle))
    assert code(hip.hipMemRelease(handle)) == INVALID
    new = ok(hip.hipMemRetainAllocationHandle(reserved + G))
    assert int(new) != int(handle)
    ok(hip.hipMemMap(reserved, G, 0, new, 0))
    ok(hip.hipMemRelease(new))
    for address in (None, reserved + 3 * G, ok(hip.hipMalloc(64)), bytearray(4)):
        assert code(hip.hipMemRetainAllocationHandle(address)) == INVALID


@pytest.mark.parametrize("version", ["10.0", "7.2"])
def test_hip_mem_get_allocation_properties_from_handle_returns_properties(
    hip_on: Enter, version: str
) -> None:
    hip = hip_on(VERSION=version)
    handle = ok(hip.hipMemCreate(G, properties(hip, 1, requested=1), 0))
    allocation_properties = hip.hipMemAllocationProp()
    if version == "7.2":
        assert (
            code(hip.hipMemGetAllocationPropertiesFromHandle(allocation_properties, handle)) == "hipSuccess"
        )
    else:
        allocation_properties = ok(hip.hipMemGetAllocationPropertiesFromHandle(handle))
    assert allocation_properties.type is hip.hipMemAllocationType.hipMemAllocationTypePinned
    assert allocation_properties.location.type is hip.hipMemLocationType.hipMemLocationTypeDevice
    assert allocation_properties.location.id == 1
    assert ctypes.c_int.from_address(int(allocation_properties) + 4).value == 1
    for no_handle in (None, 64):
        assert code(hip.hipMemGetAllocationPropertiesFromHandle(no_handle)) == INVALID


def test_hip_mapped_memory_grows_in_place_and_keeps_bytes(hip: ModuleType) -> None:
    address = int(ok(hip.hipMemAddressReserve(8 * G, 0, None, 0)))
    written = b""
    for step in range(8):
        handle = ok(hip.hipMemCreate(G, properties(hip), 0))
        ok(hip.hipMemMap(address + step * G, G, 0, handle, 0))
        ok(hip.hipMemRelease(handle))
        ok(hip.hipMemSetAccess(address + step * G, G, *descriptions(hip, d0="ReadWrite")))
        write(hip, address + step * G, bytes([step]) * G)
        written += bytes([step]) * G
        assert read(hip, address, len(written)) == written


def test_hip_device_reset_ends_mappings_handles_and_reservations(hip: ModuleType) -> None:
    free = hip.hipMemGetInfo()[1]
    address, size = mapped(hip, (0, G))
    handle = ok(hip.hipMemCreate(G, properties(hip), 0))
    ok(hip.hipDeviceReset())
    assert hip.hipMemGetInfo()[1] == free
    assert code(hip.hipMemRelease(handle)) == INVALID
    assert code(hip.hipMemUnmap(address, size)) == INVALID
    assert code(hip.hipMemAddressFree(address, size)) == INVALID
    mapped(hip, (0, G))


def test_hip_mem_unmap_after_queued_copy_lets_copy_read_memory(hip: ModuleType) -> None:
    address, size = mapped(hip, (0, G))
    write(hip, address, b"\x51" * size)
    stream, plain = ok(hip.hipStreamCreate()), ok(hip.hipMalloc(size))
    ok(hip.hipMemcpyAsync(plain, address, size, hip.hipMemcpyKind(3), stream))
    ok(hip.hipMemUnmap(address, size))
    ok(hip.hipStreamSynchronize(stream))
    assert read(hip, plain, size) == b"\x51" * size


def test_hip_mem_get_handle_for_address_range_returns_not_supported(hip: ModuleType) -> None:
    kind = hip.hipMemRangeHandleType.hipMemRangeHandleTypeDmaBufFd
    address, size = mapped(hip, (0, G))
    fd = ctypes.c_int()
    assert code(hip.hipMemGetHandleForAddressRange(fd, address, size, kind, 0)) == "hipErrorNotSupported"
    unmapped, host = int(ok(hip.hipMemAddressReserve(G, 0, None, 0))), int(ok(hip.hipHostMalloc(G, 0)))
    for wrong in (None, unmapped, host, ctypes.create_string_buffer(8)):
        assert code(hip.hipMemGetHandleForAddressRange(fd, wrong, 8, kind, 0)) == INVALID
    for nbytes, flags in ((0, 0), (size + 1, 0), (size, 0xFF)):
        assert code(hip.hipMemGetHandleForAddressRange(fd, address, nbytes, kind, flags)) == INVALID
    assert code(hip.hipMemGetHandleForAddressRange(None, address, size, kind, 0)) == INVALID
    attribute = hip.hipDeviceAttribute_t.hipDeviceAttributeDmaBufSupported
    assert ok(hip.hipDeviceGetAttribute(attribute, 0)) == 0
    attribute = hip.hipDeviceAttribute_t.hipDeviceAttributeVirtualMemoryManagementSupported
    assert ok(hip.hipDeviceGetAttribute(attribute, 0)) == 1
