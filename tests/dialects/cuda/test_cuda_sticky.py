"""Failed work makes its context unusable: each later call has its code, until the context ends (facts/cuda 1.2)."""

from __future__ import annotations

import ctypes
import mmap
import threading
import time
from collections.abc import Callable, Iterator
from typing import ClassVar

import pytest

from dialects.cuda.driver import (
    INVALID_VALUE,
    NOT_READY,
    SUCCESS,
    WORD,
    CudaError,
    Driver,
    begun_driver,
    code,
    struct,
    words,
)
from helpers.each import for_each
from helpers.promises import Node
from peerlane import dialects
from peerlane.backend import host

ILLEGAL_ADDRESS = 700
SIZE = 1 << 20
SECONDS = 20
LIBC = ctypes.CDLL(None)
LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
LIBC.mmap.restype = ctypes.c_void_p
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


begun = pytest.fixture(begun_driver)


@pytest.fixture(params=["12", "13"])
def runtime(node: Node, request: pytest.FixtureRequest) -> Iterator[Driver]:
    node()
    dialects.begin_anew("cuda")
    yield Driver(f"libcudart.so.{request.param}")
    dialects.begin_anew("cuda")


def mapped() -> int:
    return int(LIBC.mmap(None, SIZE, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0))


class Gate:
    """A host function that a stream waits in until it is opened."""

    _kept: ClassVar[list[Gate]] = []  # a stream may call the function after the test has dropped the gate

    def __init__(self) -> None:
        self._opened = threading.Event()
        self.function = CALLBACK(lambda _: self._opened.wait(SECONDS) and None)
        self._kept.append(self)

    def open(self) -> None:
        self._opened.set()


def failing(driver: Driver, stream: int) -> Gate:
    """Queue a copy from memory that nobody may read any more when it runs; it runs when the gate is opened."""
    gate, host, memory = Gate(), mapped(), driver.cuMemAlloc_v2(WORD, SIZE)
    driver.cuMemHostRegister_v2(host, SIZE, 0)
    driver.cuLaunchHostFunc(stream, gate.function, 0)
    driver.cuMemcpyHtoDAsync_v2(memory, host, SIZE, stream)
    LIBC.mprotect(host, SIZE, 0)
    return gate


