"""CUDA's driver for a program in C: devices, contexts, memory, copies, streams and events."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from dialects.cuda import driver as cuda
from dialects.cuda.driver import INT, WORD, Driver, begin, code
from helpers.peers import Peer, peer
from helpers.promises import Node
from peerlane import dialects
from peerlane.dialects._shared.c_names import declarations_of
from peerlane.dialects._shared.message import last_failure
from peerlane.dialects.cuda import c_library
from peerlane.dialects.cuda.manifest import LIBRARIES
from peerlane.dialects.cuda.state import calls, enums
from peerlane.dialects.gpu import ipc
from peerlane.support.libraries import folder

SIZE = 1 << 20


@pytest.fixture
def driver(node: Node) -> Iterator[Driver]:
    """The driver of a new process, before cuInit, on a node of two devices."""
    node()
    dialects.begin_anew("cuda")
    yield Driver()
    dialects.begin_anew("cuda")


@pytest.fixture
def begun(driver: Driver) -> Driver:
    return begin(driver)


def bytes_at(driver: Driver, address: int, nbytes: int) -> np.ndarray:
    host = np.zeros(nbytes, np.uint8)
    driver.cuMemcpyDtoH_v2(host.ctypes.data, address, nbytes)
    return host


def numbers(seed: int, nbytes: int = SIZE) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


def test_calls_before_init_are_refused_but_those_about_the_driver(driver: Driver) -> None:
    assert driver.cuDriverGetVersion(INT) == 13050
    assert code(driver.cuDeviceGetCount, INT) == cuda.NOT_INITIALIZED
    driver.cuInit(0)
    assert driver.cuDeviceGetCount(INT) == 2


def test_calls_without_a_context_are_refused(driver: Driver) -> None:
    driver.cuInit(0)
    assert code(driver.cuMemAlloc_v2, WORD, 64) == cuda.INVALID_CONTEXT
    assert code(driver.cuStreamCreate, WORD, 0) == cuda.INVALID_CONTEXT
    assert driver.cuCtxGetCurrent(WORD) == 0


def test_primary_context_ends_with_its_last_release(driver: Driver) -> None:
    driver.cuInit(0)
    context = driver.cuDevicePrimaryCtxRetain(WORD, 0)
    assert driver.cuDevicePrimaryCtxRetain(WORD, 0) == context
    driver.cuCtxSetCurrent(context)
    memory = driver.cuMemAlloc_v2(WORD, 64)
    driver.cuDevicePrimaryCtxRelease_v2(0)
    assert driver.cuDevicePrimaryCtxGetState(0, INT, INT)[1] == 1
    assert driver.cuMemGetAddressRange_v2(WORD, WORD, memory) == [memory, 64]
    driver.cuDevicePrimaryCtxRelease_v2(0)
    assert driver.cuDevicePrimaryCtxGetState(0, INT, INT)[1] == 0
    assert code(driver.cuMemAlloc_v2, WORD, 64) == cuda.CONTEXT_IS_DESTROYED
    assert code(driver.cuDevicePrimaryCtxRelease_v2, 0) == cuda.INVALID_CONTEXT


def test_stack_of_contexts_gives_each_thread_its_device(begun: Driver) -> None:
    second = begun.cuCtxCreate_v2(WORD, 0, 1)
    assert (begun.cuCtxGetCurrent(WORD), begun.cuCtxGetDevice(INT)) == (second, 1)
    assert begun.cuCtxPopCurrent_v2(WORD) == second
    assert begun.cuCtxGetDevice(INT) == 0
    begun.cuCtxDestroy_v2(second)
    assert code(begun.cuCtxPushCurrent_v2, second) == cuda.INVALID_CONTEXT


def test_flags_of_a_context_are_its_own(begun: Driver) -> None:
    begun.cuCtxSetFlags(4)
    created = begun.cuCtxCreate_v2(WORD, 1, 0)
    assert begun.cuCtxGetFlags(INT) == 1
    begun.cuCtxSetFlags(2)
    assert begun.cuCtxGetFlags(INT) == 2
    assert begun.cuDevicePrimaryCtxGetState(0, INT, INT)[0] == 4
    begun.cuCtxDestroy_v2(created)
    assert begun.cuCtxGetFlags(INT) == 4


@pytest.mark.parametrize("call", ["cuGetErrorName", "cuGetErrorString"])
def test_text_of_an_unknown_code_is_null(driver: Driver, call: str) -> None:
    text = ctypes.c_uint64(7)
    assert code(getattr(driver, call), 12345, ctypes.byref(text)) == cuda.INVALID_VALUE
    assert text.value == 0


def test_access_to_a_device_out_of_reach_is_not_enabled(node: Node) -> None:
    node("profile=rtx4090-2")
    dialects.begin_anew("cuda")
    driver = begin(Driver())
    other = driver.cuDevicePrimaryCtxRetain(WORD, 1)
    assert code(driver.cuCtxEnablePeerAccess, other, 0) == cuda.PEER_NOT_SUPPORTED
    assert code(driver.cuCtxDisablePeerAccess, other) == cuda.PEER_NOT_ENABLED
    assert code(Driver("libcudart.so.13").cudaDeviceDisablePeerAccess, 1) == cuda.PEER_NOT_ENABLED
    dialects.begin_anew("cuda")


def test_context_that_another_thread_ended_stays_current(begun: Driver) -> None:
    context = begun.cuCtxCreate_v2(WORD, 0, 1)
    for _ in range(2):  # the second one is answered without Python
        assert begun.cuCtxGetCurrent(WORD) == context
    thread = threading.Thread(target=begun.cuCtxDestroy_v2, args=(context,))
    thread.start()
    thread.join()
    for _ in range(2):
        assert begun.cuCtxGetCurrent(WORD) == context
        assert code(begun.cuMemAlloc_v2, WORD, 64) == cuda.CONTEXT_IS_DESTROYED
    assert begun.cuCtxPopCurrent_v2(WORD) == context
    assert begun.cuCtxGetDevice(INT) == 0


def test_memory_of_the_host_ends_with_the_context_that_allocated_it(begun: Driver) -> None:
    context = begun.cuCtxCreate_v2(WORD, 0, 1)
    pinned = begun.cuMemAllocHost_v2(WORD, 64)
    managed = begun.cuMemAllocManaged(WORD, 64, 1)
    begun.cuCtxPopCurrent_v2(WORD)
    others = begun.cuMemAllocHost_v2(WORD, 64)
    assert begun.cuMemHostGetFlags(INT, pinned) == begun.cuMemHostGetFlags(INT, others)
    begun.cuCtxDestroy_v2(context)
    assert code(begun.cuMemFreeHost, pinned) == code(begun.cuMemFree_v2, managed) == cuda.INVALID_VALUE
    begun.cuMemFreeHost(others)


def test_context_with_parameters_that_no_virtual_device_has_is_refused(begun: Driver) -> None:
    parameters = (ctypes.c_uint64 * 3)()
    assert begun.cuCtxCreate_v4(WORD, parameters, 0, 1) == begun.cuCtxGetCurrent(WORD)
    parameters[0], parameters[1] = 4096, 1
    assert code(begun.cuCtxCreate_v4, WORD, parameters, 0, 1) == cuda.NOT_SUPPORTED


def test_bytes_go_to_a_device_between_devices_and_back(begun: Driver) -> None:
    data = numbers(1)
    first = begun.cuMemAlloc_v2(WORD, SIZE)
    begun.cuMemcpyHtoD_v2(first, data.ctypes.data, SIZE)
    begun.cuCtxSetCurrent(begun.cuDevicePrimaryCtxRetain(WORD, 1))
    second = begun.cuMemAlloc_v2(WORD, SIZE)
    begun.cuMemcpy(second, first, SIZE)
    assert np.array_equal(bytes_at(begun, second, SIZE), data)
    begun.cuMemFree_v2(second)
    begun.cuMemFree_v2(first)
    assert code(begun.cuMemFree_v2, first) == cuda.INVALID_VALUE


@pytest.mark.parametrize("call", ["cuMemcpy", "cuMemcpyPeer"])
def test_copy_between_devices_follows_the_work_of_both(begun: Driver, call: str) -> None:
    """A stream of the device that is not current still fills the source when the copy is called."""
    contexts = [begun.cuCtxGetCurrent(WORD), begun.cuDevicePrimaryCtxRetain(WORD, 1)]
    target, gate = begun.cuMemAlloc_v2(WORD, SIZE), begun.cuMemAlloc_v2(WORD, 4)
    begun.cuMemsetD32_v2(gate, 0, 1)
    begun.cuCtxSynchronize()
    for _ in range(2):  # from the second one on, native code answers
        begun.cuMemcpy(target, target + 8, 8)
    begun.cuCtxSetCurrent(contexts[1])
    source, stream = begun.cuMemAlloc_v2(WORD, SIZE), begun.cuStreamCreate(WORD, 0)
    begun.cuMemsetD8_v2(source, 1, SIZE)
    begun.cuCtxSynchronize()
    begun.cuStreamWaitValue32_v2(stream, gate, 1, 1)
    begun.cuMemsetD8Async(source, 7, SIZE, stream)
    begun.cuCtxSetCurrent(contexts[0])
    for _ in range(2):
        begun.cuMemcpy(target, target + 8, 8)
    opener = begun.cuStreamCreate(WORD, 1)
    begun.cuStreamWriteValue32_v2(opener, gate, 1, 0)
    words = (target, source) if call == "cuMemcpy" else (target, contexts[0], source, contexts[1])
    getattr(begun, call)(*words, SIZE)
    assert set(bytes_at(begun, target, SIZE)) == {7}


def test_copies_that_native_code_answers_heed_a_change_of_context(begun: Driver) -> None:
    data, memory = numbers(4, 64), begun.cuMemAlloc_v2(WORD, 64)
    stream = begun.cuStreamCreate(WORD, 1)
    for _ in range(3):
        begun.cuMemcpyHtoD_v2(memory, data.ctypes.data, 64)
        begun.cuMemcpyHtoDAsync_v2(memory, data.ctypes.data, 64, stream)
    begun.cuStreamSynchronize(stream)
    assert np.array_equal(bytes_at(begun, memory, 64), data)
    assert code(begun.cuMemcpyHtoD_v2, memory, data.ctypes.data, 128) == cuda.INVALID_VALUE
    begun.cuStreamDestroy_v2(stream)
    assert code(begun.cuMemcpyHtoDAsync_v2, memory, data.ctypes.data, 64, stream) == cuda.INVALID_HANDLE
    begun.cuCtxSetCurrent(0)
    assert begun.cuCtxGetCurrent(WORD) == 0
    assert code(begun.cuMemcpyHtoD_v2, memory, data.ctypes.data, 64) == cuda.INVALID_CONTEXT


def test_rows_are_copied_with_their_pitches(begun: Driver) -> None:
    memory, pitch = begun.cuMemAllocPitch_v2(WORD, WORD, 100, 5, 4)
    data = numbers(2, 500)
    described = (ctypes.c_uint64 * 16)()
    described[:] = [0, 0, 1, data.ctypes.data, 0, 0, 100, 0, 0, 2, 0, memory, 0, pitch, 100, 5]
    begun.cuMemcpy2D_v2(ctypes.byref(described))
    assert np.array_equal(
        bytes_at(begun, memory, pitch * 4 + 100)[: pitch * 4].reshape(4, pitch)[:, :100],
        data.reshape(5, 100)[:4],
    )


def test_events_order_two_streams_and_measure(begun: Driver) -> None:
    one, other = (begun.cuStreamCreate(WORD, 1) for _ in range(2))
    memory, event = begun.cuMemAlloc_v2(WORD, SIZE), begun.cuEventCreate(WORD, 0)
    last = begun.cuEventCreate(WORD, 0)
    begun.cuMemsetD8Async(memory, 3, SIZE, one)
    begun.cuEventRecord(event, one)
    begun.cuStreamWaitEvent(other, event, 0)
    begun.cuMemsetD8Async(memory, 4, SIZE, other)
    begun.cuEventRecord(last, other)
    begun.cuStreamSynchronize(other)
    assert begun.cuEventQuery(last) == []
    assert begun.cuEventElapsedTime_v2(ctypes.c_float, event, last) >= 0
    assert set(bytes_at(begun, memory, SIZE)) == {4}
    begun.cuEventDestroy_v2(event)
    assert code(begun.cuEventQuery, event) == cuda.INVALID_HANDLE


def test_variant_of_a_copy_uses_the_threads_own_stream(begun: Driver) -> None:
    """The legacy stream waits for a blocking one that a word holds; the thread's own stream does not."""
    memory, gate = begun.cuMemAlloc_v2(WORD, 64), begun.cuMemAlloc_v2(WORD, 4)
    begun.cuMemsetD32_v2(gate, 0, 1)
    begun.cuCtxSynchronize()
    held = begun.cuStreamCreate(WORD, 1)
    begun.cuStreamWaitValue32_v2(held, gate, 1, 1)
    begun.cuMemsetD8Async_ptsz(memory, 5, 64, 0)
    begun.cuStreamSynchronize_ptsz(0)
    assert code(begun.cuStreamQuery, held) == cuda.NOT_READY
    begun.cuMemsetD32Async(gate, 1, 1, begun.cuStreamCreate(WORD, 1))
    begun.cuStreamSynchronize(held)


