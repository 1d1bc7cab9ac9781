"""Programs and modules with a copy of CUDA's runtime inside: their calls reach peerlane's runtime."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from helpers.absent import absent
from helpers.prepared import run_python
from peerlane.c_abi import directory
from peerlane.dialects.cuda.extensions import has_runtime

pytestmark = pytest.mark.any_schedule

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


CHILD = "import subprocess, sys; sys.exit(subprocess.run(['./prog']).returncode)"
GRANDCHILD = f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {CHILD!r}]).returncode)"
REPLACEMENT = "import os; os.execv('./prog', ['./prog'])"


@pytest.mark.parametrize("code", [CHILD, GRANDCHILD, REPLACEMENT], ids=["child", "grandchild", "execv"])
def test_program_with_the_runtime_inside_is_replaced_when_python_starts_it(tmp_path: Path, code: str) -> None:
    built(tmp_path, "prog", COPY % {"static": ""} + PROGRAM)
    assert run("-c", code, folder=tmp_path) == 0


EARLY = """
int cuInit(unsigned);
int cuDeviceGetCount(int*);
int main(void) {
    int count = 0, before = cudaGetDeviceCount(&count);
    if (cuInit(0) || cuDeviceGetCount(&count)) return 1;  // Python starts, and imports modules
    return before == 35 && cudaGetDeviceCount(&count) == before ? 0 : 2;
}
"""


def test_copy_that_was_not_replaced_at_the_start_fails_in_each_call(tmp_path: Path) -> None:
    links = f"-L{directory()}", "-l:libcuda.so.1"
    built(tmp_path, "prog", COPY % {"static": ""} + EARLY, *links)
    words = ["run", "--devices", "2", "-c", CHILD]  # all dialects: children are programs of any vendor
    assert run_python(["-m", "peerlane", *words], timeout=SECONDS, cwd=tmp_path).returncode == 0


def test_rank_starts_a_program_with_the_runtime_inside(tmp_path: Path) -> None:
    built(tmp_path, "prog", COPY % {"static": ""} + PROGRAM)
    words = ["launch", "-n", "2", "--dialect", "cuda", "--devices", "2", "-c", CHILD]
    assert run_python(["-m", "peerlane", *words], timeout=SECONDS, cwd=tmp_path).returncode == 0


def test_python_starts_a_program_with_address_sanitizer(tmp_path: Path) -> None:
    try:
        built(tmp_path, "prog", "int main(void) { return 0; }", "-fsanitize=address")
    except subprocess.CalledProcessError:
        pytest.skip("the compiler has no AddressSanitizer")
    assert run("-c", CHILD, folder=tmp_path) == 0


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


SINGLE_PHASE = """
#include <Python.h>
static int result;
static PyObject* call(PyObject* self, PyObject* none) { return PyLong_FromLong(result); }
static PyMethodDef methods[] = {{"moves", call, METH_NOARGS, ""}, {0, 0, 0, 0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "copying", "", -1, methods, 0, 0, 0, 0};
PyMODINIT_FUNC PyInit_copying(void) { result = moves(); return PyModule_Create(&module); }
"""
IMPORTING = "import sys; sys.path.insert(0, '.'); import copying; sys.exit(copying.moves())"


def library(folder: Path, name: str = "libmoving.so") -> Path:
    """Build a library with the runtime inside, and a function that calls it."""
    text = COPY % {"static": "static"}
    return built(folder, name, text.replace("static int moves", "int moves"), "-shared", "-fPIC")


def module(folder: Path, text: str, *flags: str) -> Path:
    include = sysconfig.get_paths()["include"]
    return built(folder, "copying.so", text, "-shared", "-fPIC", f"-I{include}", *flags)


def test_module_that_calls_the_runtime_when_it_is_imported_runs_on_virtual_devices(tmp_path: Path) -> None:
    module(tmp_path, COPY % {"static": "static"} + SINGLE_PHASE)
    assert run("-c", IMPORTING, folder=tmp_path) == 0


def test_library_that_a_module_needs_is_replaced(tmp_path: Path) -> None:
    library(tmp_path)
    links = f"-L{tmp_path}", "-lmoving", f"-Wl,-rpath,{tmp_path}"
    module(tmp_path, "int moves(void);\n" + SINGLE_PHASE, *links)
    assert run("-c", IMPORTING, folder=tmp_path) == 0


def test_library_that_a_program_needs_is_replaced(tmp_path: Path) -> None:
    library(tmp_path)
    links = f"-L{tmp_path}", "-lmoving", f"-Wl,-rpath,{tmp_path}"
    program = built(tmp_path, "prog", "int moves(void);\n" + PROGRAM, *links)
    assert run(str(program), folder=tmp_path) == 0


@pytest.mark.parametrize("is_first", [False, True], ids=["ctypes", "ctypes imported before"])
def test_library_that_ctypes_opens_is_replaced(tmp_path: Path, is_first: bool) -> None:
    library(tmp_path)
    opening = "import ctypes, sys; sys.exit(ctypes.CDLL('./libmoving.so').moves())"
    if is_first:
        opening = f"import sys, _ctypes; {opening}"
    assert run("-c", opening, folder=tmp_path) == 0


@pytest.mark.parametrize("is_first", [False, True], ids=["cffi", "cffi imported before"])
def test_library_that_cffi_opens_is_replaced(tmp_path: Path, is_first: bool) -> None:
    if importlib.util.find_spec("cffi") is None:
        absent("cffi is not installed")
    library(tmp_path)
    opening = "import cffi, sys\nffi = cffi.FFI()\nffi.cdef('int moves(void);')\n"
    opening += "sys.exit(ffi.dlopen('./libmoving.so').moves())"
    if is_first:
        opening = f"import sys, _cffi_backend\n{opening}"
    assert run("-c", opening, folder=tmp_path) == 0


def test_library_that_brings_the_copy_along_is_replaced_when_ctypes_opens_it(tmp_path: Path) -> None:
    library(tmp_path)
    links = f"-L{tmp_path}", "-lmoving", f"-Wl,-rpath,{tmp_path}"
    text = "int moves(void);\nint move(void) { return moves(); }\n"
    built(tmp_path, "libouter.so", text, "-shared", "-fPIC", *links)
    opening = "import ctypes, sys; sys.exit(ctypes.CDLL('./libouter.so').move())"
    assert run("-c", opening, folder=tmp_path) == 0


def test_stripped_library_of_ctypes_stays_as_it_is(tmp_path: Path) -> None:
    text = (COPY % {"static": "static"}).replace("static int moves", "int moves")
    built(tmp_path, "libmoving.so", text, "-shared", "-fPIC", "-s")
    assert (
        run("-c", "import ctypes, sys; sys.exit(ctypes.CDLL('./libmoving.so').moves())", folder=tmp_path) == 1
    )


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


OPENING = """
#include <dlfcn.h>
int opened(void) {
    void* library = dlopen("libmoving.so", RTLD_NOW);
    if (!library || dlerror()) return 9;
    return ((int (*)(void))dlsym(library, "moves"))();
}
"""


@pytest.mark.parametrize("by", ["program", "library", "name"])
def test_library_that_a_program_opens_by_its_name_alone_is_replaced(tmp_path: Path, by: str) -> None:
    """The loader finds it in a folder of the program or of the library that opens it, or it is loaded."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    library(hidden)
    where = (f"-Wl,-rpath,{hidden}",)
    main = "int opened(void);\nint main(void) { return opened(); }\n"
    if by == "library":
        built(tmp_path, "libopening.so", OPENING, "-shared", "-fPIC", *where)
        program = built(tmp_path, "prog", main, f"-L{tmp_path}", "-lopening", f"-Wl,-rpath,{tmp_path}")
    elif by == "program":
        program = built(tmp_path, "prog", OPENING + main, *where)
    else:
        needs = (*where, f"-L{hidden}", "-Wl,--no-as-needed", "-lmoving")
        program = built(tmp_path, "prog", OPENING + main, *needs)
    assert run(str(program), folder=tmp_path) == 0


def test_name_that_no_folder_has_is_not_opened(tmp_path: Path) -> None:
    text = OPENING.replace("libmoving.so", "libmissing-of-all.so") + "int main(void) { return opened(); }\n"
    assert run(str(built(tmp_path, "prog", text)), folder=tmp_path) == 9


def test_file_that_is_no_program_has_no_runtime(tmp_path: Path) -> None:
    for number, content in enumerate((b"", b"\x7fELF", b"\x7fELF\2" + bytes(59), os.urandom(4096))):
        path = tmp_path / str(number)
        path.write_bytes(content)
        assert not has_runtime(str(path))
    assert not has_runtime(str(tmp_path / "missing"))
    assert not has_runtime(sys.executable)


@pytest.mark.parametrize("command", [("run",), ("launch", "-n", "2")])
def test_nccl_of_a_wheel_is_not_opened(tmp_path: Path, command: tuple[str, ...]) -> None:
    """A program finds it by its path, as cuda.pathfinder does."""
    text = "int ncclGetVersion(int *version) { *version = 1; return 0; }"
    built(tmp_path, "libnccl.so.2", text, "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2")
    program = tmp_path / "program.py"
    program.write_text(
        f"import ctypes\nversion = ctypes.c_int()\nlibrary = ctypes.CDLL({str(tmp_path / 'libnccl.so.2')!r})\n"
        "assert library.ncclGetVersion(ctypes.byref(version)) == 0 and version.value > 20000, version\n"
    )
    done = run_python(["-m", "peerlane", *command, "--dialect", "cuda", str(program)], timeout=60)
    assert done.returncode == 0, done.stderr
