"""Virtual memory of CUDA's driver that lies on the host (facts/cuda 4.6)."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dialects.cuda import driver as cuda
from dialects.cuda.driver import INT, WORD, Driver, begin, begun_driver, code
from helpers.peers import peer
from helpers.promises import Node
from peerlane import dialects
from peerlane.support.libraries import folder
from peerlane.testing.procs import run_python

SECONDS, FINDINGS = 120, 3
DEVICE, HOST, HOST_NUMA, HOST_NUMA_CURRENT = 1, 2, 3, 4
NONE, READ, READ_WRITE = 0, 1, 3
MEMORY_TYPE, HOST_POINTER = 2, 4


begun = pytest.fixture(begun_driver)


def properties(kind: int, number: int = 0, handles: int = 0) -> ctypes.Array[ctypes.c_int32]:
    """Pinned memory at a location: a CUmemAllocationProp."""
    return (ctypes.c_int32 * 8)(1, handles, kind, number)


def access(*rights: tuple[int, int, int]) -> tuple[ctypes.Array[ctypes.c_int32], int]:
    """An array of CUmemAccessDesc, each of a type of location, a number and flags, and its length."""
    return (ctypes.c_int32 * (3 * len(rights)))(*sum(rights, ())), len(rights)


def mapped(driver: Driver, handle: int, size: int) -> int:
    address: int = driver.cuMemAddressReserve(WORD, size, 0, 0, 0)
    driver.cuMemMap(address, size, 0, handle, 0)
    return address


def seen(address: int, nbytes: int) -> np.ndarray:
    """The bytes that the program itself sees there."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


@pytest.mark.parametrize("kind", [HOST, HOST_NUMA])
def test_memory_of_the_host_is_one_for_the_program_and_for_devices(begun: Driver, kind: int) -> None:
    size = begun.cuMemGetAllocationGranularity(WORD, properties(kind), 0)
    handle = begun.cuMemCreate(WORD, size, properties(kind), 0)
    address = mapped(begun, handle, size)
    begun.cuMemSetAccess(address, size, *access((DEVICE, 0, READ_WRITE), (kind, 0, READ_WRITE)))
    stream, memory = begun.cuStreamCreate(WORD, 1), begun.cuMemAlloc_v2(WORD, size)
    begun.cuMemsetD8Async(memory, 5, size, stream)
    begun.cuMemcpyAsync(address, memory, size, stream)
    begun.cuStreamSynchronize(stream)
    assert set(seen(address, size)) == {5}
    seen(address, size)[:] = 6
    begun.cuMemcpyDtoDAsync_v2(memory, address, size, stream)
    begun.cuStreamSynchronize(stream)
    back = np.zeros(size, np.uint8)
    begun.cuMemcpyDtoH_v2(back.ctypes.data, memory, size)
    assert set(back) == {6}
    begun.cuMemUnmap(address, size)
    begun.cuMemAddressFree(address, size)
    begun.cuMemRelease(handle)


def test_properties_and_attributes_name_the_location_of_memory(begun: Driver) -> None:
    size = begun.cuMemGetAllocationGranularity(WORD, properties(HOST), 0)
    for kind in (HOST, HOST_NUMA):
        handle = begun.cuMemCreate(WORD, size, properties(kind), 0)
        described = (ctypes.c_int32 * 8)()
        begun.cuMemGetAllocationPropertiesFromHandle(ctypes.byref(described), handle)
        assert tuple(described)[:4] == (1, 0, kind, 0)
        address = mapped(begun, handle, size)
        assert begun.cuMemRetainAllocationHandle(WORD, address) == handle
        assert begun.cuPointerGetAttribute(INT, MEMORY_TYPE, address) == 1
        assert code(begun.cuPointerGetAttribute, WORD, HOST_POINTER, address) == cuda.INVALID_VALUE
        begun.cuMemSetAccess(address, size, *access((HOST, 0, READ)))
        assert begun.cuPointerGetAttribute(WORD, HOST_POINTER, address + 64) == address + 64
    assert [begun.cuDeviceGetAttribute(INT, each, 0) for each in (141, 145)] == [1, 1]