def test_lookup_gives_the_newest_function_of_a_version(driver: Driver) -> None:
    def looked_up(name: bytes, version: int, flags: int = 0) -> tuple[int | None, int]:
        address, status = driver.cuGetProcAddress_v2(name, ctypes.c_void_p, version, flags, INT)
        return address, status

    def exported(name: str) -> tuple[int | None, int]:
        return ctypes.cast(getattr(driver.library, name), ctypes.c_void_p).value, 0

    assert looked_up(b"cuMemAlloc", 13000) == exported("cuMemAlloc_v2")
    assert looked_up(b"cuMemAlloc", 2000) == exported("cuMemAlloc")
    assert looked_up(b"cuStreamGetCtx", 12000) == exported("cuStreamGetCtx")
    assert looked_up(b"cuStreamGetCtx", 13000) == exported("cuStreamGetCtx_v2")
    assert looked_up(b"cuMemcpyAsync", 13000, 2) == exported("cuMemcpyAsync_ptsz")
    assert looked_up(b"cuMemPoolCreate", 11000) == (None, 2)
    assert looked_up(b"cuNothing", 13000) == (None, 1)


def test_every_function_of_the_header_links_and_those_without_a_body_are_not_supported(begun: Driver) -> None:
    """The library calls each with the code of an unknown call; those with a body are tested elsewhere."""
    declared = declarations_of("cuda")
    missing = [name for name in declared.functions if not hasattr(begun.library, name)]
    assert not missing
    refused = [name for name in declared.functions if name not in calls.table and "_pt" not in name]
    wrong = []
    library = c_library.library("cuda")
    for name in refused:
        words = [8] * len(declared.functions[name].parameters)
        answer = library._call(name)(*words)
        if (answer[-1] if isinstance(answer, tuple) else answer) != cuda.NOT_SUPPORTED:
            wrong.append(name)
    assert not wrong


