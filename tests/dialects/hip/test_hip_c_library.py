"""``libamdhip64.so``: HIP for C programs, for ctypes, and for programs that were linked to the vendor's library."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers import hip_c_calls, hip_memory
from peerlane.c_abi import directory
from peerlane.dialects.hip import explain, hip
from peerlane.dialects.hip.binding import facts
from peerlane.dialects.hip.binding.arguments import shape_of
from peerlane.dialects.hip.state import calls
from peerlane.testing.procs import run_python

pytestmark = pytest.mark.any_schedule

_CALLS = Path(hip_c_calls.__file__)
_PROGRAM = Path(__file__).with_name("hip_program.c")
_NAMES = {
    "hipGetDevicePropertiesR0600": "hipGetDeviceProperties",
    "hipChooseDeviceR0600": "hipChooseDevice",
    "hipExtHostAlloc": "hipHostMalloc",
    "_Z22hipCreateSurfaceObjectPP13__hip_surfacePK15hipResourceDesc": "hipCreateSurfaceObject",
    "_Z23hipDestroySurfaceObjectP13__hip_surface": "hipDestroySurfaceObject",
    "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j": (
        "hipModuleLaunchKernel"
    ),
    "_Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_": (
        "hipModuleLaunchKernel"
    ),
    "hipGetDeviceProperties": "hipGetDevicePropertiesR0000",
    "hipChooseDevice": "hipChooseDeviceR0000",
}
_NO_WHEEL = {
    "hipDeviceGetP2PAtomicCapabilities",
    "hipExtModuleLaunchKernel",
    "hipGLGetDevices",
    "hipGraphicsGLRegisterBuffer",
    "hipGraphicsGLRegisterImage",
    "hipHccModuleLaunchKernel",
}
_EARLIER = {
    "hipGetDevicePropertiesR0000",
    "hipChooseDeviceR0000",
}  # of the struct that programs before HIP 6 have
_ONLY_C = _NO_WHEEL | _EARLIER
_NATIVE = {"has_symbol", "hipConfigureCall", "hipCreateChannelDesc", "hipSetupArgument"}  # not both ways
_NO_CODES = {"hipGetStreamDeviceId"}
_needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")


def _environment(**variables: str) -> dict[str, str]:
    return {**os.environ, "PEERLANE_PYTHON": sys.executable, "LD_LIBRARY_PATH": str(directory()), **variables}


def _compile(source: Path, program: Path, folder: Path) -> None:
    words = ["c++", "-w", "-g", "-x", "c++", str(source), f"-L{folder}", "-lamdhip64", "-o", str(program)]
    subprocess.run(words, check=True)


def _run(program: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program)],
        env=_environment(PEERLANE_NODE="devices=2", **variables),
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    "name", ["libamdhip64.so", "libamdhip64.so.6", "libamdhip64.so.7", "libhiprtc.so", "libhiprtc.so.7"]
)
def test_hip_c_library_has_every_symbol_under_each_of_its_names(name: str) -> None:
    opened = ctypes.CDLL(str(directory() / name))
    assert not [each for each in hip_c_calls.declarations().functions if not hasattr(opened, each)]


def test_hip_c_library_declares_what_the_dialect_works_and_refuses() -> None:
    functions = hip_c_calls.declarations().functions
    assert {each.dialect for each in functions.values()} == {*facts()["functions"]} - _NATIVE | _ONLY_C
    assert {each.dialect for each in functions.values() if not each.is_refused} == {*calls.table} | _EARLIER
    assert {name: each.dialect for name, each in functions.items() if name != each.dialect} == _NAMES


def test_hip_c_library_has_the_parameters_and_outputs_of_the_dialect() -> None:
    declared = hip_c_calls.declarations()
    for name, function in declared.functions.items():
        if function.dialect in _ONLY_C or not function.parameters:
            continue
        outputs = declared.outputs_of(function)
        unread = {at for at, each in enumerate(function.parameters) if "unread" in each.words}
        left_out = {*outputs} | unread
        inputs = tuple(each.name for at, each in enumerate(function.parameters) if at not in left_out)
        shape = shape_of(function.dialect)
        assert inputs in (shape.names, *(each.names for each in calls.overloads(function.dialect))), name
        if outputs and not unread:
            assert [function.parameters[at].name for at in outputs] == [each for each, _ in shape.outputs]


@pytest.mark.parametrize("values", ["nothing", "few", "most"])
def test_hip_c_library_answers_any_arguments_with_a_code(values: str) -> None:
    done = run_python(
        [str(_CALLS), values], timeout=60.0, env={**os.environ, "PYTHONPATH": str(_CALLS.parents[1])}
    )
    assert done.returncode == 0, done.stdout[-200:] + done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    for line in done.stdout.splitlines():
        name, _, answer = line.partition(" ")
        if re.fullmatch(r"-?\d+", answer) and name not in _NO_CODES:
            kind = "hiprtcResult" if name.startswith("hiprtc") else "hipError_t"
            assert int(answer) in facts()["enums"][kind]["members"].values(), line


@_needs_compiler
def test_hip_c_program_copies_shares_and_fails_as_hip_documents(tmp_path: Path) -> None:
    _compile(_PROGRAM, tmp_path / "program", directory())
    done = _run(tmp_path / "program")
    assert (done.stdout, done.returncode) == ("all as it should be\n", 0), done.stderr


@_needs_compiler
def test_hip_c_program_explains_failures_with_amd_log_level_1(tmp_path: Path) -> None:
    _compile(_PROGRAM, tmp_path / "program", directory())
    done = _run(tmp_path / "program", AMD_LOG_LEVEL="1")
    assert "peerlane: hipGetDevice returned hipErrorInvalidValue (1)." in done.stderr
    assert "Cause: deviceId is NULL." in done.stderr
    assert "Cause: there is no device 99; 2 are visible" in done.stderr


@_needs_compiler
def test_hip_c_program_records_the_vendors_numbered_name(tmp_path: Path) -> None:
    _compile(_PROGRAM, tmp_path / "program", directory())
    dynamic = subprocess.run(
        ["readelf", "-d", tmp_path / "program"], capture_output=True, text=True, check=True
    ).stdout
    assert re.findall(r"NEEDED.*\[(libamdhip64.*)\]", dynamic) == ["libamdhip64.so.7"]


@pytest.mark.parametrize("library", ["amdhip64", "hiprtc"])
@pytest.mark.parametrize("number", ["", ".6", ".7"])
def test_hip_c_library_opens_by_each_of_its_names(library: str, number: str) -> None:
    symbol = "hipRuntimeGetVersion" if library == "amdhip64" else "hiprtcVersion"
    program = (
        "import ctypes, sys\n"
        f"opened = ctypes.CDLL('lib{library}.so{number}'); value, other = ctypes.c_int(), ctypes.c_int()\n"
        f"sys.exit(opened.{symbol}(ctypes.byref(value), ctypes.byref(other)) or not value.value)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_hip_c_library_reports_the_arguments_of_a_launch(hip_on: Callable[..., Any]) -> None:
    hip_on("devices=1")
    opened = hip_c_calls.library()

    class Dim3(ctypes.Structure):
        _fields_ = (("x", ctypes.c_uint32), ("y", ctypes.c_uint32), ("z", ctypes.c_uint32))

    explain()
    assert (
        opened.hipLaunchKernel(
            ctypes.c_void_p(64), Dim3(1, 2, 3), Dim3(256, 1, 1), None, ctypes.c_size_t(16), None
        )
        == 801
    )
    text = explain()
    assert "function_address=0x40" in text
    assert "numBlocks=(1, 2, 3), dimBlocks=(256, 1, 1)" in text
    assert "sharedMemBytes=16" in text
    assert (
        opened.hipExtModuleLaunchKernel(
            None, 1, 2, 3, 4, 5, 6, ctypes.c_size_t(7), None, None, None, None, None, 8
        )
        == 801
    )
    assert "globalWorkSizeZ=3, localWorkSizeX=4" in explain()
    assert opened.hipModuleLaunchCooperativeKernelMultiDevice(None, 1, 0) == 801
    assert "no arguments" not in explain()


def test_hip_c_library_converts_half_floats_as_the_compiler_does() -> None:
    opened = hip_c_calls.library()
    opened.__gnu_h2f_ieee.restype, opened.__gnu_h2f_ieee.argtypes = ctypes.c_float, [ctypes.c_uint16]
    opened.__gnu_f2h_ieee.restype, opened.__gnu_f2h_ieee.argtypes = ctypes.c_uint16, [ctypes.c_float]
    halves = np.arange(0, 1 << 16, 37, dtype=np.uint16)
    numbers = halves.view(np.float16).astype(np.float32)
    converted = np.array([opened.__gnu_h2f_ieee(int(each)) for each in halves], np.float32)
    assert np.array_equal(converted, numbers, equal_nan=True)
    draws = np.random.default_rng(5).integers(0, 1 << 32, 2000, dtype=np.uint64)
    edges = np.array([65519, 65520, 6e-8, 2.9e-8, -0.0], np.float32)
    with np.errstate(all="ignore"):
        near = np.concatenate([draws.astype(np.uint32).view(np.float32), numbers * np.float32(1.0002), edges])
        expected = near.astype(np.float16)
    back = np.array([opened.__gnu_f2h_ieee(float(each)) for each in near], np.uint16).view(np.float16)
    assert np.array_equal(back, expected, equal_nan=True)


def test_hip_c_library_has_what_profilers_ask_for() -> None:
    opened = hip_c_calls.library()
    opened.hipGetCmdName.restype = ctypes.c_char_p
    assert [opened.hipGetCmdName(each) for each in (0, 0x11F0, 0x11F5, 77)] == [
        b"InternalMarker", b"KernelExecution", b"CopyDeviceToDevice", b"Unknown command kind",
    ]  # fmt: skip
    opened.hipRegisterTracerCallback.restype = opened.__hipGetPCH.restype = None
    opened.hipRegisterTracerCallback(None)
    header, size = ctypes.c_char_p(b"x"), ctypes.c_uint(9)
    opened.__hipGetPCH(ctypes.byref(header), ctypes.byref(size))
    assert (header.value, size.value) == (None, 0)


def test_hip_get_proc_address_has_functions_that_no_wheel_has(hip: ModuleType) -> None:
    for name in _NO_WHEEL:
        code, address, status = hip.hipGetProcAddress(name.encode(), 600, 0)
        assert (int(code), int(status)) == (0, 0), name
        assert int(address)


@_needs_compiler
@pytest.mark.parametrize("number", [6, 7])
def test_hip_c_program_linked_to_the_vendors_library_runs(tmp_path: Path, number: int) -> None:
    names = sorted(set(re.findall(r"\b(_*hip\w+)\(", _PROGRAM.read_text())))
    (tmp_path / "vendor.c").write_text("".join(f"void {name}(void) {{}}\n" for name in names))
    (tmp_path / "versions").write_text("hip_4.2 { global: *; };\nhip_6.0 { } hip_4.2;\n")
    library = tmp_path / f"libamdhip64.so.{number}"
    named = f"-Wl,-soname,{library.name},--version-script={tmp_path / 'versions'}"
    words = ["c++", "-x", "c", "-shared", "-fPIC", str(tmp_path / "vendor.c"), named, "-o", str(library)]
    subprocess.run(words, check=True)
    (tmp_path / "libamdhip64.so").symlink_to(library.name)
    _compile(_PROGRAM, tmp_path / "program", tmp_path)
    done = _run(tmp_path / "program")
    assert (done.stdout, done.returncode) == ("all as it should be\n", 0), done.stderr
    assert "version" not in done.stderr


def test_hip_c_library_shares_its_state_with_the_dialect_of_the_process() -> None:
    opened, device = hip_c_calls.library(), ctypes.c_int(9)
    assert opened.hipSetDevice(1) == 0
    assert hip.hipGetDevice() == (hip.hipError_t.hipSuccess, 1)
    assert hip.hipSetDevice(0) == (hip.hipError_t.hipSuccess,)
    assert opened.hipGetDevice(ctypes.byref(device)) == 0
    assert device.value == 0
    assert opened.hipGetDevice(None) == 1
    assert hip.hipGetLastError() == (hip.hipError_t.hipErrorInvalidValue,)


def test_hip_c_library_prefetches_the_ranges_of_arrays() -> None:
    opened, stream, memory = hip_c_calls.library(), ctypes.c_void_p(), (ctypes.c_void_p * 2)()
    assert opened.hipStreamCreate(ctypes.byref(stream)) == 0
    for at in range(2):
        assert opened.hipMallocManaged(ctypes.byref(memory, 8 * at), ctypes.c_size_t(4096), 1) == 0
    on_device, on_host = (1, 1), (2, 0)
    locations, sizes = (ctypes.c_int * 4)(*on_device, *on_host), (ctypes.c_size_t * 2)(4096, 4096)
    words = (memory, sizes, ctypes.c_size_t(2), locations, (ctypes.c_size_t * 2)(0, 1), ctypes.c_size_t(2))
    assert opened.hipMemPrefetchBatchAsync(*words, ctypes.c_uint64(0), stream) == 0
    range_count, last_prefetch = ctypes.c_int(), 4
    for at, location in enumerate((1, -1)):
        words = (ctypes.byref(range_count), ctypes.c_size_t(4), last_prefetch, ctypes.c_void_p(memory[at]))
        assert opened.hipMemRangeGetAttribute(*words, ctypes.c_size_t(4096)) == 0
        assert range_count.value == location


def test_hip_c_library_has_functions_that_no_binding_for_python_has() -> None:
    opened, memory = hip_c_calls.library(), ctypes.c_void_p()
    coherent, not_coherent = 0x4000_0000, 0x8000_0000
    assert opened.hipExtHostAlloc(ctypes.byref(memory), ctypes.c_size_t(64), ctypes.c_uint(coherent)) == 0
    flags = ctypes.c_uint()
    assert opened.hipHostGetFlags(ctypes.byref(flags), memory) == 0
    assert flags.value == coherent
    both = ctypes.c_uint(coherent | not_coherent)
    assert opened.hipExtHostAlloc(ctypes.byref(memory), ctypes.c_size_t(64), both) == 1


def test_hip_c_library_takes_the_descriptor_from_the_lower_half_of_a_pointer() -> None:
    opened, handle, fd = hip_c_calls.library(), ctypes.c_void_p(), ctypes.c_int(-1)
    prop = hip_memory.properties(hip, requested=1)
    size = ctypes.c_size_t(2 << 20)
    assert opened.hipMemCreate(ctypes.byref(handle), size, ctypes.c_void_p(int(prop)), ctypes.c_uint64()) == 0
    assert opened.hipMemExportToShareableHandle(ctypes.byref(fd), handle, 1, ctypes.c_uint64()) == 0
    for word in (fd.value, fd.value | 0xABCD << 48):
        imported = ctypes.c_void_p()
        assert opened.hipMemImportFromShareableHandle(ctypes.byref(imported), ctypes.c_void_p(word), 1) == 0
        assert opened.hipMemRelease(imported) == 0
    os.close(fd.value)
    assert opened.hipMemRelease(handle) == 0


def test_hip_c_library_explains_that_a_number_is_not_a_kind_of_copy() -> None:
    opened, size = hip_c_calls.library(), ctypes.c_size_t(64)
    memory = ctypes.c_void_p(int(hip.hipMalloc(64)[1]))
    box = hip.hipMemcpy3DParms()
    box.srcPtr.ptr = box.dstPtr.ptr = memory
    box.extent.width = box.extent.height = box.extent.depth = 1
    ctypes.memset(int(box) + box.c_sizeof() - 8, 0xFF, 4)
    rows = (memory, size, memory, size, size, ctypes.c_size_t(1), -1)
    assert opened.hipMemcpy(memory, memory, size, -1) == 21
    assert opened.hipMemcpyAsync(memory, memory, size, 5, None) == 21
    assert opened.hipMemcpyWithStream(memory, memory, size, -1, None) == 21
    assert opened.hipMemcpy2D(*rows) == opened.hipMemcpy2DAsync_spt(*rows, None) == 21
    assert opened.hipMemcpy3D(ctypes.c_void_p(int(box))) == 21


def test_hip_c_library_reads_attributes_of_a_batch() -> None:
    opened, failed, words = hip_c_calls.library(), ctypes.c_size_t(9), ctypes.c_void_p * 2
    target, source = (hip.hipMalloc(64)[1] for _ in range(2))
    assert hip.hipMemset(source, 7, 64) == (hip.hipError_t.hipSuccess,)
    order = hip.hipMemcpySrcAccessOrder.hipMemcpySrcAccessOrderStream
    attributes, count = hip.hipMemcpyAttributes(srcAccessOrder=order), ctypes.c_size_t(2)
    sizes, starts = (ctypes.c_size_t * 2)(16, 8), (ctypes.c_size_t * 1)(0)

    def run(starts: object, number: int) -> int:
        dsts, srcs = words(int(target), int(target) + 32), words(int(source), int(source))
        operands = (ctypes.c_void_p(int(attributes)), starts, ctypes.c_size_t(number))
        code: int = opened.hipMemcpyBatchAsync(
            dsts, srcs, sizes, count, *operands, ctypes.byref(failed), None
        )
        return code

    assert run(starts, 1) == 0
    assert failed.value == ctypes.c_size_t(-1).value
    assert run(None, 1) == run(starts, 3) == 1
    starts[0] = 1
    assert run(starts, 1) == 1


def test_hip_c_library_reports_which_copy_of_a_batch_failed() -> None:
    opened, failed = hip_c_calls.library(), ctypes.c_size_t(9)
    boxes = hip.hipMemcpy3DBatchOp.allocate(2)
    count, flags = ctypes.c_size_t(2), ctypes.c_uint64(1)
    arguments = (count, ctypes.c_void_p(int(boxes)), ctypes.byref(failed), flags, ctypes.c_void_p())
    assert opened.hipMemcpy3DBatchAsync(*arguments) == 1
    assert failed.value == 0


def test_hip_c_library_finds_peerlane_where_the_python_of_the_process_has_none() -> None:
    program = (
        "import ctypes, sys\n"
        f"opened = ctypes.CDLL({str(directory() / 'libamdhip64.so')!r})\n"
        "before = list(sys.path)\n"
        "count = ctypes.c_int()\n"
        "print(opened.hipGetDeviceCount(ctypes.byref(count)), count.value, sys.path[: len(before)] == before)\n"
    )
    done = run_python(["-S", "-c", program], timeout=60.0, env=_environment(PEERLANE_NODE="devices=3"))
    assert (done.stdout, done.stderr) == ("0 3 True\n", "")


def test_hip_c_library_without_visible_device_reports_it_before_all_else() -> None:
    program = (
        "import ctypes\n"
        f"opened = ctypes.CDLL({str(directory() / 'libamdhip64.so')!r})\n"
        "print(opened.hipExtMallocWithFlags(None, 128, 0), opened.hipGraphCreate(None, 0))\n"
        "compiler, program = ctypes.CDLL('libhiprtc.so'), ctypes.c_void_p()\n"
        "at = ctypes.byref(program)\n"
        "print(compiler.hiprtcCreateProgram(at, b'source', b'name', 0, None, None))\n"
        "print(compiler.hiprtcAddNameExpression(program, b'kernel'), compiler.hiprtcDestroyProgram(at))\n"
    )
    hidden = _environment(PEERLANE_NODE="devices=2", HIP_VISIBLE_DEVICES="-1")
    done = run_python(["-c", program], timeout=60.0, env=hidden)
    assert (done.stdout.split(), done.stderr) == (["100", "100", "0", "0", "0"], "")


def test_hip_c_library_reads_lists_of_attributes_and_writes_each_value() -> None:
    opened, kind, ordinal = hip_c_calls.library(), ctypes.c_int(), ctypes.c_int(9)
    _, memory = hip.hipMalloc(4096)
    asked = hip.hipPointer_attribute
    attributes = (ctypes.c_int * 2)(
        asked.HIP_POINTER_ATTRIBUTE_MEMORY_TYPE, asked.HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    )
    data = (ctypes.c_void_p * 2)(ctypes.addressof(kind), ctypes.addressof(ordinal))
    pointer = ctypes.c_void_p(int(memory))
    assert opened.hipDrvPointerGetAttributes(2, attributes, data, pointer) == 0
    assert (kind.value, ordinal.value) == (2, 0)
    attributes[1] = 31337
    assert opened.hipDrvPointerGetAttributes(2, attributes, data, pointer) == 1
    assert opened.hipDrvPointerGetAttributes(2, None, data, pointer) == 1
    assert hip.hipFree(memory) == (hip.hipError_t.hipSuccess,)


def test_hip_c_library_leaves_out_outputs_that_may_be_null() -> None:
    opened, total = hip_c_calls.library(), ctypes.c_size_t()
    assert opened.hipMemGetInfo(None, ctypes.byref(total)) == 0
    assert total.value == hip.hipMemGetInfo()[2]
    assert opened.hipDeviceGetStreamPriorityRange(None, None) == 0
    assert opened.hipMemGetAddressRange(None, None, None) == 1


def test_hip_c_library_writes_each_call_while_the_log_has_calls(capfd: pytest.CaptureFixture[str]) -> None:
    opened = hip_c_calls.library()
    source, target = ctypes.c_uint64(7), ctypes.c_uint64(0)

    def code_of_copies() -> int:
        for _ in range(3):  # native code answers the later ones
            assert opened.hipMemcpy(ctypes.byref(target), ctypes.byref(source), ctypes.c_size_t(8), 0) == 0
        return capfd.readouterr().err.count("peerlane: hipMemcpy(")

    assert opened.hipExtSetLoggingParams(ctypes.c_size_t(3), ctypes.c_size_t(0), ctypes.c_size_t(1)) == 0
    assert code_of_copies() == 0
    assert opened.hipExtEnableLogging() == 0
    assert code_of_copies() == 3
    assert opened.hipExtDisableLogging() == 0
    assert code_of_copies() == 0


def test_hip_c_library_names_calls_by_number() -> None:
    named = hip_c_calls.library().hipApiName
    named.restype = ctypes.c_char_p
    assert [named(number) for number in (0, 125)] == [b"unknown", b"hipMemcpy"]


@_needs_compiler
def test_hip_c_library_calls_code_only_also_after_dlclose(hip_on: Callable[..., Any], tmp_path: Path) -> None:
    hip_on("devices=1")
    (tmp_path / "count.c").write_text("void count(void* at) { ++*(int*)at; }\nint data = 7;\n")
    library = tmp_path / "count.so"
    subprocess.run(["c++", "-x", "c", "-shared", "-fPIC", tmp_path / "count.c", "-o", library], check=True)
    loaded, opened, counter = ctypes.CDLL(str(library)), hip_c_calls.library(), ctypes.c_int()

    def launch(address: int | None) -> int:
        launched = opened.hipLaunchHostFunc(None, ctypes.c_void_p(address), ctypes.byref(counter))
        assert opened.hipDeviceSynchronize() == 0
        return int(launched)

    function = ctypes.cast(loaded.count, ctypes.c_void_p).value
    callback_of_run_time = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_int))(
        lambda at: at.__setitem__(0, at[0] + 10)
    )
    assert launch(function) == launch(function) == 0
    assert counter.value == 2
    assert launch(ctypes.cast(callback_of_run_time, ctypes.c_void_p).value) == 0
    assert counter.value == 12
    data = ctypes.addressof(ctypes.c_int.in_dll(loaded, "data"))
    for wrong in (None, 8, data, id(loaded), ctypes.addressof(counter), 1 << 63):
        assert launch(wrong) == 1, wrong
    _ctypes.dlclose(loaded._handle)
    assert launch(function) == 1
    assert counter.value == 12


def test_hip_c_library_passes_stream_status_and_data_to_a_stream_callback(hip_on: Callable[..., Any]) -> None:
    hip = hip_on("devices=1")
    opened, seen = hip_c_calls.library(), []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    callback = kind(lambda stream, status, data: seen.append((stream, status, data)))
    stream = int(hip.hipStreamCreate()[1])
    address = ctypes.cast(callback, ctypes.c_void_p)
    assert opened.hipStreamAddCallback(ctypes.c_void_p(stream), address, ctypes.c_void_p(77), 0) == 0
    assert opened.hipStreamSynchronize(ctypes.c_void_p(stream)) == 0
    assert seen == [(stream, 0, 77)]