def test_rights_of_the_host_and_of_devices_are_kept_apart(begun: Driver) -> None:
    size = begun.cuMemGetAllocationGranularity(WORD, properties(HOST_NUMA), 0)
    address = mapped(begun, begun.cuMemCreate(WORD, size, properties(HOST_NUMA), 0), size)
    locations = [(HOST_NUMA, 0), (DEVICE, 0), (DEVICE, 1)]

    def rights() -> list[int]:
        return [begun.cuMemGetAccess(WORD, (ctypes.c_int32 * 2)(*each), address) for each in locations]

    assert rights() == [NONE, NONE, NONE]
    assert code(begun.cuMemsetD8_v2, address, 1, size) == cuda.INVALID_VALUE
    begun.cuMemSetAccess(address, size, *access((DEVICE, 1, READ)))
    assert rights() == [NONE, NONE, READ]
    begun.cuMemSetAccess(address, size, *access((HOST, 0, READ), (DEVICE, 0, READ_WRITE)))
    assert rights() == [READ, READ_WRITE, READ]
    begun.cuMemsetD8_v2(address, 1, size)
    assert set(seen(address, size)) == {1}


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        (properties(HOST, handles=1), cuda.INVALID_VALUE),
        (properties(HOST_NUMA, 1), cuda.INVALID_VALUE),
        (properties(HOST_NUMA_CURRENT), cuda.INVALID_VALUE),
        (properties(HOST_NUMA, handles=8), cuda.NOT_SUPPORTED),
    ],
)
def test_locations_and_handles_that_there_are_not_are_refused(
    begun: Driver, described: object, expected: int
) -> None:
    size = begun.cuMemGetAllocationGranularity(WORD, properties(HOST), 0)
    assert code(begun.cuMemCreate, WORD, size, described, 0) == expected
    assert code(begun.cuMemGetAllocationGranularity, WORD, described, 0) == expected


def test_the_host_gets_no_access_to_memory_of_a_device(begun: Driver) -> None:
    size = begun.cuMemGetAllocationGranularity(WORD, properties(DEVICE), 0)
    address = mapped(begun, begun.cuMemCreate(WORD, size, properties(DEVICE), 0), size)
    for kind in (HOST, HOST_NUMA):
        wanted = access((DEVICE, 0, READ_WRITE), (kind, 0, READ_WRITE))
        assert code(begun.cuMemSetAccess, address, size, *wanted) == cuda.INVALID_VALUE
    assert begun.cuMemGetAccess(WORD, (ctypes.c_int32 * 2)(DEVICE, 0), address) == NONE
    assert begun.cuMemGetAccess(WORD, (ctypes.c_int32 * 2)(HOST, 0), address) == NONE


