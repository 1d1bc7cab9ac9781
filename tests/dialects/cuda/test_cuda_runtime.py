"""CUDA's runtime for a program in C, in both versions: devices, memory, copies, streams, errors."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from dialects.cuda import driver as cuda
from dialects.cuda.driver import INT, WORD, Driver, code
from helpers.prepared import run_python
from helpers.promises import Node
from peerlane import dialects
from peerlane.dialects._shared.c_layout import Layout
from peerlane.dialects._shared.c_names import declarations_of
from peerlane.support.libraries import folder

SIZE = 1 << 16
H2H, H2D, D2H, D2D, DEFAULT = range(5)
INVALID_DIRECTION = 21


@pytest.fixture(params=["libcudart.so.12", "libcudart.so.13"])
def runtime(node: Node, request: pytest.FixtureRequest) -> Iterator[Driver]:
    """A runtime of a new process, on a node of two devices."""
    node()
    dialects.begin_anew("cuda")
    yield Driver(request.param)
    dialects.begin_anew("cuda")


def numbers(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, SIZE, np.uint8)


def text(runtime: Driver, name: str, number: int) -> str:
    function = getattr(runtime.library, name)
    function.restype = ctypes.c_char_p
    return str(function(number).decode())


def test_first_call_makes_the_context_of_the_first_device(runtime: Driver) -> None:
    driver = Driver()
    runtime.cudaDriverGetVersion(INT)
    assert code(driver.cuCtxGetCurrent, WORD) == cuda.NOT_INITIALIZED
    assert runtime.cudaGetDeviceCount(INT) == 2
    assert driver.cuCtxGetCurrent(WORD) == 0
    runtime.cudaFree(0)
    assert driver.cuCtxGetDevice(INT) == 0
    assert driver.cuDevicePrimaryCtxGetState(0, INT, INT)[1] == 1


def test_call_that_asks_for_devices_starts_the_driver(runtime: Driver) -> None:
    driver = Driver()
    runtime.cudaDriverGetVersion(INT)
    assert code(driver.cuDeviceGetCount, INT) == 3
    count = runtime.cudaGetDeviceCount(INT)
    assert driver.cuDeviceGetCount(INT) == count
    assert code(driver.cuCtxSynchronize) == 201  # no context was made


def test_versions_are_those_of_the_library_and_the_driver(runtime: Driver) -> None:
    expected = 12090 if runtime.library._name.endswith(".12") else 13050
    assert runtime.cudaRuntimeGetVersion(INT) == expected
    assert runtime.cudaDriverGetVersion(INT) == 13050


def test_each_thread_has_the_device_that_it_chose(runtime: Driver) -> None:
    seen = []

    def other() -> None:
        seen.append(runtime.cudaGetDevice(INT))
        runtime.cudaMalloc(WORD, 64)
        seen.append(runtime.cudaGetDevice(INT))

    runtime.cudaSetDevice(1)
    thread = threading.Thread(target=other)
    thread.start()
    thread.join(30)
    assert (seen, runtime.cudaGetDevice(INT)) == ([0, 0], 1)
    assert Driver().cuCtxGetDevice(INT) == 1
    assert code(runtime.cudaSetDevice, 2) == cuda.INVALID_DEVICE


def test_context_that_the_program_created_is_the_runtimes(runtime: Driver) -> None:
    driver = Driver()
    driver.cuInit(0)
    created = driver.cuCtxCreate_v2(WORD, 0, 1)
    assert runtime.cudaGetDevice(INT) == 1
    stream = runtime.cudaStreamCreate(WORD)
    assert driver.cuStreamGetCtx(stream, WORD) == created


@pytest.mark.parametrize("is_async", [False, True])
def test_bytes_go_to_a_device_and_back(runtime: Driver, is_async: bool) -> None:
    data, back = numbers(1), np.zeros(SIZE, np.uint8)
    memory, other = runtime.cudaMalloc(WORD, SIZE), runtime.cudaMalloc(WORD, SIZE)
    stream = runtime.cudaStreamCreate(WORD)
    copy, behind = (runtime.cudaMemcpyAsync, [stream]) if is_async else (runtime.cudaMemcpy, [])
    copy(memory, data.ctypes.data, SIZE, H2D, *behind)
    copy(other, memory, SIZE, D2D, *behind)
    copy(back.ctypes.data, other, SIZE, DEFAULT, *behind)
    runtime.cudaStreamSynchronize(stream)
    assert np.array_equal(back, data)
    assert code(copy, other, memory, SIZE, 5, *behind) == INVALID_DIRECTION
    assert code(copy, other, memory, SIZE + 1, D2D, *behind) == cuda.INVALID_VALUE


def test_rows_and_boxes_keep_their_pitches(runtime: Driver) -> None:
    data = numbers(2)[: 8 * 48].reshape(8, 48)
    memory, pitch = runtime.cudaMallocPitch(WORD, WORD, 48, 8)
    assert pitch % 256 == 0
    runtime.cudaMemset2D(memory, pitch, 7, 48, 8)
    runtime.cudaMemcpy2D(memory, pitch, data.ctypes.data, 48, 40, 8, H2D)
    back = np.zeros((8, 64), np.uint8)
    runtime.cudaMemcpy2D(back.ctypes.data, 64, memory, pitch, 48, 8, D2H)
    assert np.array_equal(back[:, :40], data[:, :40])
    assert (back[:, 40:48] == 7).all()
    assert not back[:, 48:].any()
    box = (ctypes.c_uint64 * 20)()
    box[1:4], box[4:8] = [8, 1, 0], [memory, pitch, 48, 8]  # x, y, z of the source, its memory
    box[9:12], box[12:16] = [0, 0, 0], [back.ctypes.data, 64, 64, 8]
    box[16:19], box[19] = [16, 4, 1], D2H
    back[:] = 0
    runtime.cudaMemcpy3D(box)
    assert np.array_equal(back[:4, :16], data[1:5, 8:24])
    assert not back[4:].any()


def test_copy_between_two_devices_follows_the_work_of_both(runtime: Driver) -> None:
    first = runtime.cudaMalloc(WORD, SIZE)
    stream = runtime.cudaStreamCreate(WORD)
    runtime.cudaSetDevice(1)
    second = runtime.cudaMalloc(WORD, SIZE)
    runtime.cudaMemsetAsync(first, 3, SIZE, stream)
    runtime.cudaMemcpyPeer(second, 1, first, 0, SIZE)
    back = np.zeros(SIZE, np.uint8)
    runtime.cudaMemcpy(back.ctypes.data, second, SIZE, D2H)
    assert (back == 3).all()
    assert code(runtime.cudaMemcpyPeer, second, 2, first, 0, SIZE) == cuda.INVALID_DEVICE


def test_peer_access_has_the_runtimes_codes(runtime: Driver) -> None:
    assert runtime.cudaDeviceCanAccessPeer(INT, 0, 1) == 1
    runtime.cudaDeviceEnablePeerAccess(1, 0)
    assert code(runtime.cudaDeviceEnablePeerAccess, 1, 0) == cuda.PEER_ALREADY_ENABLED
    assert code(runtime.cudaDeviceEnablePeerAccess, 0, 0) == cuda.INVALID_DEVICE
    runtime.cudaDeviceDisablePeerAccess(1)
    assert code(runtime.cudaDeviceDisablePeerAccess, 1) == cuda.PEER_NOT_ENABLED


def test_events_order_streams_and_measure(runtime: Driver) -> None:
    first, second = runtime.cudaStreamCreate(WORD), runtime.cudaStreamCreateWithFlags(WORD, 1)
    begin, end = runtime.cudaEventCreate(WORD), runtime.cudaEventCreate(WORD)
    memory = runtime.cudaMalloc(WORD, SIZE)
    runtime.cudaEventRecord(begin, first)
    runtime.cudaMemsetAsync(memory, 4, SIZE, first)
    runtime.cudaEventRecord(end, first)
    runtime.cudaStreamWaitEvent(second, end, 0)
    back = np.zeros(SIZE, np.uint8)
    runtime.cudaMemcpyAsync(back.ctypes.data, memory, SIZE, D2H, second)
    runtime.cudaStreamSynchronize(second)
    assert (back == 4).all()
    assert runtime.cudaEventElapsedTime(ctypes.c_float, begin, end) >= 0
    for each in (begin, end):
        runtime.cudaEventDestroy(each)
    runtime.cudaStreamDestroy(first)
    assert code(runtime.cudaStreamSynchronize, first) == cuda.INVALID_HANDLE


def test_last_error_stays_until_it_is_taken_and_is_the_threads(runtime: Driver) -> None:
    assert runtime.library.cudaGetLastError() == 0
    assert code(runtime.cudaMemcpy, 0, 0, 1, 9) == INVALID_DIRECTION
    runtime.cudaFree(runtime.cudaMalloc(WORD, 64))
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(runtime.library.cudaGetLastError()))
    thread.start()
    thread.join(30)
    assert seen == [0]
    assert [runtime.library.cudaPeekAtLastError() for _ in range(2)] == [INVALID_DIRECTION] * 2
    assert [runtime.library.cudaGetLastError() for _ in range(2)] == [INVALID_DIRECTION, 0]


def test_work_that_is_not_over_is_the_last_error(runtime: Driver) -> None:
    stream = runtime.cudaStreamCreateWithFlags(WORD, 1)
    driver = Driver()
    word = runtime.cudaMalloc(WORD, 8)
    runtime.cudaMemset(word, 0, 8)
    runtime.cudaDeviceSynchronize()  # no other stream comes behind the fill
    driver.cuStreamWaitValue32_v2(stream, word, 1, 1)
    event = runtime.cudaEventCreate(WORD)
    runtime.cudaEventRecord(event, stream)
    for query, handle in [(runtime.cudaStreamQuery, stream), (runtime.cudaEventQuery, event)] * 2:
        assert code(query, handle) == cuda.NOT_READY
        assert runtime.library.cudaPeekAtLastError() == cuda.NOT_READY
        assert runtime.library.cudaGetLastError() == cuda.NOT_READY
        assert runtime.library.cudaPeekAtLastError() == 0
    assert code(runtime.cudaMemcpy, 0, 0, 1, 9) == INVALID_DIRECTION
    assert runtime.library.cudaPeekAtLastError() == INVALID_DIRECTION
    assert code(runtime.cudaEventQuery, event) == cuda.NOT_READY
    assert [runtime.library.cudaGetLastError() for _ in range(2)] == [cuda.NOT_READY, 0]
    other = runtime.cudaStreamCreateWithFlags(WORD, 1)
    driver.cuStreamWriteValue32_v2(other, word, 1, 0)
    runtime.cudaStreamSynchronize(stream)


def test_codes_have_names_and_texts(runtime: Driver) -> None:
    assert text(runtime, "cudaGetErrorName", 1) == "cudaErrorInvalidValue"
    assert text(runtime, "cudaGetErrorString", 1) == "invalid value"
    assert text(runtime, "cudaGetErrorName", 7777) == "unrecognized error code"


def test_reset_ends_all_of_a_device_and_the_next_call_starts_it_anew(runtime: Driver) -> None:
    memory, stream = runtime.cudaMalloc(WORD, 64), runtime.cudaStreamCreate(WORD)
    runtime.cudaDeviceReset()
    assert code(runtime.cudaStreamSynchronize, stream) == cuda.INVALID_HANDLE
    assert code(runtime.cudaFree, memory) == cuda.INVALID_VALUE
    runtime.cudaFree(runtime.cudaMalloc(WORD, 64))


def test_empty_allocations_are_null(runtime: Driver) -> None:
    assert [runtime.cudaMalloc(WORD, 0), runtime.cudaMallocHost(WORD, 0)] == [0, 0]
    runtime.cudaFree(0)
    runtime.cudaFreeHost(0)


def test_addresses_are_distinguished(runtime: Driver) -> None:
    def kind(address: int) -> tuple[int, int]:
        content = (ctypes.c_int * 32)()
        runtime.cudaPointerGetAttributes(ctypes.addressof(content), address)
        return content[0], content[1]

    plain = np.zeros(64, np.uint8)
    assert kind(plain.ctypes.data)[0] == 0
    assert kind(runtime.cudaMallocHost(WORD, 64)) == (1, 0)
    assert kind(runtime.cudaMallocManaged(WORD, 64, 1)) == (3, 0)
    runtime.cudaSetDevice(1)
    assert kind(runtime.cudaMalloc(WORD, 64)) == (2, 1)


def test_pool_gives_memory_in_the_order_of_streams(runtime: Driver) -> None:
    pool, stream = runtime.cudaDeviceGetDefaultMemPool(WORD, 0), runtime.cudaStreamCreate(WORD)
    memory = runtime.cudaMallocAsync(WORD, SIZE, stream)
    used = ctypes.c_uint64()
    runtime.cudaMemPoolGetAttribute(pool, 7, ctypes.addressof(used))  # cudaMemPoolAttrUsedMemCurrent
    assert used.value == SIZE
    runtime.cudaMemsetAsync(memory, 6, SIZE, stream)
    back = np.zeros(SIZE, np.uint8)
    runtime.cudaMemcpyAsync(back.ctypes.data, memory, SIZE, D2H, stream)
    runtime.cudaFreeAsync(memory, stream)
    runtime.cudaStreamSynchronize(stream)
    assert (back == 6).all()


def test_properties_are_those_of_the_device(runtime: Driver) -> None:
    properties = ctypes.create_string_buffer(2048)
    name = "cudaGetDeviceProperties"
    getattr(runtime, name)(properties, 1)
    driver = Driver()
    driver.cuInit(0)
    uuid = (ctypes.c_uint8 * 16)()
    driver.cuDeviceGetUuid_v2(uuid, 1)
    assert properties.raw[256:272] == bytes(uuid)
    total = int.from_bytes(properties.raw[288:296], "little")
    assert total == driver.cuDeviceTotalMem_v2(WORD, 1)


def test_properties_name_the_nodes_of_memory(node: Node) -> None:
    node()
    dialects.begin_anew("cuda")
    properties = Layout(declarations_of("cuda", "cudart")).struct("cudaDeviceProp")()
    Driver("libcudart.so.13").cudaGetDeviceProperties(ctypes.byref(properties), 0)
    assert (properties.deviceNumaId, properties.hostNumaId) == (-1, 0)


def test_variant_for_threads_uses_the_threads_own_stream(runtime: Driver) -> None:
    word, memory = runtime.cudaMalloc(WORD, 8), runtime.cudaMalloc(WORD, SIZE)
    runtime.cudaMemset(word, 0, 8)
    runtime.cudaDeviceSynchronize()  # no other stream comes behind the fill
    blocked = runtime.cudaStreamCreateWithFlags(WORD, 1)
    driver = Driver()
    driver.cuStreamWaitValue32_v2_ptsz(0, word, 1, 1)
    assert code(runtime.cudaStreamQuery_ptsz, 0) == cuda.NOT_READY
    driver.cuStreamWriteValue32_v2(blocked, word, 1, 0)
    runtime.cudaMemsetAsync_ptsz(memory, 1, SIZE, 0)
    runtime.cudaStreamSynchronize_ptsz(0)
    assert runtime.library.cudaStreamQuery_ptsz(None) == 0


def test_properties_of_12_have_the_name_of_its_headers(node: Node) -> None:
    node()
    dialects.begin_anew("cuda")
    properties, same = (ctypes.create_string_buffer(2048) for _ in range(2))
    runtime = Driver("libcudart.so.12")
    runtime.cudaGetDeviceProperties_v2(properties, 1)
    runtime.cudaGetDeviceProperties(same, 1)
    assert properties.raw == same.raw != bytes(2048)


def test_lookup_of_the_runtime_has_its_version_and_the_variant_of_its_caller(runtime: Driver) -> None:
    driver = Driver().library
    is_12 = runtime.library._name.endswith(".12")

    def address(name: str) -> int:
        return ctypes.cast(getattr(driver, name), ctypes.c_void_p).value or 0

    entry = runtime.cudaGetDriverEntryPoint(b"cuMemcpyBatchAsync", WORD, 0, None)
    assert entry == address("cuMemcpyBatchAsync" if is_12 else "cuMemcpyBatchAsync_v2")
    of_thread = runtime.cudaGetDriverEntryPoint_ptsz(b"cuMemcpyAsync", WORD, 0, None)
    assert of_thread == address("cuMemcpyAsync_ptsz")


def test_function_of_the_driver_is_looked_up_by_name(runtime: Driver) -> None:
    entry, status = runtime.cudaGetDriverEntryPointByVersion(b"cuMemAlloc", WORD, 12000, 0, INT)
    expected = ctypes.cast(Driver().library.cuMemAlloc_v2, ctypes.c_void_p).value
    assert (entry, status) == (expected, 0)


def test_host_function_runs_between_the_operations_of_its_stream(runtime: Driver) -> None:
    seen = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda word: seen.append(word))
    stream = runtime.cudaStreamCreate(WORD)
    runtime.cudaLaunchHostFunc(stream, function, 42)
    runtime.cudaStreamSynchronize(stream)
    assert seen == [42]


@pytest.mark.parametrize("header", ["cudart", "cudart12"])
def test_every_function_of_the_header_links(header: str) -> None:
    version = 12 if header == "cudart12" else 13
    library = Driver(f"libcudart.so.{version}").library
    assert not [name for name in declarations_of("cuda", header).functions if not hasattr(library, name)]


def test_texts_of_failures_name_the_runtimes_calls(
    runtime: Driver, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_LOG_FILE", "stderr")
    assert code(runtime.cudaFree, 4096) == cuda.INVALID_VALUE
    errors = capfd.readouterr().err
    assert "cudaFree returned cudaErrorInvalidValue" in errors
    assert "cudaMalloc" in errors
    assert "cuMem" not in errors


FORKED = """
import ctypes, os, sys
runtime = ctypes.CDLL(sys.argv[1])
assert runtime.cudaFree(None) == 0
child = os.fork()
if child == 0:
    codes = [runtime.cudaGetLastError(), runtime.cudaFree(None)]
    codes += [runtime.cudaPeekAtLastError(), runtime.cudaGetLastError(), runtime.cudaGetLastError()]
    print(codes, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.parametrize("name", ["libcudart.so.12", "libcudart.so.13"])
def test_last_error_of_a_forked_child_is_its_own(name: str) -> None:
    done = run_python(["-c", FORKED, f"{folder()}/{name}"], timeout=60)
    assert (done.returncode, done.stdout) == (0, "[0, 3, 3, 3, 0]\n"), done.stderr