@pytest.mark.any_schedule
@pytest.mark.parametrize("header", LIBRARIES.values())
def test_every_function_of_a_header_has_an_entry(header: str) -> None:
    library = c_library.library(header)
    for name in library.declarations.functions:
        assert callable(library.entry(name))


@pytest.mark.parametrize(
    ("shown", "count"), [("1", 1), ("1,0", 2), ("0,0", 0), ("0,9,1", 1), ("", 0), ("-1", 0)]
)
def test_visible_devices_are_those_of_the_variable(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, shown: str, count: int
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    if count:
        driver.cuInit(0)
        assert driver.cuDeviceGetCount(INT) == count
    else:
        assert code(driver.cuInit, 0) == cuda.NO_DEVICE


def location(kind: int, number: int) -> ctypes.Array[ctypes.c_int32]:
    return (ctypes.c_int32 * 2)(kind, number)


def test_pool_gives_memory_in_the_order_of_streams_and_access_to_devices(begun: Driver) -> None:
    pool = begun.cuDeviceGetDefaultMemPool(WORD, 0)
    assert begun.cuDeviceGetMemPool(WORD, 0) == pool
    stream = begun.cuStreamCreate(WORD, 1)
    memory = begun.cuMemAllocAsync(WORD, SIZE, stream)
    begun.cuMemsetD8Async(memory, 6, SIZE, stream)
    begun.cuStreamSynchronize(stream)
    assert set(bytes_at(begun, memory, SIZE)) == {6}
    used = ctypes.c_uint64()
    begun.cuMemPoolGetAttribute(pool, 7, ctypes.byref(used))
    assert used.value == SIZE
    assert begun.cuMemPoolGetAccess(INT, pool, location(1, 1)) == 0
    begun.cuMemPoolSetAccess(pool, (ctypes.c_int32 * 3)(1, 1, 3), 1)
    assert begun.cuMemPoolGetAccess(INT, pool, location(1, 1)) == 3
    begun.cuMemFreeAsync(memory, stream)
    begun.cuStreamSynchronize(stream)
    begun.cuMemPoolGetAttribute(pool, 7, ctypes.byref(used))
    assert used.value == 0


def properties(device: int) -> ctypes.Array[ctypes.c_int32]:
    """Pinned memory of a device, to be shared by file descriptor: a CUmemAllocationProp."""
    return (ctypes.c_int32 * 8)(1, 1, 1, device)


def test_physical_memory_is_mapped_granted_access_and_shared_by_descriptor(begun: Driver) -> None:
    size = begun.cuMemGetAllocationGranularity(WORD, properties(0), 0)
    handle = begun.cuMemCreate(WORD, size, properties(0), 0)
    fd = ctypes.c_int()
    begun.cuMemExportToShareableHandle(ctypes.byref(fd), handle, 1, 0)
    again = begun.cuMemImportFromShareableHandle(WORD, fd.value, 1)
    addresses = [begun.cuMemAddressReserve(WORD, size, 0, 0, 0) for _ in range(2)]
    for address, each in zip(addresses, (handle, again), strict=True):
        begun.cuMemMap(address, size, 0, each, 0)
        begun.cuMemSetAccess(address, size, (ctypes.c_int32 * 3)(1, 0, 3), 1)
    begun.cuMemsetD8_v2(addresses[0], 9, size)
    assert set(bytes_at(begun, addresses[1], 4096)) == {9}
    assert begun.cuMemGetAccess(WORD, location(1, 1), addresses[0]) == 0
    for address, each in zip(addresses, (handle, again), strict=True):
        begun.cuMemUnmap(address, size)
        begun.cuMemAddressFree(address, size)
        begun.cuMemRelease(each)
    os.close(fd.value)


def test_access_of_an_address_in_mapped_memory_is_that_of_the_current_device(begun: Driver) -> None:
    size = begun.cuMemGetAllocationGranularity(WORD, properties(0), 0)
    address = begun.cuMemAddressReserve(WORD, size, 0, 0, 0)
    begun.cuMemMap(address, size, 0, begun.cuMemCreate(WORD, size, properties(0), 0), 0)
    other = begun.cuDevicePrimaryCtxRetain(WORD, 1)
    begun.cuMemSetAccess(address, size, (ctypes.c_int32 * 3)(1, 1, 1), 1)
    for right in (3, 1, 0):
        begun.cuMemSetAccess(address, size, (ctypes.c_int32 * 3)(1, 0, right), 1)
        assert begun.cuPointerGetAttribute(INT, 16, address + 64) == right
        begun.cuCtxPushCurrent_v2(other)
        assert begun.cuPointerGetAttribute(INT, 16, address) == 1
        begun.cuCtxPopCurrent_v2(WORD)


@pytest.mark.parametrize("is_of_driver", [True, False])
def test_handle_of_memory_is_opened_by_another_process(node: Node, is_of_driver: bool) -> None:
    spec = f"name=cuda-{os.getpid()},devices=2"
    (device, _) = node(spec)
    with peer(spec) as other, device.allocate(SIZE) as buffer:
        driver = begin(Driver())
        _share(driver, other, driver.cuMemAlloc_v2(WORD, SIZE) if is_of_driver else buffer.address)


def test_handle_names_an_allocation_of_the_python_api_until_its_end(node: Node) -> None:
    (device, *_) = node()
    driver, handles = begin(Driver()), [(ctypes.c_uint8 * 64)() for _ in range(3)]
    with device.allocate(SIZE) as buffer:
        address = buffer.address
        for each in handles[:2]:
            driver.cuIpcGetMemHandle(ctypes.byref(each), address)
    assert bytes(handles[0]) == bytes(handles[1])
    assert code(driver.cuIpcGetMemHandle, ctypes.byref(handles[2]), address) == cuda.INVALID_VALUE
    pool = driver.cuDeviceGetDefaultMemPool(WORD, 0)
    driver.cuMemPoolSetAttribute(pool, 4, ctypes.byref(ctypes.c_uint64(1 << 40)))
    kept = driver.cuMemAllocAsync(WORD, SIZE, 0)
    driver.cuMemFreeAsync(kept, 0)
    assert code(driver.cuIpcGetMemHandle, ctypes.byref(handles[2]), kept) == cuda.INVALID_VALUE
    size = driver.cuMemGetAllocationGranularity(WORD, properties(0), 0)
    mapped = driver.cuMemAddressReserve(WORD, size, 0, 0, 0)
    driver.cuMemMap(mapped, size, 0, driver.cuMemCreate(WORD, size, properties(0), 0), 0)
    assert code(driver.cuIpcGetMemHandle, ctypes.byref(handles[2]), mapped) == cuda.INVALID_VALUE


def test_memory_that_queued_work_uses_can_be_shared(begun: Driver) -> None:
    stream, memory = begun.cuStreamCreate(WORD, 1), begun.cuMemAlloc_v2(WORD, SIZE)
    begun.cuLaunchHostFunc(stream, ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p), 200_000)
    begun.cuMemsetD8Async(memory, 7, SIZE, stream)
    begun.cuIpcGetMemHandle(ctypes.byref((ctypes.c_uint8 * 64)()), memory)
    begun.cuStreamSynchronize(stream)
    result = np.zeros(SIZE, "u1")
    begun.cuMemcpyDtoH_v2(result.ctypes.data, memory, SIZE)
    assert (result == 7).all()


