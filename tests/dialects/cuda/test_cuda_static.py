"""Programs and modules with a copy of CUDA's runtime inside: their calls reach peerlane's runtime."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from peerlane.dialects.cuda.extensions import has_runtime
from peerlane.testing.procs import run_python

SECONDS = 120
#: A copy of the runtime in which each call fails, as the vendor's does without a driver.
COPY = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static volatile int no_driver = 35;
int cudaGetDriverEntryPointByVersion(void) { return no_driver; }
%(static)s int cudaGetDeviceCount(int* count) { *count = -1; no_driver += count == 0; return no_driver; }
%(static)s int cudaMalloc(void** memory, size_t size) { *memory = 0; no_driver += size == 0; return no_driver; }
%(static)s int cudaMemcpy(void* dst, const void* src, size_t size, int kind) {
    no_driver += dst == src && size && kind; return no_driver;
}
static int moves(void) {
    int count = 0;
    char sent[64], back[64];
    void* memory = 0;
    memset(sent, 7, sizeof sent);
    memset(back, 0, sizeof back);
    if (cudaGetDeviceCount(&count) || count != 2) return 1;
    if (cudaMalloc(&memory, sizeof sent)) return 2;
    if (cudaMemcpy(memory, sent, sizeof sent, 1) || cudaMemcpy(back, memory, sizeof back, 2)) return 3;
    return memcmp(sent, back, sizeof back) ? 4 : 0;
}
"""
PROGRAM = "int main(void) { return moves(); }\n"
MODULE = """
#include <Python.h>
static PyObject* call(PyObject* self, PyObject* none) { return PyLong_FromLong(moves()); }
static PyMethodDef methods[] = {{"moves", call, METH_NOARGS, ""}, {0, 0, 0, 0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "copying", "", -1, methods, 0, 0, 0, 0};
PyMODINIT_FUNC PyInit_copying(void) { return PyModule_Create(&module); }
"""


def built(folder: Path, name: str, text: str, *flags: str) -> Path:
    source = folder / "source.c"
    source.write_text(text)
    compiler = shutil.which("cc") or "gcc"
    words = [compiler, "-O1", "-fno-inline", str(source), "-o", str(folder / name), *flags]
    subprocess.run(words, check=True, timeout=SECONDS)
    return folder / name


def run(*words: str, folder: Path) -> int:
    code: int = run_python(
        ["-m", "peerlane", "run", "--dialect", "cuda", "--devices", "2", *words], timeout=SECONDS, cwd=folder
    ).returncode
    return code


def test_program_with_the_runtime_inside_runs_on_virtual_devices(tmp_path: Path) -> None:
    program = built(tmp_path, "prog", COPY % {"static": ""} + PROGRAM)
    assert has_runtime(str(program))
    assert subprocess.run([program], check=False, timeout=SECONDS).returncode == 1
    assert run(str(program), folder=tmp_path) == 0


def test_stripped_program_stays_as_it_is(tmp_path: Path) -> None:
    program = built(tmp_path, "prog", COPY % {"static": ""} + PROGRAM, "-s")
    assert not has_runtime(str(program))
    assert run(str(program), folder=tmp_path) == 1


@pytest.mark.parametrize("is_child", [False, True], ids=["in the program", "in its child"])
def test_module_with_the_runtime_inside_runs_on_virtual_devices(tmp_path: Path, is_child: bool) -> None:
    include = sysconfig.get_paths()["include"]
    built(tmp_path, "copying.so", COPY % {"static": "static"} + MODULE, "-shared", "-fPIC", f"-I{include}")
    code = "import sys; sys.path.insert(0, '.'); import copying; sys.exit(copying.moves())"
    if is_child:
        code = (
            f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {code!r}]).returncode)"
        )
    assert run("-c", code, folder=tmp_path) == 0


def test_library_that_a_wheel_brings_along_is_replaced_and_leaves_no_error(tmp_path: Path) -> None:
    shared = (
        COPY % {"static": ""} + "int cudaQqq(void) { return cudaGetDeviceCount(0) + cudaMalloc(0, 0); }\n"
    )
    built(tmp_path, "libcudart-1.so", shared.replace("static int moves", "int moves"), "-shared", "-fPIC")
    program = (
        '#include <dlfcn.h>\nint main(void) {\n    void* opened = dlopen("./libcudart-1.so", RTLD_NOW);\n'
    )
    program += (
        '    if (!opened || dlerror()) return 9;\n    return ((int (*)(void))dlsym(opened, "moves"))();\n}\n'
    )
    opening = built(tmp_path, "prog", program)
    assert run(str(opening), folder=tmp_path) == 0


def test_file_that_is_no_program_has_no_runtime(tmp_path: Path) -> None:
    for number, content in enumerate((b"", b"\x7fELF", b"\x7fELF\2" + bytes(59), os.urandom(4096))):
        path = tmp_path / str(number)
        path.write_bytes(content)
        assert not has_runtime(str(path))
    assert not has_runtime(str(tmp_path / "missing"))
    assert not has_runtime(sys.executable)
