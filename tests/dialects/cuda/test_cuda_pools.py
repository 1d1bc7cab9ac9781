"""CUDA's pools of managed memory and of the host's nodes, as cuda.core uses them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from struct import pack
from typing import Any

import numpy as np
import pytest

from dialects.cuda.driver import (
    INT,
    INVALID_VALUE,
    LAYOUT,
    WORD,
    CudaError,
    Driver,
    begin,
    begun_driver,
    code,
    struct,
    words,
)
from helpers.each import for_each
from helpers.peers import peer
from helpers.promises import Node
from peerlane.dialects.cuda.state import machine
from peerlane.support.libraries import folder

pytestmark = pytest.mark.schedules_in_turn

SIZE = 1 << 20
PINNED, MANAGED = 1, 2
READ, READ_WRITE = 1, 3
NOWHERE, DEVICE, HOST, NODE = 0, 1, 2, 3
MEMORY_TYPE, IS_MANAGED, HAS_IPC_HANDLE, HANDLE_TYPES = 2, 8, 10, 14  # attributes of addresses
CREATED_WITH, LARGEST = range(9, 16), 13  # attributes of pools
TYPE_HOST = 1


begun = pytest.fixture(begun_driver)


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


def attributes_of(driver: Driver, pool: int) -> list[int]:
    """Return what a pool was created with: an int each, but the size."""
    return [
        driver.cuMemPoolGetAttribute(pool, number, WORD if number == LARGEST else INT)
        for number in CREATED_WITH
    ]


def test_attributes_of_a_pool_are_what_it_was_created_with(begun: Driver) -> None:
    shared = begun.cuMemPoolCreate(WORD, properties(PINNED, NODE, handles=1, largest=4 << 20))
    assert attributes_of(begun, shared) == [PINNED, 1, 0, NODE, 4 << 20, 0, -1]
    fd = begun.cuMemPoolExportToShareableHandle(INT, shared, 1, 0)
    imported = begun.cuMemPoolImportFromShareableHandle(WORD, fd, 1, 0)
    os.close(fd)
    assert attributes_of(begun, imported) == [PINNED, 0, 0, NODE, 0, 0, -1]
    of_managed = begun.cuMemPoolCreate(WORD, properties(MANAGED, NOWHERE))
    assert attributes_of(begun, of_managed) == [MANAGED, 0, 0, NOWHERE, 0, 0, -1]
    of_device = begun.cuDeviceGetDefaultMemPool(WORD, 1)
    assert attributes_of(begun, of_device) == [PINNED, 0, 1, DEVICE, 0, 0, -1]
    for number in (*CREATED_WITH, 16, 99):
        assert code(begun.cuMemPoolSetAttribute, of_device, number, ctypes.byref(WORD())) == INVALID_VALUE
    assert code(begun.cuMemPoolGetAttribute, of_device, 16, WORD) == INVALID_VALUE


@pytest.mark.parametrize("handles", [0, 1])
def test_handles_of_memory_of_a_pool_are_those_of_the_pool(begun: Driver, handles: int) -> None:
    pool = begun.cuMemPoolCreate(WORD, properties(PINNED, DEVICE, handles=handles))
    memory = begun.cuMemAllocFromPoolAsync(WORD, SIZE, pool, 0)
    assert begun.cuPointerGetAttribute(INT, HANDLE_TYPES, memory) == handles
    assert begun.cuPointerGetAttribute(INT, HAS_IPC_HANDLE, memory) == 0


def test_pool_of_the_host_has_a_handle_only_for_a_node(begun: Driver) -> None:
    assert code(begun.cuMemPoolCreate, WORD, properties(PINNED, HOST, handles=1)) == INVALID_VALUE
    begun.cuMemPoolCreate(WORD, properties(PINNED, NODE, handles=1))


def test_pool_pointer_of_memory_outside_of_shareable_pools_is_refused(begun: Driver) -> None:
    key = (ctypes.c_uint8 * 64)()
    stream = begun.cuStreamCreate(WORD, 1)
    own = begun.cuMemPoolCreate(WORD, properties(PINNED, DEVICE))
    shareable = begun.cuMemPoolCreate(WORD, properties(PINNED, DEVICE, handles=1))
    others = (
        begun.cuMemAlloc_v2(WORD, 64),
        begun.cuMemAllocAsync(WORD, 64, stream),
        begun.cuMemAllocFromPoolAsync(WORD, 64, own, stream),
    )
    codes = {code(begun.cuMemPoolExportPointer, ctypes.byref(key), each) for each in others}
    assert (codes, bytes(key)) == ({INVALID_VALUE}, bytes(64))
    begun.cuMemPoolExportPointer(
        ctypes.byref(key), begun.cuMemAllocFromPoolAsync(WORD, 64, shareable, stream)
    )
    assert any(key)


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


def of_device(device: int) -> ctypes.Array[ctypes.c_int32]:
    """Of a pool: the CUmemPoolProps of a device."""
    created = properties(PINNED, DEVICE)
    created[3] = device
    return created


class Reach:
    """Memory of a pool of device 1, to which device 0, the current one, has a right: its own memory and a stream."""

    def __init__(self, driver: Driver, right: int) -> None:
        self.driver = driver
        self.own = driver.cuMemAlloc_v2(WORD, SIZE)
        self.stream = driver.cuStreamCreate(WORD, 1)
        self.contexts = [driver.cuDevicePrimaryCtxRetain(WORD, device) for device in (0, 1)]
        self.pool = driver.cuMemPoolCreate(WORD, of_device(1))
        driver.cuCtxPushCurrent_v2(self.contexts[1])
        self.far = driver.cuMemAllocFromPoolAsync(WORD, SIZE, self.pool, 0)
        driver.cuCtxSynchronize()
        driver.cuCtxPopCurrent_v2(WORD)
        self.give(right)

    def give(self, right: int) -> None:
        self.right = right
        self.driver.cuMemPoolSetAccess(self.pool, (ctypes.c_int32 * 3)(DEVICE, 0, right), 1)

    def box(self, dst: int, src: int) -> Any:
        kinds = {
            "srcMemoryType": 2,
            "dstMemoryType": 2,
            "WidthInBytes": 64,
            "Height": 2,
            "srcPitch": 64,
            "dstPitch": 64,
        }
        return ctypes.byref(struct("CUDA_MEMCPY2D_v2", srcDevice=src, dstDevice=dst, **kinds))

    def node(self, dst: int, src: int) -> None:
        kinds = {"srcMemoryType": 2, "dstMemoryType": 2, "WidthInBytes": 64, "Height": 1, "Depth": 1}
        copy = struct("CUDA_MEMCPY3D_v2", srcDevice=src, dstDevice=dst, **kinds)
        graph = self.driver.cuGraphCreate(WORD, 0)
        self.driver.cuGraphAddMemcpyNode(WORD, graph, None, 0, ctypes.byref(copy), self.contexts[0])

    def captured(self, queue: Callable[[], object]) -> None:
        self.driver.cuStreamBeginCapture_v2(self.stream, 0)
        try:
            queue()
        finally:
            self.driver.cuStreamEndCapture(self.stream, WORD)

    def peer_box(self, dst: int, src: int) -> Any:
        kinds = {"srcMemoryType": 2, "dstMemoryType": 2, "WidthInBytes": 64, "Height": 1, "Depth": 1}
        ends = {"srcContext": self.contexts[src == self.far], "dstContext": self.contexts[dst == self.far]}
        return ctypes.byref(struct("CUDA_MEMCPY3D_PEER_v1", srcDevice=src, dstDevice=dst, **kinds, **ends))


Move = Callable[[Reach, int, int], object]
PLAIN: dict[str, Move] = {
    "async": lambda reach, dst, src: reach.driver.cuMemcpyAsync(dst, src, 64, reach.stream),
    "at once": lambda reach, dst, src: reach.driver.cuMemcpy(dst, src, 64),
    "rows": lambda reach, dst, src: reach.driver.cuMemcpy2DAsync_v2(reach.box(dst, src), reach.stream),
    "rows at once": lambda reach, dst, src: reach.driver.cuMemcpy2D_v2(reach.box(dst, src)),
    "batch": lambda reach, dst, src: reach.driver.cuMemcpyBatchAsync_v2(
        words(dst), words(src), words(64), 1, pack("<i4iI", 1, 0, 0, 0, 0, 0), words(0), 1, reach.stream
    ),
    "node": lambda reach, dst, src: reach.node(dst, src),
    "captured": lambda reach, dst, src: reach.captured(lambda: PLAIN["async"](reach, dst, src)),
}
FILLS: dict[str, Callable[[Reach], object]] = {
    "async": lambda reach: reach.driver.cuMemsetD8Async(reach.far, 1, 64, reach.stream),
    "at once": lambda reach: reach.driver.cuMemsetD32_v2(reach.far, 1, 16),
    "rows": lambda reach: reach.driver.cuMemsetD2D8Async(reach.far, 64, 1, 32, 2, reach.stream),
    "captured": lambda reach: reach.captured(lambda: FILLS["async"](reach)),
}
PEER: dict[str, Move] = {
    "async": lambda reach, dst, src: reach.driver.cuMemcpyPeerAsync(
        dst, reach.contexts[dst == reach.far], src, reach.contexts[src == reach.far], 64, reach.stream
    ),
    "at once": lambda reach, dst, src: reach.driver.cuMemcpyPeer(
        dst, reach.contexts[dst == reach.far], src, reach.contexts[src == reach.far], 64
    ),
    "box": lambda reach, dst, src: reach.driver.cuMemcpy3DPeerAsync(reach.peer_box(dst, src), reach.stream),
    "captured": lambda reach, dst, src: reach.captured(lambda: PEER["async"](reach, dst, src)),
}


def answer(call: Callable[[], object]) -> int:
    """Return the code of a call, which may succeed."""
    try:
        call()
    except CudaError as error:
        return error.code
    return 0


@pytest.fixture(params=[0, 1, 3], ids=["none", "read", "read and write"])
def reach(begun: Driver, request: pytest.FixtureRequest) -> Reach:
    return Reach(begun, request.param)


@for_each("is_read, name", [(is_read, name) for is_read in (False, True) for name in PLAIN])
def test_device_without_access_to_a_pool_does_not_copy_its_memory(
    reach: Reach, is_read: bool, name: str
) -> None:
    ends = (reach.own, reach.far) if is_read else (reach.far, reach.own)
    allowed = reach.right == READ_WRITE or (is_read and reach.right == READ)
    assert answer(lambda: PLAIN[name](reach, *ends)) == (0 if allowed else INVALID_VALUE)


@for_each("name", FILLS)
def test_device_without_access_to_a_pool_does_not_fill_its_memory(reach: Reach, name: str) -> None:
    assert answer(lambda: FILLS[name](reach)) == (0 if reach.right == READ_WRITE else INVALID_VALUE)


def word_batch(driver: Driver, address: int) -> tuple[int, Any]:
    """A batch that waits for a word and writes it."""
    batch = (LAYOUT.struct("CUstreamBatchMemOpParams_v1") * 2)()
    for each, operation in zip(batch, (1, 2), strict=True):
        each.waitValue.operation, each.waitValue.address = operation, address
    return 2, batch


WORDS: dict[str, tuple[int, Callable[[Reach], object]]] = {
    "wait": (READ, lambda reach: reach.driver.cuStreamWaitValue32_v2(reach.stream, reach.far, 0, 0)),
    "write": (READ_WRITE, lambda reach: reach.driver.cuStreamWriteValue64_v2(reach.stream, reach.far, 5, 0)),
    "batch": (
        READ_WRITE,
        lambda reach: reach.driver.cuStreamBatchMemOp_v2(
            reach.stream, *word_batch(reach.driver, reach.far), 0
        ),
    ),
    "captured": (
        READ_WRITE,
        lambda reach: reach.captured(
            lambda: reach.driver.cuStreamWriteValue32_v2(reach.stream, reach.far, 5, 0)
        ),
    ),
}


@for_each("name", WORDS)
def test_stream_of_a_device_without_access_to_a_pool_does_not_use_its_words(reach: Reach, name: str) -> None:
    needed, use = WORDS[name]
    assert answer(lambda: use(reach)) == (0 if reach.right >= needed else INVALID_VALUE)


@for_each("name", PEER)
def test_copy_that_names_both_devices_needs_no_access_to_a_pool(begun: Driver, name: str) -> None:
    reach, back = Reach(begun, 0), np.zeros(64, np.uint8)
    steps: list[Callable[[], object]] = [
        lambda: begun.cuMemsetD8_v2(reach.own, 9, 64),
        lambda: PEER[name](reach, reach.far, reach.own),
        lambda: begun.cuMemsetD8Async(reach.own, 0, 64, reach.stream),
        lambda: PEER[name](reach, reach.own, reach.far),
    ]
    for step in steps:
        step()
        begun.cuCtxSynchronize()
    begun.cuMemcpyDtoH_v2(back.ctypes.data, reach.own, 64)
    assert set(back) == ({0} if name == "captured" else {9})


def test_access_that_ends_refuses_the_copy_that_native_code_has_answered(begun: Driver) -> None:
    reach = Reach(begun, 3)
    for right in (3, 0, 3, 0):
        reach.give(right)
        codes = [answer(lambda: PLAIN["async"](reach, reach.own, reach.far)) for _ in range(3)]
        assert codes == [0 if right else INVALID_VALUE] * 3
    begun.cuStreamSynchronize(reach.stream)


def test_first_pool_of_a_process_counts_for_copies_that_native_code_answers(begun: Driver) -> None:
    near, stream = begun.cuMemAlloc_v2(WORD, SIZE), begun.cuStreamCreate(WORD, 1)
    begun.cuCtxPushCurrent_v2(begun.cuDevicePrimaryCtxRetain(WORD, 1))
    far = begun.cuMemAlloc_v2(WORD, SIZE)
    begun.cuCtxPopCurrent_v2(WORD)
    for _ in range(3):
        begun.cuMemcpyAsync(near, far, 64, stream)
    begun.cuMemFree_v2(far)
    reach = Reach(begun, 0)
    assert code(begun.cuMemcpyAsync, near, reach.far, 64, stream) == INVALID_VALUE


@pytest.mark.parametrize("right", [0, 1, 3])
def test_memory_of_a_graph_has_the_access_of_its_node(begun: Driver, right: int) -> None:
    own, graph = begun.cuMemAlloc_v2(WORD, SIZE), begun.cuGraphCreate(WORD, 0)
    described = struct("CUDA_MEM_ALLOC_NODE_PARAMS_v1", bytesize=SIZE, accessDescCount=1)
    described.poolProps.allocType = PINNED
    described.poolProps.location.type, described.poolProps.location.id = DEVICE, 1
    listed = struct("CUmemAccessDesc_v1", flags=right)
    listed.location.type, listed.location.id = DEVICE, 0
    described.accessDescs = ctypes.addressof(listed)
    before = begun.cuGraphAddMemAllocNode(WORD, graph, None, 0, ctypes.byref(described))
    copies = [(own, described.dptr, 1), (described.dptr, own, 3)]
    for dst, src, needed in copies:
        copy = struct("CUDA_MEMCPY3D_v2", srcMemoryType=2, srcDevice=src, dstMemoryType=2, dstDevice=dst)
        copy.WidthInBytes, copy.Height, copy.Depth = 64, 1, 1
        seen = answer(
            lambda copy=copy: begun.cuGraphAddMemcpyNode(WORD, graph, words(before), 1, ctypes.byref(copy), 0)
        )
        assert seen == (0 if right >= needed else INVALID_VALUE)


def test_imported_pool_has_no_access_but_that_of_its_device(node: Node) -> None:
    spec = f"name=cuda-import-{os.getpid()},devices=2"
    node(spec)
    driver = begin(Driver())
    created = of_device(1)
    created[1] = 1
    pool = driver.cuMemPoolCreate(WORD, created)
    driver.cuMemPoolSetAccess(pool, (ctypes.c_int32 * 3)(DEVICE, 0, 3), 1)
    fd = ctypes.c_int()
    driver.cuMemPoolExportToShareableHandle(ctypes.byref(fd), pool, 1, 0)
    with peer(spec) as other:
        other.run(
            f"""