def test_memory_whose_queued_work_does_not_end_cannot_be_shared(
    begun: Driver, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ipc, "_MOST_SECONDS", 0.05)
    monkeypatch.setenv("CUDA_LOG_FILE", "stderr")
    stream, memory = begun.cuStreamCreate(WORD, 1), begun.cuMemAlloc_v2(WORD, SIZE)
    word = begun.cuMemHostAlloc(WORD, 4, 0)
    ctypes.memset(word, 0, 4)
    begun.cuStreamWaitValue32_v2(stream, word, 1, 0)
    begun.cuMemsetD8Async(memory, 7, SIZE, stream)
    handle = ctypes.byref((ctypes.c_uint8 * 64)())
    assert code(begun.cuIpcGetMemHandle, handle, memory) == 401
    waited = f"the call waited 0.05 s for queued work, and that of stream {stream:#x} of device 0"
    assert waited in " ".join(capfd.readouterr().err.split())
    ctypes.memset(word, 1, 4)
    begun.cuStreamSynchronize(stream)
    begun.cuIpcGetMemHandle(handle, memory)


def _share(driver: Driver, other: Peer, memory: int) -> None:
    data = numbers(3)
    driver.cuMemcpyHtoD_v2(memory, data.ctypes.data, SIZE)
    handle = (ctypes.c_uint8 * 64)()
    driver.cuIpcGetMemHandle(ctypes.byref(handle), memory)
    other.run(
        f"""
import ctypes
lib = ctypes.CDLL({f"{folder()}/libcuda.so.1"!r})
class Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_uint8 * 64)]
codes, context, memory = [lib.cuInit(0)], ctypes.c_uint64(), ctypes.c_uint64()
codes.append(lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1))
codes.append(lib.cuCtxSetCurrent(context))
handle = Handle.from_buffer_copy(bytes.fromhex({bytes(handle).hex()!r}))
codes.append(lib.cuIpcOpenMemHandle_v2(ctypes.byref(memory), handle, 1))
host = (ctypes.c_uint8 * {SIZE})()
codes.append(lib.cuMemcpyDtoH_v2(host, memory, {SIZE}))
codes.append(lib.cuMemsetD8_v2(memory, 8, {SIZE}))
codes.append(lib.cuCtxSynchronize())
codes.append(lib.cuIpcCloseMemHandle(memory))
seen = bytes(host)
"""
    )
    assert other.run("result = codes") == [0] * 8
    assert other.run("import hashlib; result = hashlib.sha256(seen).hexdigest()") == sha256(data).hexdigest()
    assert set(bytes_at(driver, memory, SIZE)) == {8}


