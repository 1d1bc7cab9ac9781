"""Memory of HIP that is mapped in parts: its first bytes, in several places at once."""

from __future__ import annotations

import ctypes
import os
from types import ModuleType
from typing import Any

import pytest

from helpers.hip_memory import G, code, descriptions, location, ok, properties, read, write
from peerlane.dialects.hip import explain

INVALID = "hipErrorInvalidValue"

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def large(hip: ModuleType) -> Any:
    """Return memory of three granules."""
    return ok(hip.hipMemCreate(3 * G, properties(hip), 0))


@pytest.fixture
def base(hip: ModuleType) -> int:
    """Return the first of six granules of reserved addresses."""
    return int(ok(hip.hipMemAddressReserve(6 * G, 0, None, 0)))


def usable(hip: ModuleType, address: int, size: int) -> None:
    ok(hip.hipMemSetAccess(address, size, *descriptions(hip, d0="ReadWrite")))


def test_hip_mem_map_part_fills_whole_reservation(hip: ModuleType) -> None:
    handle = ok(hip.hipMemCreate(2 * G, properties(hip), 0))
    address = int(ok(hip.hipMemAddressReserve(G, 0, None, 0)))
    ok(hip.hipMemMap(address, G, 0, handle, 0))
    usable(hip, address, G)
    write(hip, address, bytes(range(256)) * 4)
    assert read(hip, address, 1024) == bytes(range(256)) * 4
    assert [int(each) for each in ok(hip.hipMemGetAddressRange(address + 5))] == [address, G]
    assert code(hip.hipMemcpy(bytearray(2), address + G - 1, 2, hip.hipMemcpyKind(2))) == INVALID
    assert int(ok(hip.hipMemRetainAllocationHandle(address + G - 1))) == int(handle)
    ok(hip.hipMemUnmap(address, G))
    ok(hip.hipMemAddressFree(address, G))


def test_hip_mem_map_parts_of_one_handle_share_bytes(hip: ModuleType, large: Any, base: int) -> None:
    for at, granules in ((0, 1), (1, 2), (3, 3)):
        ok(hip.hipMemMap(base + at * G, granules * G, 0, large, 0))
    usable(hip, base, 6 * G)
    write(hip, base + 3 * G, b"a" * (2 * G) + b"b" * G)
    assert read(hip, base, 3 * G) == b"a" * (3 * G)  # a copy over the seam
    write(hip, base + G - 2, b"wxyz")
    assert read(hip, base + 4 * G - 2, 2) == b"wx"
    assert read(hip, base + 3 * G, 2) == read(hip, base, 2) == b"yz"
    ok(hip.hipMemUnmap(base + G, 2 * G))
    assert code(hip.hipMemcpy(bytearray(1), base + G, 1, hip.hipMemcpyKind(2))) == INVALID
    ok(hip.hipMemMap(base + G, G, 0, large, 0))  # the unmapped addresses can be mapped again
    ok(hip.hipMemMap(base + 2 * G, G, 0, large, 0))
    usable(hip, base + G, 2 * G)
    assert read(hip, base + 2 * G, 2) == b"yz"


def test_hip_mem_map_other_memory_beside_a_part_succeeds(hip: ModuleType, large: Any, base: int) -> None:
    ok(hip.hipMemMap(base, G, 0, large, 0))
    other = ok(hip.hipMemCreate(G, properties(hip, 1), 0))
    ok(hip.hipMemMap(base + G, G, 0, other, 0))
    ok(hip.hipMemSetAccess(base, 2 * G, *descriptions(hip, d0="ReadWrite", d1="ReadWrite")))
    write(hip, base + G - 3, b"abcdef")
    assert read(hip, base + G - 3, 6) == b"abcdef"
    assert ok(hip.hipMemGetAccess(location(hip, 1), base + 2 * G - 1)) == 3
    assert code(hip.hipMemGetAccess(location(hip, 1), base + 2 * G)) == INVALID