import ctypes, os
lib = ctypes.CDLL({f"{folder()}/libcuda.so.1"!r})
codes, pool, rights = [lib.cuInit(0)], ctypes.c_uint64(), []
fd = os.open("/proc/{os.getpid()}/fd/{fd.value}", os.O_RDONLY)
codes.append(lib.cuMemPoolImportFromShareableHandle(ctypes.byref(pool), ctypes.c_uint64(fd), 1, 0))
for device in (0, 1):
    right = ctypes.c_int()
    codes.append(lib.cuMemPoolGetAccess(ctypes.byref(right), pool, (ctypes.c_int32 * 2)(1, device)))
    rights.append(right.value)
"""
        )
        assert other.run("result = codes, rights") == [[0] * 4, [0, 3]]


def test_access_of_the_current_device_is_enough_for_a_stream_of_another_one(begun: Driver) -> None:
    reach = Reach(begun, 0)
    mine = begun.cuMemAllocFromPoolAsync(WORD, SIZE, begun.cuMemPoolCreate(WORD, of_device(0)), reach.stream)
    begun.cuCtxSetCurrent(reach.contexts[1])
    assert code(begun.cuMemcpyAsync, reach.far, mine, 64, reach.stream) == INVALID_VALUE
    begun.cuMemsetD8Async(reach.far, 3, 64, reach.stream)
    begun.cuCtxSetCurrent(reach.contexts[0])
    assert code(begun.cuMemsetD8Async, reach.far, 3, 64, reach.stream) == INVALID_VALUE