def test_attributes_distinguish_memory_of_a_device_from_that_of_the_host(begun: Driver) -> None:
    device, host = begun.cuMemAlloc_v2(WORD, SIZE), begun.cuMemHostAlloc(WORD, SIZE, 0)
    plain = np.zeros(8, np.uint8)

    def attribute(number: int, address: int) -> int:
        value = ctypes.c_uint32()
        begun.cuPointerGetAttribute(ctypes.byref(value), number, address)
        return value.value

    assert (attribute(2, device + 5), attribute(2, host)) == (2, 1)
    assert code(attribute, 2, plain.ctypes.data) == cuda.INVALID_VALUE
    kinds, values = (ctypes.c_int32 * 2)(2, 9), [ctypes.c_uint64(7), ctypes.c_int32(7)]
    targets = (ctypes.c_uint64 * 2)(*map(ctypes.addressof, values))
    begun.cuPointerGetAttributes(2, kinds, targets, plain.ctypes.data)
    assert [each.value for each in values] == [0, -2]


def test_mapped_memory_is_shared_by_its_descriptor_and_not_by_an_ipc_handle(begun: Driver) -> None:
    memory = begun.cuMemAlloc_v2(WORD, SIZE)
    properties = (ctypes.c_int32 * 8)(1, 1, 1)
    size = begun.cuMemGetAllocationGranularity(WORD, properties, 0)
    mapped = begun.cuMemAddressReserve(WORD, size, 0, 0, 0)
    begun.cuMemMap(mapped, size, 0, begun.cuMemCreate(WORD, size, properties, 0), 0)
    for address, has_ipc_handle, handle_types in ((memory, 1, 0), (mapped + 5, 0, 1)):
        value = ctypes.c_int(-1)  # a boolean fills all of it
        begun.cuPointerGetAttribute(ctypes.byref(value), 10, address)
        assert value.value == has_ipc_handle
        assert begun.cuPointerGetAttribute(INT, 14, address) == handle_types


