"""CUDA's pools of managed memory and of the host's nodes, as cuda.core uses them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

import pytest

from dialects.cuda.driver import INT, INVALID_VALUE, WORD, Driver, begin, code
from helpers.peers import peer
from helpers.promises import Node
from peerlane import dialects
from peerlane.dialects.cuda.state import machine
from peerlane.support.libraries import folder

SIZE = 1 << 20
PINNED, MANAGED = 1, 2
NOWHERE, DEVICE, HOST, NODE = 0, 1, 2, 3
MEMORY_TYPE, IS_MANAGED = 2, 8  # attributes of addresses
TYPE_HOST = 1


@pytest.fixture
def begun(node: Node) -> Iterator[Driver]:
    """The driver of a new process, with the primary context of device 0 current."""
    node()
    dialects.begin_anew("cuda")
    yield begin(Driver())
    dialects.begin_anew("cuda")


def properties(kind: int, location: int, handles: int = 0, largest: int = 0) -> ctypes.Array[ctypes.c_int32]:
    """Of a pool: a CUmemPoolProps."""
    return (ctypes.c_int32 * 22)(kind, handles, location, 0, 0, 0, largest)


def test_allocation_of_no_bytes_in_the_order_of_a_stream_gives_null(begun: Driver) -> None:
    pool = begun.cuDeviceGetDefaultMemPool(WORD, 0)
    assert begun.cuMemAllocAsync(WORD, 0, 0) == 0
    assert begun.cuMemAllocFromPoolAsync(WORD, 0, pool, 0) == 0
    begun.cuMemFreeAsync(0, 0)


def test_pool_of_managed_memory_may_be_nowhere_and_pinned_memory_may_not(begun: Driver) -> None:
    nowhere = (ctypes.c_int32 * 2)(NOWHERE, 0)
    pool = begun.cuMemGetMemPool(WORD, nowhere, MANAGED)
    assert begun.cuMemGetDefaultMemPool(WORD, nowhere, MANAGED) == pool
    assert code(begun.cuMemGetMemPool, WORD, nowhere, PINNED) == INVALID_VALUE


@pytest.mark.parametrize("location", [NOWHERE, DEVICE, HOST, NODE])
def test_memory_of_a_managed_pool_is_managed_until_it_is_freed(begun: Driver, location: int) -> None:
    pool = begun.cuMemPoolCreate(WORD, properties(MANAGED, location))
    memory = begun.cuMemAllocFromPoolAsync(WORD, SIZE, pool, 0)
    is_managed = ctypes.c_bool()
    begun.cuPointerGetAttribute(ctypes.byref(is_managed), IS_MANAGED, memory)
    assert is_managed.value
    ctypes.memset(memory, 7, SIZE)
    preferred = ctypes.c_int32()
    begun.cuMemAdvise_v2(memory, SIZE, 3, ctypes.c_uint64(DEVICE))
    begun.cuMemRangeGetAttribute(ctypes.byref(preferred), 4, 2, memory, SIZE)
    assert preferred.value == 0
    assert machine.records
    assert machine.advised
    begun.cuMemFreeAsync(memory, 0)
    assert not machine.records
    assert not machine.advised


def test_pool_of_the_host_has_a_handle_only_for_a_node(begun: Driver) -> None:
    assert code(begun.cuMemPoolCreate, WORD, properties(PINNED, HOST, handles=1)) == INVALID_VALUE
    begun.cuMemPoolCreate(WORD, properties(PINNED, NODE, handles=1))


@pytest.mark.parametrize("size", [64, 5000, 4 << 20])
def test_pool_of_a_node_is_imported_without_a_context_and_its_memory_is_shared(node: Node, size: int) -> None:
    spec = f"name=cuda-pools-{os.getpid()},devices=2"
    node(spec)
    driver = begin(Driver())
    pool = driver.cuMemPoolCreate(WORD, properties(PINNED, NODE, handles=1, largest=16 << 20))
    stream = driver.cuStreamCreate(WORD, 1)
    before, memory = (driver.cuMemAllocFromPoolAsync(WORD, size, pool, stream) for _ in range(2))
    ctypes.memset(memory, 5, size)
    fd = ctypes.c_int()
    driver.cuMemPoolExportToShareableHandle(ctypes.byref(fd), pool, 1, 0)
    key = (ctypes.c_uint8 * 64)()
    driver.cuMemPoolExportPointer(ctypes.byref(key), memory)
    with peer(spec) as other:
        other.run(
            f"""
import ctypes, os
lib = ctypes.CDLL({f"{folder()}/libcuda.so.1"!r})
codes, context = [lib.cuInit(0)], ctypes.c_uint64()
pool, memory = ctypes.c_uint64(), ctypes.c_uint64()
fd = os.open("/proc/{os.getpid()}/fd/{fd.value}", os.O_RDONLY)
codes.append(lib.cuMemPoolImportFromShareableHandle(ctypes.byref(pool), ctypes.c_uint64(fd), 1, 0))
codes.append(lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1))
codes.append(lib.cuCtxSetCurrent(context))
class Key(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_uint8 * 64)]
key = Key.from_buffer_copy(bytes.fromhex({bytes(key).hex()!r}))
as_of_device = lib.cuIpcOpenMemHandle_v2(ctypes.byref(memory), key, 1)
codes.append(lib.cuMemPoolImportPointer(ctypes.byref(memory), pool, ctypes.byref(key)))
seen = sorted(set(ctypes.string_at(memory.value, {size})))
ordinary = (ctypes.c_uint8 * {size})()
codes.append(lib.cuMemcpyDtoH_v2(ordinary, memory, {size}))
copied = sorted(set(ordinary))
ctypes.memset(memory.value, 6, {size})
codes.append(lib.cuMemFreeAsync(memory, None))
codes.append(lib.cuCtxSynchronize())
"""
        )
        assert other.run("result = codes, seen, copied") == [[0] * 8, [5], [5]]
        assert other.run("result = as_of_device") == INVALID_VALUE
    kind = ctypes.c_uint32()
    driver.cuPointerGetAttribute(ctypes.byref(kind), MEMORY_TYPE, memory)
    assert kind.value == TYPE_HOST
    assert set(ctypes.string_at(memory, size)) == {6}
    for each in (before, memory):
        driver.cuMemFreeAsync(each, stream)
    driver.cuStreamSynchronize(stream)
    assert driver.cuMemPoolGetAccess(INT, pool, (ctypes.c_int32 * 2)(NODE, 0)) == 3