def test_memory_of_a_node_is_shared_by_descriptor_and_memory_of_none_is_not(node: Node) -> None:
    spec = f"name=cuda-host-{os.getpid()},devices=2"
    node(spec)
    dialects.begin_anew("cuda")
    driver = begin(Driver())
    size = driver.cuMemGetAllocationGranularity(WORD, properties(HOST_NUMA), 0)
    handle = driver.cuMemCreate(WORD, size, properties(HOST_NUMA, handles=1), 0)
    address = mapped(driver, handle, size)
    driver.cuMemSetAccess(address, size, *access((HOST_NUMA, 0, READ_WRITE)))
    seen(address, size)[:] = 3
    fd = ctypes.c_int()
    alone = driver.cuMemCreate(WORD, size, properties(HOST), 0)
    assert code(driver.cuMemExportToShareableHandle, ctypes.byref(fd), alone, 1, 0) == cuda.INVALID_VALUE
    driver.cuMemExportToShareableHandle(ctypes.byref(fd), handle, 1, 0)
    with peer(spec) as other:
        codes, before, described = other.run(
            f"""
import ctypes, os
lib = ctypes.CDLL({f"{folder()}/libcuda.so.1"!r})
fd = os.open("/proc/{os.getpid()}/fd/{fd.value}", os.O_RDWR)
context, handle, address = (ctypes.c_uint64() for _ in range(3))
codes = [lib.cuInit(0), lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1), lib.cuCtxSetCurrent(context)]
codes.append(lib.cuMemImportFromShareableHandle(ctypes.byref(handle), ctypes.c_uint64(fd), 1))
size = ctypes.c_uint64({size})
zero = ctypes.c_uint64()
codes.append(lib.cuMemAddressReserve(ctypes.byref(address), size, zero, zero, zero))
codes.append(lib.cuMemMap(address, size, zero, handle, zero))
described = (ctypes.c_int32 * 6)(1, 1, 3, 3, 0, 3)
codes.append(lib.cuMemSetAccess(address, size, described, ctypes.c_uint64(2)))
described = (ctypes.c_int32 * 8)()
codes.append(lib.cuMemGetAllocationPropertiesFromHandle(described, handle))
before = ctypes.c_uint8.from_address(address.value + {size} - 1).value
codes.append(lib.cuMemsetD8_v2(address, 4, size))
codes.append(lib.cuCtxSynchronize())
result = [codes, before, list(described[:4])]
"""
        )
    assert (set(codes), before, described) == ({0}, 3, [1, 1, HOST_NUMA, 0])
    assert set(seen(address, size)) == {4}
    os.close(fd.value)
    dialects.begin_anew("cuda")


TOUCHES = """
import ctypes
lib = ctypes.CDLL("libcuda.so.1")
context, handle, address = (ctypes.c_uint64() for _ in range(3))
lib.cuInit(0), lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), lib.cuCtxSetCurrent(context)
word, size = ctypes.c_uint64, ctypes.c_uint64(2 << 20)
lib.cuMemCreate(ctypes.byref(handle), size, (ctypes.c_int32 * 8)(1, 0, 2, 0), word())
lib.cuMemAddressReserve(ctypes.byref(address), size, word(), word(), word())
lib.cuMemMap(address, size, word(), handle, word())
"""


@pytest.mark.any_schedule
@pytest.mark.parametrize("rights", ["1, 0, 3", "1, 0, 3, 2, 0, 1"])
def test_the_program_without_a_right_of_the_host_faults(rights: str) -> None:
    numbers = rights.count(",") + 1
    program = (
        f"{TOUCHES}assert lib.cuMemSetAccess(address, size, (ctypes.c_int32 * {numbers})({rights}), "
        f"word({numbers // 3})) == 0\nctypes.c_uint8.from_address(address.value).value = 1\n"
    )
    words = [sys.executable, "-m", "peerlane", "run", "--dialect", "cuda", "-c", program]
    ended = subprocess.run(words, check=False, capture_output=True, timeout=SECONDS)
    assert ended.returncode in (-signal.SIGSEGV, 128 + signal.SIGSEGV), ended.stderr.decode()


@pytest.mark.any_schedule
def test_check_names_the_line_that_reads_before_the_copy_is_over(tmp_path: Path) -> None:
    program = tmp_path / "early.py"
    program.write_text(
        f"""{TOUCHES}
lib.cuMemSetAccess(address, size, (ctypes.c_int32 * 6)(1, 0, 3, 2, 0, 3), word(2))
memory, stream = word(), word()
lib.cuMemAlloc_v2(ctypes.byref(memory), size)
lib.cuStreamCreate(ctypes.byref(stream), 1)
lib.cuMemcpyDtoHAsync_v2(address, memory, size, stream)  # the copy
seen = bytes((ctypes.c_uint8 * 4096).from_address(address.value))  # too early
lib.cuStreamSynchronize(stream)
"""
    )
    lines = enumerate(program.read_text().splitlines(), 1)
    copy, early = (at for at, line in lines if line.endswith(("# the copy", "# too early")))
    ended = run_python(["-m", "peerlane", "check", "--dialect", "cuda", str(program)], timeout=SECONDS)
    assert ended.returncode == FINDINGS, ended
    assert f"after line {copy},\n    before line {early}" in ended.stderr.replace("  at ", "")