def test_managed_memory_has_the_type_of_devices(begun: Driver) -> None:
    memory = begun.cuMemAllocManaged(WORD, SIZE, 1)
    assert begun.cuPointerGetAttribute(INT, 2, memory) == 2
    assert begun.cuPointerGetAttribute(INT, 8, memory) == 1


def test_address_of_a_value_that_is_null_is_refused(begun: Driver) -> None:
    memory = begun.cuMemAlloc_v2(WORD, 64)
    attributes, values = (ctypes.c_int * 2)(2, 9), (ctypes.c_void_p * 2)(0, 0)
    assert code(begun.cuPointerGetAttributes, 2, attributes, values, memory) == cuda.INVALID_VALUE


def test_host_function_runs_between_the_operations_of_its_stream(begun: Driver) -> None:
    stream, memory = begun.cuStreamCreate(WORD, 1), begun.cuMemHostAlloc(WORD, 64, 0)
    seen: list[int] = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
        lambda word: seen.append(ctypes.c_uint8.from_address(word or 0).value)
    )
    begun.cuMemsetD8Async(memory, 4, 64, stream)
    begun.cuLaunchHostFunc(stream, function, memory)
    begun.cuMemsetD8Async(memory, 5, 64, stream)
    begun.cuStreamSynchronize(stream)
    assert seen == [4]


