"""Kernels of AI CPUs: functions for the processor, which a stream calls and which may touch device memory."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from peerlane import _core

pytestmark = pytest.mark.timeout(120)

SOURCE = """
struct Call { unsigned char* memory; unsigned long count; unsigned add, answer; };
unsigned add(struct Call* call) {
    for (unsigned long i = 0; i < call->count; ++i) call->memory[i] += call->add;
    return call->answer;
}
"""
CPU_KERNEL = {"type": 3, "value": 0}


class Call(ctypes.Structure):
    _fields_ = (
        ("memory", ctypes.c_void_p),
        ("count", ctypes.c_ulong),
        ("add", ctypes.c_uint),
        ("answer", ctypes.c_uint),
    )


def ok(result: object) -> int:
    *outputs, code = result if isinstance(result, tuple) else (result,)
    assert code == 0
    return outputs[0] if outputs else 0


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile a kernel and describe it."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "kernels.c").write_text(SOURCE)
    words = ["-x", "c", "-shared", "-fPIC", "kernels.c", "-o", "kernels.so"]
    subprocess.run([compiler, *words], cwd=folder, check=True, timeout=60)
    about = {"opKernelLib": "AICPUKernel", "kernelSo": "kernels.so", "functionName": "add"}
    (folder / "kernels.json").write_text(json.dumps({"Add": {"opInfo": about}}))
    return folder / "kernels.json"


@pytest.fixture
def rt(acl: ModuleType) -> ModuleType:
    ok(acl.rt.set_device(0))
    return acl.rt


def arguments(rt: ModuleType, kernel: int, **fields: int) -> int:
    args = ok(rt.kernel_args_init(kernel))
    ok(rt.kernel_args_append(args, ctypes.addressof(call := Call(**fields)), ctypes.sizeof(call)))
    ok(rt.kernel_args_finalize(args))
    return args


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("nbytes", [100, 3 << 20])
def test_acl_launch_kernel_with_config_changes_device_memory_in_stream_order(
    rt: ModuleType, described: Path, mode: int, nbytes: int
) -> None:
    binary = ok(rt.binary_load_from_file(str(described), [{"type": 3, "value": mode}]))
    kernel, stream = ok(rt.binary_get_function(binary, "Add")), ok(rt.create_stream())
    memory, back = ok(rt.malloc(nbytes, 0)), ctypes.create_string_buffer(nbytes)
    ok(rt.memset_async(memory, nbytes, 5, nbytes, stream))
    for add in (1, 30):
        args = arguments(rt, kernel, memory=memory, count=nbytes, add=add)
        ok(rt.launch_kernel_with_config(kernel, 1, stream, [{"id": 7, "value": 60}], args, 0))
    ok(rt.memcpy_async(ctypes.addressof(back), nbytes, memory, nbytes, 2, stream))
    ok(rt.synchronize_stream(stream))
    assert back.raw == bytes([36]) * nbytes
    assert not _core.is_readable(memory), "the host reaches it again"
    ok(rt.binary_unload(binary))
    assert rt.binary_unload(binary) == 100000


def test_acl_launch_of_kernel_that_does_not_return_0_fails_synchronization(
    rt: ModuleType, described: Path, message: Callable[[], str]
) -> None:
    binary = ok(rt.binary_load_from_file(str(described), [CPU_KERNEL]))
    kernel, stream = ok(rt.binary_get_function(binary, "Add")), ok(rt.create_stream())
    args = arguments(rt, kernel, answer=7)
    ok(rt.launch_kernel_with_config(kernel, 1, stream, [], args, 0))
    assert rt.synchronize_stream(stream) == 507018
    text = message()
    assert "kernel Add" in text and "it returned 7" in text and "test_acl_kernels.py" in text
    ok(rt.synchronize_stream(stream))


def test_acl_kernel_args_para_update_changes_an_argument_until_the_launch(
    rt: ModuleType, described: Path
) -> None:
    binary = ok(rt.binary_load_from_file(str(described), [CPU_KERNEL]))
    kernel, memory = ok(rt.binary_get_function(binary, "Add")), ok(rt.malloc(64, 0))
    ok(rt.memset(memory, 64, 0, 64))
    args, call = ok(rt.kernel_args_init(kernel)), Call(memory=memory, count=64, add=1)
    at = ctypes.addressof(call)
    argument = ok(rt.kernel_args_append(args, at, ctypes.sizeof(call)))
    call.add = 9
    assert rt.kernel_args_para_update(args, argument, at, 8) == 107000
    assert rt.kernel_args_para_update(args, argument + 1, at, ctypes.sizeof(call)) == 107000
    ok(rt.kernel_args_para_update(args, argument, at, ctypes.sizeof(call)))
    assert rt.launch_kernel_with_config(kernel, 1, 0, [], args, 0) == 107000  # not finalized
    ok(rt.kernel_args_finalize(args))
    assert rt.kernel_args_append(args, at, 8) == (0, 207000)
    ok(rt.launch_kernel_with_config(kernel, 1, 0, [], args, 0))
    call.add = 100
    ok(rt.synchronize_stream(0))
    output = ctypes.create_string_buffer(64)
    ok(rt.memcpy(ctypes.addressof(output), 64, memory, 64, 2))
    assert output.raw == bytes([9]) * 64


def test_acl_kernel_calls_refuse_what_they_cannot_run(
    rt: ModuleType, described: Path, message: Callable[[], str], tmp_path: Path
) -> None:
    load = rt.binary_load_from_file
    for options, code in (
        ([], 200001),
        ([{"type": 3, "value": 2}], 107000),
        ([{"type": 2, "value": 0}], 107000),
    ):
        assert load(str(described), options) == (0, code)
    assert load(str(tmp_path / "none.json"), [CPU_KERNEL]) == (0, 107000)
    (tmp_path / "other.json").write_text('{"Add": {}}')
    assert load(str(tmp_path / "other.json"), [CPU_KERNEL]) == (0, 107000)
    about = {"kernelSo": str(described.with_name("kernels.so")), "functionName": "subtract"}
    (tmp_path / "lacks.json").write_text(json.dumps({"Add": {"opInfo": about}}))
    message()
    assert load(str(tmp_path / "lacks.json"), [CPU_KERNEL]) == (0, 107000)
    assert "function subtract of" in message()
    with pytest.raises(ValueError, match="must be a list"):
        load(str(described), None)
    binary = ok(load(str(described), [CPU_KERNEL]))
    assert rt.binary_get_function(binary, "Subtract") == (0, 107000)
    assert "pass one of: Add" in message()
    kernel = ok(rt.binary_get_function(binary, "Add"))
    args = arguments(rt, kernel)
    launch = rt.launch_kernel_with_config
    assert launch(kernel, 0, 0, [], args, 0) == 100000
    assert launch(kernel, 2, 0, [], args, 0) == 207000
    assert launch(kernel, 1, 0, [], args, 1) == 100000
    assert launch(binary, 1, 0, [], args, 0) == 100000
    assert launch(kernel, 1, 12345, [], args, 0) == 107000
    assert launch(ok(rt.binary_get_function(binary, "Add")), 1, 0, [], args, 0) == 107000
    assert rt.kernel_args_append(args, 0, 8) == (0, 100000)
