"""What ``docs/facts/cuda.md`` says of calls and codes, row by row: a driver or a runtime that nobody called yet."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest

from dialects.cuda.driver import INT, WORD, CudaError, Driver, begin, struct
from helpers.prepared import run_python
from helpers.promises import Node
from peerlane import dialects
from peerlane.support.libraries import folder

SIZE = 1 << 16
LIBC = ctypes.CDLL(None)
LIBC.mmap.restype = ctypes.c_void_p
INVALID_VALUE, INVALID_PITCH, NO_DEVICE, INVALID_DEVICE, INVALID_CONTEXT = 1, 12, 100, 101, 201
UNSUPPORTED_LIMIT = 215
INVALID_HANDLE, NOT_FOUND, NOT_READY = 400, 500, 600
ENABLED, NOT_ENABLED, DESTROYED, REGISTERED, NOT_REGISTERED = 704, 705, 709, 712, 713
FILE_DESCRIPTOR = 1
LARGEST_PITCH = (1 << 31) - 1


class World(NamedTuple):
    """The driver and the runtime 13, in the primary context of device 0."""

    driver: Driver
    runtime: Driver


def answer(call: Callable[[], object]) -> int:
    """Return the code of a call, which may succeed."""
    try:
        call()
    except CudaError as error:
        return error.code
    return 0


def host(nbytes: int = SIZE) -> int:
    address = LIBC.mmap(None, ctypes.c_size_t(nbytes), 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    return int(address)


def registered(world: World) -> int:
    address = host()
    world.driver.cuMemHostRegister_v2(address, SIZE, 0)
    return address


def pinned(world: World) -> int:
    return int(world.driver.cuMemHostAlloc(WORD, 64, 0))


def context_of(world: World, memory: int) -> int:
    kept = ctypes.c_uint64()
    world.driver.cuPointerGetAttribute(ctypes.byref(kept), 1, memory)
    return kept.value


def allocated_in(world: World, context: int, name: str, *words: int) -> object:
    """Compare the context of memory with the one in which it was allocated."""
    memory = within(world.driver, context, lambda: getattr(world.driver, name)(WORD, *words))
    if context_of(world, memory) != context:
        raise CudaError(name, -1)
    return memory


def exported(world: World, handles: int) -> object:
    """Export memory that was created with types of handles."""
    properties = (ctypes.c_int32 * 8)(1, handles, 1)
    driver = world.driver
    size = driver.cuMemGetAllocationGranularity(WORD, properties, 0)
    memory = driver.cuMemCreate(WORD, size, properties, 0)
    descriptor = driver.cuMemExportToShareableHandle(INT, memory, FILE_DESCRIPTOR, 0)
    os.close(descriptor)
    return descriptor


def own_context(driver: Driver, device: int = 0) -> int:
    """Return a context that the program made; that of before is current again."""
    context = driver.cuCtxCreate_v2(WORD, 0, device)
    driver.cuCtxPopCurrent_v2(WORD)
    return int(context)


def within(driver: Driver, context: int, call: Callable[[], Any]) -> Any:
    """Return what a call returns with a context pushed."""
    driver.cuCtxPushCurrent_v2(context)
    try:
        return call()
    finally:
        driver.cuCtxPopCurrent_v2(WORD)


def recorded_elsewhere(world: World, context: int) -> object:
    driver = world.driver
    event = within(driver, context, lambda: driver.cuEventCreate(WORD, 0))
    return driver.cuEventRecord(event, driver.cuStreamCreate(WORD, 1))


def waited_elsewhere(world: World, context: int) -> object:
    driver = world.driver
    event = within(driver, context, lambda: driver.cuEventCreate(WORD, 0))
    stream = within(driver, context, lambda: driver.cuStreamCreate(WORD, 1))
    driver.cuEventRecord(event, stream)
    driver.cuEventSynchronize(event)
    driver.cuEventQuery(event)
    return driver.cuStreamWaitEvent(driver.cuStreamCreate(WORD, 1), event, 0)


def elapsed(world: World, flags: int, *, records: bool) -> object:
    driver = world.driver
    events = [driver.cuEventCreate(WORD, flags) for _ in range(2)]
    for each in events if records else ():
        driver.cuEventRecord(each, 0)
        driver.cuEventSynchronize(each)
    return driver.cuEventElapsedTime_v2(ctypes.c_float, *events)


def destroyed(world: World) -> object:
    context = own_context(world.driver)
    world.driver.cuCtxPushCurrent_v2(context)
    world.driver.cuCtxPushCurrent_v2(world.driver.cuDevicePrimaryCtxRetain(WORD, 1))
    world.driver.cuCtxDestroy_v2(context)
    world.driver.cuCtxPopCurrent_v2(WORD)
    return world.driver.cuMemAlloc_v2(WORD, 64)


def rows(world: World, name: str, dpitch: int, spitch: int, width: int = 64) -> object:
    memory = [world.driver.cuMemAlloc_v2(WORD, SIZE) for _ in range(2)]
    if name == "driver":
        kinds = {"srcMemoryType": 2, "dstMemoryType": 2, "WidthInBytes": width, "Height": 2}
        ends = {"srcDevice": memory[1], "dstDevice": memory[0], "srcPitch": spitch, "dstPitch": dpitch}
        return world.driver.cuMemcpy2D_v2(ctypes.byref(struct("CUDA_MEMCPY2D_v2", **kinds, **ends)))
    behind = (0,) if name.endswith("Async") else ()
    return getattr(world.runtime, name)(memory[0], dpitch, memory[1], spitch, width, 2, 3, *behind)


def freed_twice(world: World) -> object:
    memory = world.driver.cuMemAlloc_v2(WORD, 64)
    world.driver.cuMemFree_v2(memory)
    return world.driver.cuMemFree_v2(memory)


def opened(world: World, flags: int) -> object:
    handle = struct("CUipcMemHandle_v1")
    world.driver.cuIpcGetMemHandle(ctypes.byref(handle), world.driver.cuMemAlloc_v2(WORD, 64))
    function = world.driver.library.cuIpcOpenMemHandle_v2
    function.argtypes = [ctypes.c_void_p, type(handle), ctypes.c_uint]
    code = function(ctypes.byref(ctypes.c_uint64()), handle, flags)
    if code:
        raise CudaError("cuIpcOpenMemHandle", code)
    return code


def pool_handle(world: World) -> object:
    memory = world.driver.cuMemAllocAsync(WORD, 64, 0)
    return world.driver.cuIpcGetMemHandle(ctypes.byref(struct("CUipcMemHandle_v1")), memory)


def peer(world: World, times: int) -> None:
    context = world.driver.cuDevicePrimaryCtxRetain(WORD, 1)
    for _ in range(times):
        world.driver.cuCtxEnablePeerAccess(context, 0)


def reset(world: World, releases: int) -> None:
    world.driver.cuDevicePrimaryCtxRetain(WORD, 0)  # the second time
    world.driver.cuDevicePrimaryCtxReset_v2(0)
    for _ in range(releases):
        world.driver.cuDevicePrimaryCtxRelease_v2(0)


def used_after_reset(world: World) -> object:
    context = retained(world)
    world.driver.cuDevicePrimaryCtxReset_v2(0)
    world.driver.cuCtxSetCurrent(context)
    world.driver.cuMemAlloc_v2(WORD, 64)
    return [world.driver.cuDevicePrimaryCtxRelease_v2(0) for _ in range(2)]


def memory_of_another(world: World, use: Callable[[int], object]) -> object:
    """Use memory that was allocated in a context which the program then destroyed."""
    context = own_context(world.driver)
    memory = within(world.driver, context, lambda: world.driver.cuMemAlloc_v2(WORD, 64))
    world.driver.cuMemcpyDtoH_v2(host(), memory, 64)
    world.driver.cuCtxDestroy_v2(context)
    return use(memory)


def retained(world: World) -> int:
    return int(world.driver.cuDevicePrimaryCtxRetain(WORD, 0))


ROWS: dict[str, tuple[Callable[[World], object], int]] = {
    "1.1 name of no code": (lambda w: w.driver.cuGetErrorName(12345, WORD), INVALID_VALUE),
    "2.1 cuInit again": (lambda w: w.driver.cuInit(0), 0),
    "2.1 cuInit with flags": (lambda w: w.driver.cuInit(1), INVALID_VALUE),
    "2.2 current context of none": (
        lambda w: (w.driver.cuCtxSetCurrent(0), w.driver.cuCtxGetCurrent(WORD)),
        0,
    ),
    "2.2 call without a context": (
        lambda w: (w.driver.cuCtxSetCurrent(0), w.driver.cuMemAlloc_v2(WORD, 64)),
        INVALID_CONTEXT,
    ),
    "2.2 a release too many": (
        lambda w: [w.driver.cuDevicePrimaryCtxRelease_v2(1) for _ in range(1)],
        INVALID_CONTEXT,
    ),
    "2.2 free of what a destroyed context had": (
        lambda w: memory_of_another(w, w.driver.cuMemFree_v2),
        INVALID_VALUE,
    ),
    "2.2 range of what a destroyed context had": (
        lambda w: memory_of_another(w, lambda at: w.driver.cuMemGetAddressRange_v2(WORD, WORD, at)),
        NOT_FOUND,
    ),
    "2.2 releases after a reset": (lambda w: reset(w, 2), 0),
    "2.2 a release too many after a reset": (lambda w: reset(w, 3), INVALID_CONTEXT),
    "2.2 context that was reset": (used_after_reset, 0),
    "2.2 flags of an active context": (lambda w: w.driver.cuDevicePrimaryCtxSetFlags_v2(0, 4), 0),
    "2.2 limit beyond all": (lambda w: w.driver.cuCtxGetLimit(WORD, 77), UNSUPPORTED_LIMIT),
    "2.2 limit of the runtime beyond all": (
        lambda w: w.runtime.cudaDeviceSetLimit(77, 1),
        UNSUPPORTED_LIMIT,
    ),
    "2.2 pop of an empty stack": (
        lambda w: [w.driver.cuCtxPopCurrent_v2(WORD) for _ in range(2)],
        INVALID_CONTEXT,
    ),
    "2.2 context that another call destroyed": (destroyed, DESTROYED),
    "2.2 context of memory": (lambda w: allocated_in(w, own_context(w.driver), "cuMemAlloc_v2", 64), 0),
    "2.2 context of memory of the host": (
        lambda w: allocated_in(w, own_context(w.driver), "cuMemHostAlloc", 64, 0),
        0,
    ),
    "2.2 context of memory of the primary context": (
        lambda w: allocated_in(w, retained(w), "cuMemAlloc_v2", 64),
        0,
    ),
    "2.3 attribute beyond all": (lambda w: w.driver.cuDeviceGetAttribute(INT, 5000, 0), INVALID_VALUE),
    "2.3 device beyond all": (lambda w: w.driver.cuDeviceGet(INT, 3), INVALID_DEVICE),
    "3.1 context of the default stream of none": (
        lambda w: (w.driver.cuCtxSetCurrent(0), w.driver.cuStreamGetCtx(0, WORD)),
        INVALID_CONTEXT,
    ),
    "3.2 flags of a stream": (lambda w: w.driver.cuStreamCreate(WORD, 8), INVALID_VALUE),
    "3.2 priority out of range": (lambda w: w.driver.cuStreamCreateWithPriority(WORD, 0, -99), 0),
    "3.2 stream that was destroyed": (
        lambda w: [w.driver.cuStreamDestroy_v2(each) for each in [w.driver.cuStreamCreate(WORD, 0)] * 2],
        INVALID_HANDLE,
    ),
    "3.3 interprocess event with times": (lambda w: w.driver.cuEventCreate(WORD, 4), INVALID_VALUE),
    "3.3 record on a stream of another device": (
        lambda w: recorded_elsewhere(w, w.driver.cuDevicePrimaryCtxRetain(WORD, 1)),
        INVALID_HANDLE,
    ),
    "3.3 record on a stream of another context": (
        lambda w: recorded_elsewhere(w, own_context(w.driver)),
        INVALID_HANDLE,
    ),
    "3.3 wait for an event of another device": (
        lambda w: waited_elsewhere(w, w.driver.cuDevicePrimaryCtxRetain(WORD, 1)),
        0,
    ),
    "3.3 wait for an event of another context": (lambda w: waited_elsewhere(w, own_context(w.driver)), 0),
    "3.3 external record outside of a capture": (
        lambda w: w.driver.cuEventRecordWithFlags(
            w.driver.cuEventCreate(WORD, 0), w.driver.cuStreamCreate(WORD, 1), 1
        ),
        INVALID_VALUE,
    ),
    "3.3 external wait outside of a capture": (
        lambda w: w.driver.cuStreamWaitEvent(
            w.driver.cuStreamCreate(WORD, 1), w.driver.cuEventCreate(WORD, 0), 1
        ),
        INVALID_VALUE,
    ),
    "3.3 query of what was never recorded": (
        lambda w: w.driver.cuEventQuery(w.driver.cuEventCreate(WORD, 0)),
        0,
    ),
    "3.3 time of what was never recorded": (lambda w: elapsed(w, 0, records=False), INVALID_HANDLE),
    "3.3 time without times": (lambda w: elapsed(w, 2, records=True), INVALID_HANDLE),
    "3.3 time": (lambda w: elapsed(w, 0, records=True), 0),
    "3.5 wait for a word of managed memory": (
        lambda w: w.driver.cuStreamWaitValue32_v2(0, w.driver.cuMemAllocManaged(WORD, 64, 1), 0, 0),
        INVALID_VALUE,
    ),
    "3.5 write of a word of managed memory": (
        lambda w: w.driver.cuStreamWriteValue32_v2(0, w.driver.cuMemAllocManaged(WORD, 64, 1), 0, 0),
        INVALID_VALUE,
    ),
    "4.1 no bytes of the driver": (lambda w: w.driver.cuMemAlloc_v2(WORD, 0), INVALID_VALUE),
    "4.1 no bytes of the runtime": (lambda w: w.runtime.cudaMalloc(WORD, 0), 0),
    "4.1 free of NULL": (lambda w: (w.driver.cuMemFree_v2(0), w.runtime.cudaFree(0)), 0),
    "4.1 free twice": (freed_twice, INVALID_VALUE),
    "4.1 free of pinned memory": (lambda w: w.driver.cuMemFree_v2(pinned(w)), INVALID_VALUE),
    "4.1 free of pinned memory in the order of a stream": (
        lambda w: w.driver.cuMemFreeAsync(pinned(w), 0),
        INVALID_VALUE,
    ),
    "4.1 free of managed memory": (
        lambda w: w.driver.cuMemFree_v2(w.driver.cuMemAllocManaged(WORD, 64, 1)),
        0,
    ),
    "4.1 free of pinned memory of the runtime": (lambda w: w.runtime.cudaFree(pinned(w)), INVALID_VALUE),
    "4.1 range of no allocation": (
        lambda w: w.driver.cuMemGetAddressRange_v2(WORD, WORD, host()),
        NOT_FOUND,
    ),
    "4.1 range without outputs": (
        lambda w: w.driver.cuMemGetAddressRange_v2(0, 0, w.driver.cuMemAlloc_v2(WORD, 64)),
        0,
    ),
    "4.2 pitch of the driver": (lambda w: rows(w, "driver", 32, 64), INVALID_VALUE),
    "4.2 largest pitch of the driver": (
        lambda w: rows(w, "driver", LARGEST_PITCH + 1, 64),
        INVALID_VALUE,
    ),
    "4.2 destination's pitch": (lambda w: rows(w, "cudaMemcpy2D", 32, 64), INVALID_PITCH),
    "4.2 source's pitch": (lambda w: rows(w, "cudaMemcpy2DAsync", 64, 32), INVALID_PITCH),
    "4.2 largest pitch": (lambda w: rows(w, "cudaMemcpy2D", LARGEST_PITCH + 1, 64), INVALID_PITCH),
    "4.2 rows": (lambda w: rows(w, "cudaMemcpy2D", 64, 64), 0),
    "4.2 no rows": (lambda w: rows(w, "cudaMemcpy2D", 64, 64, width=0), 0),
    "4.4 access twice": (lambda w: peer(w, 2), ENABLED),
    "4.4 end of access that is none": (
        lambda w: w.driver.cuCtxDisablePeerAccess(w.driver.cuDevicePrimaryCtxRetain(WORD, 1)),
        NOT_ENABLED,
    ),
    "4.4 access to itself": (lambda w: w.driver.cuCtxEnablePeerAccess(retained(w), 0), INVALID_CONTEXT),
    "4.4 access to itself of the runtime": (
        lambda w: w.runtime.cudaDeviceEnablePeerAccess(0, 0),
        INVALID_DEVICE,
    ),
    "4.4 end of access to itself of the runtime": (
        lambda w: w.runtime.cudaDeviceDisablePeerAccess(0),
        INVALID_DEVICE,
    ),
    "4.4 access with flags": (lambda w: w.runtime.cudaDeviceEnablePeerAccess(1, 1), INVALID_VALUE),
    "4.4 attribute of one device twice": (
        lambda w: w.driver.cuDeviceGetP2PAttribute(INT, 2, 1, 1),
        INVALID_DEVICE,
    ),
    "4.5 no bytes in the order of a stream": (lambda w: w.driver.cuMemAllocAsync(WORD, 0, 0), 0),
    "4.5 plain free of a pool's memory": (
        lambda w: w.driver.cuMemFree_v2(w.driver.cuMemAllocAsync(WORD, 64, 0)),
        0,
    ),
    "4.6 descriptor of memory that was created with one": (lambda w: exported(w, FILE_DESCRIPTOR), 0),
    "4.6 descriptor of memory that was created without one": (lambda w: exported(w, 0), INVALID_VALUE),
    "4.6 addresses without a context": (
        lambda w: (w.driver.cuCtxSetCurrent(0), w.driver.cuMemAddressReserve(WORD, 1 << 21, 0, 0, 0)),
        0,
    ),
    "4.7 flags of host memory": (lambda w: w.driver.cuMemHostAlloc(WORD, 64, 8), INVALID_VALUE),
    "4.7 registration twice": (
        lambda w: w.driver.cuMemHostRegister_v2(registered(w), SIZE, 0),
        REGISTERED,
    ),
    "4.7 registration of a part": (
        lambda w: w.driver.cuMemHostRegister_v2(registered(w) + 4096, 4096, 0),
        REGISTERED,
    ),
    "4.7 registration of a part of the runtime": (
        lambda w: w.runtime.cudaHostRegister(registered(w) - 0, 4096, 0),
        REGISTERED,
    ),
    "4.7 end of a registration inside": (
        lambda w: w.driver.cuMemHostUnregister(registered(w) + 64),
        INVALID_VALUE,
    ),
    "4.7 free of a device's memory": (
        lambda w: w.driver.cuMemFreeHost(w.driver.cuMemAlloc_v2(WORD, 64)),
        INVALID_VALUE,
    ),
    "4.7 free of managed memory": (
        lambda w: w.runtime.cudaFreeHost(w.driver.cuMemAllocManaged(WORD, 64, 1)),
        INVALID_VALUE,
    ),
    "4.7 free": (lambda w: (w.driver.cuMemFreeHost(pinned(w)), w.runtime.cudaFreeHost(pinned(w))), 0),
    "4.7 device's address of a device's memory": (
        lambda w: w.driver.cuMemHostGetDevicePointer_v2(WORD, w.driver.cuMemAlloc_v2(WORD, 64), 0),
        INVALID_VALUE,
    ),
    "4.7 flags of registered memory": (
        lambda w: w.driver.cuMemHostGetFlags(INT, registered(w)),
        INVALID_VALUE,
    ),
    "4.7 flags": (lambda w: w.driver.cuMemHostGetFlags(INT, pinned(w)), 0),
    "4.8 no managed bytes": (lambda w: w.driver.cuMemAllocManaged(WORD, 0, 1), INVALID_VALUE),
    "4.8 flags of managed memory": (lambda w: w.driver.cuMemAllocManaged(WORD, 64, 4), INVALID_VALUE),
    "4.8 attachment of memory that is not managed": (
        lambda w: w.driver.cuStreamAttachMemAsync(0, w.driver.cuMemAlloc_v2(WORD, 64), 0, 1),
        INVALID_VALUE,
    ),
    "4.8 attachment": (
        lambda w: w.driver.cuStreamAttachMemAsync(0, w.driver.cuMemAllocManaged(WORD, 64, 1), 0, 1),
        0,
    ),
    "4.9 handle of a pool's memory": (pool_handle, INVALID_VALUE),
    "4.9 opening without a flag": (lambda w: opened(w, 0), INVALID_VALUE),
    "4.9 opening in the same process": (lambda w: opened(w, 1), INVALID_CONTEXT),
    "4.10 attribute of no memory": (
        lambda w: w.driver.cuPointerGetAttribute(ctypes.byref(ctypes.c_uint32()), 2, host()),
        INVALID_VALUE,
    ),
    "5 version above the driver's": (
        lambda w: w.driver.cuGetProcAddress_v2(b"cuInit", WORD, 99000, 0, INT),
        INVALID_VALUE,
    ),
    "5 name that is none": (lambda w: w.driver.cuGetProcAddress_v2(b"cuQqq", WORD, 12000, 0, INT), 0),
}


@pytest.mark.parametrize("section", dict.fromkeys(name.split()[0] for name in ROWS))
def test_calls_have_the_codes_of_the_facts(node: Node, section: str) -> None:
    wrong = []
    for name, (call, expected) in ROWS.items():
        if name.split()[0] != section:
            continue
        node("devices=3")
        dialects.begin_anew("cuda")
        seen = answer(partial(call, World(begin(Driver()), Driver("libcudart.so.13"))))
        if seen != expected:
            wrong.append(f"{name}: {seen} instead of {expected}")
    dialects.begin_anew("cuda")
    assert not wrong


FORKED = """
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1])
number = ctypes.c_uint64()
if sys.argv[1].endswith("libcuda.so.1"):
    calls = [lambda: library.cuInit(0), lambda: library.cuDeviceGetCount(ctypes.byref(number))]
else:
    calls = [lambda: library.cudaGetDeviceCount(ctypes.byref(number)), lambda: library.cudaFree(None)]
before = calls[0]() if sys.argv[2] == "begun" else 0
reader, writer = os.pipe()
child = os.fork()
if not child:
    os.write(writer, bytes([each() for each in calls]))
    os._exit(0)
os.waitpid(child, 0)
print(before, *os.read(reader, 8), calls[0]())
"""


@pytest.mark.parametrize("name", ["libcuda.so.1", "libcudart.so.12", "libcudart.so.13"])
@pytest.mark.parametrize(("state", "reported"), [("begun", "0 3 3 0"), ("new", "0 0 0 0")])
@pytest.mark.any_schedule
def test_child_of_a_process_that_began_has_no_driver(name: str, state: str, reported: str) -> None:
    done = run_python(["-c", FORKED, f"{folder()}/{name}", state], timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, reported), done.stderr