def test_call_of_a_host_function_is_not_permitted(begun: Driver) -> None:
    stream, memory = begun.cuStreamCreate(WORD, 1), begun.cuMemAlloc_v2(WORD, 64)
    seen: list[int] = []

    def call(*_: object) -> None:
        seen.append(code(begun.cuMemsetD8Async, memory, 1, 64, stream))
        seen.append(begun.library.cuGetErrorName(1, ctypes.byref(ctypes.c_char_p())))

    begun.cuLaunchHostFunc(stream, function := ctypes.CFUNCTYPE(None, ctypes.c_void_p)(call), 0)
    kinds = ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p
    begun.cuStreamAddCallback(stream, callback := ctypes.CFUNCTYPE(None, *kinds)(call), 0, 0)
    begun.cuStreamSynchronize(stream)
    assert seen == [800, 0] * 2
    assert function
    assert callback


def test_copy_between_pinned_memories_is_over_on_return(begun: Driver) -> None:
    stream, memory = begun.cuStreamCreate(WORD, 1), begun.cuMemHostAlloc(WORD, 64, 0)
    ctypes.memset(memory, 7, 32)
    for _ in range(2):  # the second time native code might answer
        begun.cuLaunchHostFunc(stream, ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p), 50_000)
        ctypes.memset(memory + 32, 0, 32)
        begun.cuMemcpyAsync(memory + 32, memory, 32, stream)
        assert ctypes.string_at(memory + 32, 32) == bytes([7]) * 32
        assert begun.library.cuStreamQuery(ctypes.c_uint64(stream)) == 0


def test_plain_free_of_the_memory_of_a_pool_does_not_wait(begun: Driver) -> None:
    stream, word = begun.cuStreamCreate(WORD, 1), begun.cuMemAlloc_v2(WORD, 8)
    begun.cuMemsetD8_v2(word, 0, 8)
    begun.cuCtxSynchronize()
    memory = begun.cuMemAllocAsync(WORD, 64, stream)
    begun.cuStreamSynchronize(stream)
    begun.cuStreamWaitValue32_v2(stream, word, 1, 1)
    begun.cuMemFree_v2(memory)
    assert code(begun.cuStreamQuery, stream) == cuda.NOT_READY
    other = begun.cuStreamCreate(WORD, 1)
    begun.cuStreamWriteValue32_v2(other, word, 1, 0)
    begun.cuStreamSynchronize(stream)