def until(call: Callable[[], object], pending: int) -> int:
    """Return the code of a call when it is not the one for pending work any more."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            call()
        except CudaError as error:
            if error.code != pending:
                return error.code
        else:
            return SUCCESS
    raise AssertionError("the work is not over")


NOTICED: dict[str, Callable[[Driver, int, int], object]] = {
    "the stream is waited for": lambda driver, stream, event: driver.cuStreamSynchronize(stream),
    "the context is waited for": lambda driver, stream, event: driver.cuCtxSynchronize(),
    "the event is waited for": lambda driver, stream, event: driver.cuEventSynchronize(event),
    "the stream is asked": lambda driver, stream, event: driver.cuStreamQuery(stream),
    "the event is asked": lambda driver, stream, event: driver.cuEventQuery(event),
}
REFUSED: dict[str, Callable[[Driver, int, int], object]] = {
    **NOTICED,
    "memory is allocated": lambda driver, stream, event: driver.cuMemAlloc_v2(WORD, 64),
    "the memory is asked": lambda driver, stream, event: driver.cuMemGetInfo_v2(WORD, WORD),
    "a stream is made": lambda driver, stream, event: driver.cuStreamCreate(WORD, 0),
    "the event is recorded": lambda driver, stream, event: driver.cuEventRecord(event, stream),
    "the event ends": lambda driver, stream, event: driver.cuEventDestroy_v2(event),
    "the stream ends": lambda driver, stream, event: driver.cuStreamDestroy_v2(stream),
}


@pytest.mark.parametrize("noticed", NOTICED)
def test_failed_work_is_the_answer_of_every_later_call_of_its_context(begun: Driver, noticed: str) -> None:
    stream, event = begun.cuStreamCreate(WORD, 1), begun.cuEventCreate(WORD, 0)
    gate = failing(begun, stream)
    begun.cuEventRecord(event, stream)
    gate.open()
    assert until(lambda: NOTICED[noticed](begun, stream, event), NOT_READY) == ILLEGAL_ADDRESS
    for name, call in REFUSED.items():
        assert code(call, begun, stream, event) == ILLEGAL_ADDRESS, name


def test_other_contexts_go_on_and_a_reset_makes_the_device_usable(begun: Driver) -> None:
    stream = begun.cuStreamCreate(WORD, 1)
    failing(begun, stream).open()
    assert code(begun.cuStreamSynchronize, stream) == ILLEGAL_ADDRESS
    other = begun.cuDevicePrimaryCtxRetain(WORD, 1)
    begun.cuCtxPushCurrent_v2(other)
    memory = begun.cuMemAlloc_v2(WORD, 64)
    begun.cuMemsetD8_v2(memory, 1, 64)
    assert code(begun.cuStreamSynchronize, stream) == ILLEGAL_ADDRESS  # it is of the other context
    begun.cuCtxPopCurrent_v2(WORD)
    assert code(begun.cuMemAlloc_v2, WORD, 64) == ILLEGAL_ADDRESS
    begun.cuDevicePrimaryCtxReset_v2(0)
    begun.cuCtxSetCurrent(begun.cuDevicePrimaryCtxRetain(WORD, 0))
    begun.cuMemAlloc_v2(WORD, 64)
    begun.cuCtxSynchronize()


def test_copy_that_native_code_answered_is_refused_behind_failed_work(begun: Driver) -> None:
    stream = begun.cuStreamCreate(WORD, 1)
    source, target = (begun.cuMemAlloc_v2(WORD, 64) for _ in range(2))
    for _ in range(3):
        begun.cuMemcpyAsync(target, source, 64, stream)
    failing(begun, begun.cuStreamCreate(WORD, 1)).open()
    assert code(begun.cuCtxSynchronize) == ILLEGAL_ADDRESS
    assert code(begun.cuMemcpyAsync, target, source, 64, stream) == ILLEGAL_ADDRESS


def test_refused_call_leaves_the_context_usable(begun: Driver) -> None:
    assert code(begun.cuMemcpyDtoH_v2, 0, begun.cuMemAlloc_v2(WORD, 64), 64) == INVALID_VALUE
    begun.cuMemAlloc_v2(WORD, 64)
    assert begun.cuCtxSynchronize() == []


@for_each("end", ["cuCtxDestroy_v2", "cuDevicePrimaryCtxRelease_v2"])
def test_end_of_a_context_that_failed_is_a_success(begun: Driver, end: str) -> None:
    is_own = end == "cuCtxDestroy_v2"
    context = begun.cuCtxCreate_v2(WORD, 0, 1) if is_own else begun.cuDevicePrimaryCtxRetain(WORD, 1)
    begun.cuCtxSetCurrent(context)
    failing(begun, begun.cuStreamCreate(WORD, 1)).open()
    assert code(begun.cuCtxSynchronize) == ILLEGAL_ADDRESS
    getattr(begun, end)(context if is_own else 1)


def test_last_error_of_the_runtime_stays_until_the_reset(runtime: Driver) -> None:
    stream, gate, host = runtime.cudaStreamCreate(WORD), Gate(), mapped()
    memory = runtime.cudaMalloc(WORD, SIZE)
    runtime.cudaHostRegister(host, SIZE, 0)
    runtime.cudaLaunchHostFunc(stream, gate.function, 0)
    runtime.cudaMemcpyAsync(memory, host, SIZE, 1, stream)
    LIBC.mprotect(host, SIZE, 0)
    gate.open()
    assert code(runtime.cudaStreamSynchronize, stream) == ILLEGAL_ADDRESS
    last = runtime.library.cudaGetLastError
    assert [last(), last(), runtime.library.cudaPeekAtLastError()] == [ILLEGAL_ADDRESS] * 3
    assert code(runtime.cudaMalloc, WORD, 64) == ILLEGAL_ADDRESS
    runtime.cudaDeviceReset()
    last()
    assert last() == SUCCESS
    assert runtime.cudaMalloc(WORD, 64)


def test_stream_that_is_destroyed_ends_with_its_work(begun: Driver) -> None:
    stream, gate = begun.cuStreamCreate(WORD, 1), Gate()
    memory, host = begun.cuMemAlloc_v2(WORD, 64), (ctypes.c_uint8 * 64)()
    begun.cuMemsetD8_v2(memory, 0, 64)
    begun.cuCtxSynchronize()
    begun.cuLaunchHostFunc(stream, gate.function, 0)
    begun.cuMemsetD8Async(memory, 7, 64, stream)
    begun.cuStreamDestroy_v2(stream)  # it would wait for ever: the gate is closed
    assert code(begun.cuStreamQuery, stream) == 400
    gate.open()
    begun.cuCtxSynchronize()
    begun.cuMemcpyDtoH_v2(host, memory, 64)
    assert set(host) == {7}


def test_destroyed_stream_whose_work_waits_for_a_word_goes_on(begun: Driver) -> None:
    stream, word = begun.cuStreamCreate(WORD, 1), begun.cuMemAllocHost_v2(WORD, 64)
    ctypes.memset(word, 0, 64)
    begun.cuStreamWaitValue32_v2(stream, word, 1, 1)
    begun.cuStreamWriteValue32_v2(stream, word + 32, 5, 0)
    begun.cuStreamDestroy_v2(stream)
    assert ctypes.c_uint32.from_address(word + 32).value == 0
    ctypes.c_uint32.from_address(word).value = 1
    begun.cuCtxSynchronize()
    assert ctypes.c_uint32.from_address(word + 32).value == 5


def test_work_of_a_destroyed_stream_that_fails_makes_its_context_unusable(begun: Driver) -> None:
    stream = begun.cuStreamCreate(WORD, 1)
    gate = failing(begun, stream)
    begun.cuStreamDestroy_v2(stream)
    gate.open()
    assert code(begun.cuCtxSynchronize) == ILLEGAL_ADDRESS
    assert code(begun.cuMemAlloc_v2, WORD, 64) == ILLEGAL_ADDRESS


def test_copy_that_native_code_would_answer_notices_failed_work_that_nobody_waited_for(begun: Driver) -> None:
    stream = begun.cuStreamCreate(WORD, 1)
    source, target = (begun.cuMemAlloc_v2(WORD, 64) for _ in range(2))
    gate = failing(begun, begun.cuStreamCreate(WORD, 1))
    for _ in range(3):
        begun.cuMemcpyAsync(target, source, 64, stream)
    before, deadline = host.failures(), time.monotonic() + SECONDS
    gate.open()
    while host.failures() == before and time.monotonic() < deadline:
        pass
    assert code(begun.cuMemcpyAsync, target, source, 64, stream) == ILLEGAL_ADDRESS


def test_failed_work_of_a_branch_of_a_graph_makes_the_context_unusable(begun: Driver) -> None:
    gate, source, target = Gate(), mapped(), begun.cuMemAlloc_v2(WORD, SIZE)
    begun.cuMemHostRegister_v2(source, SIZE, 0)
    graph, stream = begun.cuGraphCreate(WORD, 0), begun.cuStreamCreate(WORD, 1)
    code_of_gate = ctypes.cast(gate.function, ctypes.c_void_p).value
    waits = struct("CUDA_HOST_NODE_PARAMS_v1", fn=code_of_gate, userData=0)
    first = begun.cuGraphAddHostNode(WORD, graph, None, 0, ctypes.byref(waits))
    copy = struct("CUDA_MEMCPY3D_v2", srcMemoryType=1, srcHost=source, dstMemoryType=2, dstDevice=target)
    copy.WidthInBytes, copy.Height, copy.Depth = SIZE, 1, 1
    for _ in range(2):
        begun.cuGraphAddMemcpyNode(WORD, graph, words(first), 1, ctypes.byref(copy), 0)
    begun.cuGraphLaunch(begun.cuGraphInstantiateWithFlags(WORD, graph, 0), stream)
    LIBC.mprotect(source, SIZE, 0)
    gate.open()
    assert code(begun.cuStreamSynchronize, stream) == ILLEGAL_ADDRESS
    assert code(begun.cuMemAlloc_v2, WORD, 64) == ILLEGAL_ADDRESS


def test_synchronization_of_a_context_waits_for_no_other_one_of_the_device(begun: Driver) -> None:
    gate, context = Gate(), begun.cuCtxCreate_v2(WORD, 0, 0)
    stream = begun.cuStreamCreate(WORD, 1)
    begun.cuLaunchHostFunc(stream, gate.function, 0)
    begun.cuCtxPopCurrent_v2(WORD)
    begun.cuCtxSynchronize()  # it would wait for ever: the gate is closed
    assert code(begun.cuStreamQuery, stream) == NOT_READY
    gate.open()
    begun.cuCtxPushCurrent_v2(context)
    begun.cuCtxSynchronize()
    begun.cuStreamQuery(stream)


QUICK: dict[str, Callable[[Driver, int, int], object]] = {
    "a copy": lambda driver, memory, _: driver.cuMemcpyDtoD_v2(memory, memory + 64, 8),
    "a copy on the null stream": lambda driver, memory, _: driver.cuMemcpyAsync(memory, memory + 64, 8, 0),
    "the null stream is waited for": lambda driver, *_: driver.cuStreamSynchronize(0),
    "the null stream is asked": lambda driver, *_: driver.cuStreamQuery(0),
    "a stream of another context is asked": lambda driver, _, other: driver.cuStreamQuery(other),
}


@pytest.mark.parametrize("name", QUICK)
def test_call_that_native_code_answers_is_refused_where_an_unusable_context_is_current_again(
    begun: Driver, name: str
) -> None:
    first, second = (begun.cuDevicePrimaryCtxRetain(WORD, device) for device in (0, 1))
    memory = begun.cuMemAlloc_v2(WORD, SIZE)
    failing(begun, begun.cuStreamCreate(WORD, 1)).open()
    assert code(begun.cuCtxSynchronize) == ILLEGAL_ADDRESS
    begun.cuCtxSetCurrent(second)
    other, far = begun.cuStreamCreate(WORD, 1), begun.cuMemAlloc_v2(WORD, SIZE)
    for _ in range(3):
        QUICK[name](begun, far, other)
        begun.cuStreamSynchronize(0)
    begun.cuCtxSetCurrent(first)
    assert code(QUICK[name], begun, memory, other) == ILLEGAL_ADDRESS
    begun.cuCtxSetCurrent(second)
    QUICK[name](begun, far, other)


IMMEDIATE: dict[str, Callable[[Driver, int, int], object]] = {
    "a copy": lambda driver, memory, host: driver.cuMemcpyHtoD_v2(memory, host, 64),
    "a copy of a batch": lambda driver, memory, host: driver.cuMemcpyBatchAsync_v2(
        words(memory),
        words(host),
        words(64),
        1,
        ctypes.byref(struct("CUmemcpyAttributes_v1", srcAccessOrder=1)),
        words(0),
        1,
        driver.cuStreamCreate(WORD, 1),
    ),
}


@pytest.mark.parametrize("name", IMMEDIATE)
def test_failed_work_of_a_call_that_makes_it_at_once_is_the_answer_of_every_later_one(
    begun: Driver, name: str
) -> None:
    memory, host = begun.cuMemAlloc_v2(WORD, SIZE), mapped()
    LIBC.mprotect(host, SIZE, 0)
    assert code(IMMEDIATE[name], begun, memory, host) == ILLEGAL_ADDRESS
    assert code(begun.cuMemcpyDtoD_v2, memory, memory + 64, 8) == ILLEGAL_ADDRESS
    assert code(begun.cuCtxSynchronize) == ILLEGAL_ADDRESS


@pytest.mark.parametrize("right", [0, 1])
def test_copy_to_mapped_memory_without_access_is_refused_and_the_context_stays_usable(
    begun: Driver, right: int
) -> None:
    launched = (ctypes.c_int32 * 8)(1, 0, 1, 0)
    size = begun.cuMemGetAllocationGranularity(WORD, launched, 0)
    address = begun.cuMemAddressReserve(WORD, size, 0, 0, 0)
    begun.cuMemMap(address, size, 0, begun.cuMemCreate(WORD, size, launched, 0), 0)
    own, stream = begun.cuMemAlloc_v2(WORD, 64), begun.cuStreamCreate(WORD, 1)
    for each in (3, right):
        begun.cuMemSetAccess(address, size, (ctypes.c_int32 * 3)(1, 0, each), 1)
    for _ in range(3):
        assert code(begun.cuMemcpyAsync, address, own, 64, stream) == INVALID_VALUE
        assert code(begun.cuMemcpy, address, own, 64) == INVALID_VALUE
        if not right:
            assert code(begun.cuMemcpy, own, address, 64) == INVALID_VALUE
    begun.cuMemAlloc_v2(WORD, 64)
    begun.cuCtxSynchronize()
