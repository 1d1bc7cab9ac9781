"""Batches of CUDA's driver: copies, waits and writes of words, and managed memory of many ranges."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest

from dialects.cuda import driver as cuda
from dialects.cuda.driver import INT, LAYOUT, WORD, Driver, begun_driver, code, words

STREAM, DURING_API_CALL, ANY = 1, 2, 3
DEVICE, HOST = 1, 2
SIZE = 4096


begun = pytest.fixture(begun_driver)


def attributes(*orders: int) -> bytes:
    """Return an array of CUmemcpyAttributes."""
    return b"".join(struct.pack("<i4iI", each, 0, 0, 0, 0, 0) for each in orders)


@pytest.mark.parametrize("name", ["cuMemcpyBatchAsync_v2", "cuMemcpyBatchAsync"])
def test_copies_of_a_batch_have_the_order_of_their_attributes(begun: Driver, name: str) -> None:
    stream = begun.cuStreamCreate(WORD, 1)
    data = np.random.default_rng(3).integers(0, 256, (3, SIZE), np.uint8)
    hosts = [begun.cuMemAllocHost_v2(WORD, SIZE) for _ in range(3)]
    devices = [begun.cuMemAlloc_v2(WORD, SIZE) for _ in range(3)]
    for host, each in zip(hosts, data, strict=True):
        ctypes.memmove(host, each.tobytes(), SIZE)
    behind = [None] if name == "cuMemcpyBatchAsync" else []
    batch = words(*devices), words(*hosts), words(*[SIZE] * 3), 3
    getattr(begun, name)(*batch, attributes(STREAM, DURING_API_CALL), words(0, 2), 2, *behind, stream)
    ctypes.memset(hosts[2], 0, SIZE)  # it has been read
    begun.cuStreamSynchronize(stream)
    back = np.zeros((3, SIZE), np.uint8)
    for at, device in enumerate(devices):
        begun.cuMemcpyDtoH_v2(back[at].ctypes.data, device, SIZE)
    assert np.array_equal(back, data)


def test_wrong_batches_of_copies_are_refused(begun: Driver) -> None:
    stream = begun.cuStreamCreate(WORD, 1)
    host, device = begun.cuMemAllocHost_v2(WORD, SIZE), begun.cuMemAlloc_v2(WORD, SIZE)
    copy = begun.cuMemcpyBatchAsync_v2
    one = words(device), words(host), words(SIZE), 1
    for wrong in (
        (*one, attributes(STREAM), words(0), 1, 0),  # the legacy stream
        (*one, attributes(STREAM), words(1), 1, stream),  # the first copy has no attributes
        (*one, attributes(0), words(0), 1, stream),
        (*one, None, None, 0, stream),
        (*one, None, None, 1, stream),
        (None, words(host), words(SIZE), 1, attributes(STREAM), words(0), 1, stream),
        (words(device), words(host), words(0), 1, attributes(STREAM), words(0), 1, stream),
        (words(device), words(host), words(2 * SIZE), 1, attributes(STREAM), words(0), 1, stream),
    ):
        assert code(copy, *wrong) == cuda.INVALID_VALUE


def test_box_of_a_batch_and_a_copy_with_attributes_move_their_bytes(begun: Driver) -> None:
    stream = begun.cuStreamCreate(WORD, 1)
    host, device = begun.cuMemAllocHost_v2(WORD, SIZE), begun.cuMemAlloc_v2(WORD, SIZE)
    data = np.random.default_rng(4).integers(0, 256, SIZE, np.uint8)
    ctypes.memmove(host, data.tobytes(), SIZE)
    begun.cuMemcpyWithAttributesAsync(device, host, SIZE, attributes(ANY), stream)

    def operand(address: int, row: int) -> bytes:
        return struct.pack("<i4xQQQii", 1, address, row, 0, 0, 0)

    back = begun.cuMemAllocHost_v2(WORD, SIZE)
    ctypes.memset(back, 0, SIZE)
    box = operand(device, 128) + operand(back, 64) + struct.pack("<QQQiI", 48, 8, 1, STREAM, 0)
    begun.cuMemcpy3DBatchAsync_v2(1, box, 0, stream)
    begun.cuStreamSynchronize(stream)
    moved = np.frombuffer(ctypes.string_at(back, 8 * 64), np.uint8).reshape(8, 64)
    assert np.array_equal(moved[:, :48], data[: 8 * 128].reshape(8, 128)[:, :48])
    assert not moved[:, 48:].any()


def test_batch_of_words_orders_two_streams(begun: Driver) -> None:
    first, second = begun.cuStreamCreate(WORD, 1), begun.cuStreamCreate(WORD, 1)
    word, memory = begun.cuMemAlloc_v2(WORD, 8), begun.cuMemAlloc_v2(WORD, SIZE)
    begun.cuMemsetD8_v2(word, 0, 8)
    begun.cuCtxSynchronize()

    def operation(kind: int, value: int) -> bytes:
        return struct.pack("<i4xQQI4xQ", kind, word, value, 0, 0).ljust(48, b"\0")

    wait, write, barrier = operation(4, 7), operation(5, 7), struct.pack("<iI", 6, 0).ljust(48, b"\0")
    begun.cuStreamBatchMemOp_v2(second, 1, wait, 0)
    begun.cuMemsetD8Async(memory, 5, SIZE, second)
    begun.cuMemsetD8Async(memory, 9, SIZE, first)
    begun.cuStreamBatchMemOp_v2(first, 2, barrier + write, 0)
    begun.cuStreamSynchronize(second)
    back = np.zeros(SIZE, np.uint8)
    begun.cuMemcpyDtoH_v2(back.ctypes.data, memory, SIZE)
    assert (back == 5).all()
    assert code(begun.cuStreamBatchMemOp_v2, first, 1, operation(8, 1), 0) == cuda.NOT_SUPPORTED
    assert code(begun.cuStreamBatchMemOp_v2, first, 0, wait, 0) == cuda.INVALID_VALUE


def location(kind: int, number: int) -> bytes:
    return struct.pack("<ii", kind, number)


def by_value(kind: int, number: int) -> ctypes.c_uint64:
    return ctypes.c_uint64(number << 32 | kind)


def test_managed_memory_keeps_advice_and_where_it_is_wanted(begun: Driver) -> None:
    memory = begun.cuMemAllocManaged(WORD, SIZE, 1)
    begun.cuMemPrefetchAsync_v2(memory, SIZE, by_value(DEVICE, 1), 0, 0)
    begun.cuMemAdvise_v2(memory, SIZE, 1, by_value(HOST, 0))
    begun.cuMemAdvise_v2(memory, SIZE, 5, by_value(DEVICE, 1))
    begun.cuMemAdvise(memory, SIZE, 3, 0)

    def number(attribute: int) -> int:
        value = ctypes.c_int()
        begun.cuMemRangeGetAttribute(ctypes.addressof(value), 4, attribute, memory, SIZE)
        return value.value

    assert [number(each) for each in (1, 2, 4, 5, 6, 7, 8)] == [1, 0, 1, DEVICE, 0, DEVICE, 1]
    users, other = (ctypes.c_int * 3)(), ctypes.c_int()
    begun.cuMemRangeGetAttributes(
        words(ctypes.addressof(users), ctypes.addressof(other)),
        words(12, 4),
        struct.pack("<ii", 3, 1),
        2,
        memory,
        SIZE,
    )
    assert (list(users), other.value) == ([1, -2, -2], 1)
    plain = begun.cuMemAlloc_v2(WORD, SIZE)
    assert code(begun.cuMemPrefetchAsync, plain, SIZE, 0, 0) == cuda.INVALID_VALUE
    assert code(begun.cuMemAdvise, memory, SIZE, 9, 0) == cuda.INVALID_VALUE
    assert code(begun.cuMemPrefetchAsync, memory, SIZE, 5, 0) == cuda.INVALID_DEVICE


def test_ranges_of_a_batch_prefer_the_location_of_their_group(begun: Driver) -> None:
    stream = begun.cuStreamCreate(WORD, 1)
    memory = [begun.cuMemAllocManaged(WORD, SIZE, 1) for _ in range(3)]
    where = location(DEVICE, 1) + location(HOST, 0)
    ranges = words(*memory), words(*[SIZE] * 3), 3
    begun.cuMemPrefetchBatchAsync(*ranges, where, words(0, 2), 2, 0, stream)
    value = ctypes.c_int()

    def wanted(address: int) -> int:
        begun.cuMemRangeGetAttribute(ctypes.addressof(value), 4, 4, address, SIZE)
        return value.value

    assert [wanted(each) for each in memory] == [1, 1, -1]
    begun.cuMemDiscardBatchAsync(*ranges, 0, stream)
    plain = words(begun.cuMemAlloc_v2(WORD, SIZE)), words(SIZE), 1
    assert code(begun.cuMemPrefetchBatchAsync, *plain, where, words(0), 1, 0, stream) == cuda.INVALID_VALUE
    assert code(begun.cuMemPrefetchBatchAsync, *ranges, where, words(0), 1, 0, 0) == cuda.INVALID_VALUE


def test_streams_keep_their_attributes_and_give_them_to_others(begun: Driver) -> None:
    first, second = (begun.cuStreamCreateWithPriority(WORD, 1, -1) for _ in range(2))
    value, back = (ctypes.c_int * 16)(2), (ctypes.c_int * 16)()
    begun.cuStreamSetAttribute(first, 3, ctypes.addressof(value))
    begun.cuStreamCopyAttributes(second, first)
    begun.cuStreamGetAttribute(second, 3, ctypes.addressof(back))
    assert back[0] == 2
    begun.cuStreamGetAttribute(second, 8, ctypes.addressof(back))
    assert back[0] == -1
    assert code(begun.cuStreamGetAttribute, first, 4, ctypes.addressof(back)) == cuda.INVALID_VALUE


def test_devices_answer_what_cuda_core_asks_of_their_resources(begun: Driver) -> None:
    resource = (ctypes.c_uint32 * 36)()
    begun.cuDeviceGetDevResource(0, ctypes.addressof(resource), 1)
    assert (resource[0], resource[24]) == (1, 132)
    assert begun.cuDeviceGetAttribute(INT, 16, 0) == 132
    assert code(begun.cuDeviceGetDevResource, 0, ctypes.addressof(resource), 1000) == cuda.NOT_SUPPORTED


@pytest.mark.parametrize("name", ["copies", "boxes"])
def test_batch_of_12_gives_the_number_of_the_copy_that_failed(begun: Driver, name: str) -> None:
    stream, memory = begun.cuStreamCreate(WORD, 1), begun.cuMemAlloc_v2(WORD, SIZE)
    failed = ctypes.c_uint64(7)

    def copied(sources: list[int], order: int = STREAM) -> int:
        count = len(sources)
        batch = words(*[memory] * count), words(*sources), words(*[64] * count), count
        return code(
            begun.cuMemcpyBatchAsync, *batch, attributes(order), words(0), 1, ctypes.byref(failed), stream
        )

    def boxes(sources: list[int], order: int = STREAM) -> int:
        operations = (LAYOUT.struct("CUDA_MEMCPY3D_BATCH_OP_v1") * len(sources))()
        for each, source in zip(operations, sources, strict=True):
            each.srcAccessOrder = order
            each.extent.width, each.extent.height, each.extent.depth = 64, 1, 1
            for operand, address in ((each.src, source), (each.dst, memory)):
                operand.type, operand.op.ptr.ptr = 1, address
        return code(begun.cuMemcpy3DBatchAsync, len(sources), operations, ctypes.byref(failed), 0, stream)

    call = copied if name == "copies" else boxes
    assert call([memory, memory, 0, memory]) == cuda.INVALID_VALUE
    assert failed.value == 2
    assert call([memory], order=9) == cuda.INVALID_VALUE
    assert failed.value == ((1 << 64) - 1 if name == "copies" else 0)