def test_failed_call_is_explained_where_the_variable_points(
    begun: Driver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUDA_LOG_FILE", str(tmp_path / "log"))
    assert code(begun.cuMemFree_v2, 4096) == cuda.INVALID_VALUE
    text = (tmp_path / "log").read_text()
    assert text.startswith("peerlane: cuMemFree returned CUDA_ERROR_INVALID_VALUE (1).")
    assert "Cause: nothing that CUDA allocated begins there" in text


def test_explanation_shows_addresses_with_their_allocations(begun: Driver) -> None:
    memory = begun.cuMemAlloc_v2(WORD, 1024)
    assert code(begun.cuMemcpyDtoD_v2, memory, memory + 512, 1024) == cuda.INVALID_VALUE
    text = last_failure("cuda")
    assert f"dstDevice={memory:#x} (start of allocation" in text
    assert f"srcDevice={memory + 512:#x} (byte 512 of allocation" in text and "ByteCount=1024" in text


def test_no_byte_of_the_host_is_registered_twice(driver: Driver) -> None:
    begin(driver)
    memory = np.zeros(240, np.uint8)
    first = memory.ctypes.data
    driver.cuMemHostRegister_v2(first, 160, 3)
    for start, size in ((first, 160), (first + 80, 160), (first + 10, 20)):
        assert code(driver.cuMemHostRegister_v2, start, size, 3) == 712
    driver.cuMemHostRegister_v2(first + 160, 80, 3)
    assert code(driver.cuMemHostUnregister, first + 80) == cuda.INVALID_VALUE
    driver.cuMemHostUnregister(first)
    assert code(driver.cuMemHostUnregister, first) == 713
    driver.cuMemHostUnregister(first + 160)


def test_attributes_of_an_address_have_its_mapping_and_what_may_be_done_with_it(driver: Driver) -> None:
    begin(driver)
    memory = driver.cuMemAlloc_v2(WORD, 4096)
    host = np.zeros(4096, np.uint8)
    driver.cuMemHostRegister_v2(host.ctypes.data, 4096, 8)
    for number, kind, own, registered in (
        (15, ctypes.c_bool, 0, 0),
        (16, ctypes.c_uint, 3, 1),
        (18, WORD, 4096, 4096),
        (19, WORD, memory, host.ctypes.data),
    ):
        assert driver.cuPointerGetAttribute(kind, number, memory + 100) == own
        assert driver.cuPointerGetAttribute(kind, number, host.ctypes.data + 100) == registered
    driver.cuMemHostUnregister(host.ctypes.data)


@pytest.mark.parametrize("bits", [16, 32])
def test_fill_of_elements_at_no_multiple_of_their_size_is_refused(begun: Driver, bits: int) -> None:
    memory, stream, width = begun.cuMemAlloc_v2(WORD, 4096), begun.cuStreamCreate(WORD, 0), bits // 8
    calls = {name: getattr(begun, f"cuMemset{name.format(bits)}") for name in ("D{}_v2", "D{}Async")}
    rows = {name: getattr(begun, f"cuMemset{name.format(bits)}") for name in ("D2D{}_v2", "D2D{}Async")}
    begun.cuMemsetD8_v2(memory, 3, 4096)
    for name, fill in calls.items():
        on = (stream,) if "Async" in name else ()
        assert code(fill, memory + width // 2, 7, 4, *on) == cuda.INVALID_VALUE
    for name, fill in rows.items():
        on = (stream,) if "Async" in name else ()
        assert code(fill, memory + width // 2, 64, 7, 4, 2, *on) == cuda.INVALID_VALUE
        assert code(fill, memory, 63, 7, 4, 2, *on) == cuda.INVALID_VALUE
    assert (bytes_at(begun, memory, 4096) == 3).all()
    rows["D2D{}Async"](memory, 63, 0, 4, 1, stream)  # the pitch of one row is not used
    begun.cuStreamSynchronize(stream)
    assert not bytes_at(begun, memory, 4 * width).any()


def test_limit_of_a_context_is_what_the_program_set(begun: Driver) -> None:
    heap = enums["CUlimit"]["CU_LIMIT_MALLOC_HEAP_SIZE"]
    before = begun.cuCtxGetLimit(WORD, heap)
    begun.cuCtxSetLimit(heap, 2 * before)
    assert begun.cuCtxGetLimit(WORD, heap) == 2 * before
    begun.cuCtxSetCurrent(begun.cuDevicePrimaryCtxRetain(WORD, 1))
    assert begun.cuCtxGetLimit(WORD, heap) == before