@pytest.mark.parametrize(
    ("size", "offset"),
    [(4 * G, 0), (G - 1, 0), (G + 4096, 0), (1 << 62, 0), (0, 0), (G, G), (2 * G, G), (G, 1)],
)
def test_hip_mem_map_bad_size_or_offset_of_part_returns_invalid_value(
    hip: ModuleType, large: Any, base: int, size: int, offset: int
) -> None:
    assert code(hip.hipMemMap(base, size, offset, large, 0)) == INVALID
    ok(hip.hipMemMap(base, 3 * G, 0, large, 0))
    assert code(hip.hipMemMap(base + 2 * G, G, 0, large, 0)) == INVALID


def test_hip_mem_map_part_beyond_reservation_returns_invalid_value(
    hip: ModuleType, large: Any, base: int
) -> None:
    assert code(hip.hipMemMap(base + 5 * G, 2 * G, 0, large, 0)) == INVALID
    ok(hip.hipMemMap(base + 5 * G, G, 0, large, 0))


def test_hip_mem_map_beyond_reservation_message_names_reserved_range(
    hip: ModuleType, large: Any, base: int
) -> None:
    explain()
    for at in (base + 4 * G, base + G // 2):
        assert code(hip.hipMemMap(at, 3 * G, 0, large, 0)) == INVALID
        text = explain()
        assert (
            f"{3 * G:,} bytes do not fit at byte {at - base:,} of the {6 * G:,} reserved at {base:#x}" in text
        )
        assert "hipMemAddressReserve" in text and "hipMalloc" not in text


@pytest.mark.parametrize("size", [G, 3 * G])
def test_hip_mem_set_access_and_unmap_need_whole_parts(
    hip: ModuleType, large: Any, base: int, size: int
) -> None:
    ok(hip.hipMemMap(base, 2 * G, 0, large, 0))
    allowed = descriptions(hip, d0="ReadWrite")
    assert code(hip.hipMemSetAccess(base, size, *allowed)) == INVALID
    assert code(hip.hipMemUnmap(base, size)) == INVALID
    ok(hip.hipMemSetAccess(base, 2 * G, *allowed))
    ok(hip.hipMemUnmap(base, 2 * G))


def test_hip_mem_release_part_mapped_keeps_whole_memory_until_unmap(
    hip: ModuleType, large: Any, base: int
) -> None:
    free = hip.hipMemGetInfo()[1]
    ok(hip.hipMemMap(base, G, 0, large, 0))
    usable(hip, base, G)
    ok(hip.hipMemRelease(large))
    write(hip, base, b"kept")
    assert read(hip, base, 4) == b"kept"
    assert hip.hipMemGetInfo()[1] == free
    ok(hip.hipMemUnmap(base, G))
    assert hip.hipMemGetInfo()[1] == free + 3 * G


def test_hip_mem_export_partly_mapped_memory_exports_all_of_it(
    hip: ModuleType, large: Any, base: int
) -> None:
    ok(hip.hipMemMap(base, 3 * G, 0, large, 0))
    usable(hip, base, 3 * G)
    write(hip, base + 2 * G, b"far end")
    ok(hip.hipMemUnmap(base, 3 * G))
    ok(hip.hipMemMap(base, G, 0, large, 0))
    fd = ctypes.c_int()
    kind = hip.hipMemAllocationHandleType.hipMemHandleTypePosixFileDescriptor
    ok(hip.hipMemExportToShareableHandle(ctypes.addressof(fd), large, kind, 0))
    again = ok(hip.hipMemImportFromShareableHandle(fd.value, kind))
    os.close(fd.value)
    ok(hip.hipMemMap(base + G, 2 * G, 0, again, 0))
    ok(hip.hipMemMap(base + 3 * G, 3 * G, 0, again, 0))
    usable(hip, base + 3 * G, 3 * G)
    assert read(hip, base + 5 * G, 7) == b"far end"


def test_hip_ipc_get_mem_handle_mapped_memory_returns_invalid_value(
    hip: ModuleType, large: Any, base: int
) -> None:
    ok(hip.hipMemMap(base, G, 0, large, 0))
    usable(hip, base, G)
    assert code(hip.hipIpcGetMemHandle(base)) == INVALID


def test_hip_message_reserved_address_is_explained_as_reserved(hip: ModuleType, base: int) -> None:
    explain()
    assert code(hip.hipMemMap(base, 4 * G, 0, 0x77, 0)) == INVALID
    text = explain()
    assert f"{base:#x} (reserved, and nothing is mapped there)" in text
    assert "nothing is allocated there" not in text
