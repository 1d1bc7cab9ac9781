"""A thread of C that calls or ends while who joins it holds the GIL, as the destructors of bindings do."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from peerlane.testing.procs import run_python

pytestmark = pytest.mark.any_schedule
SECONDS = 60
JOINER = """
#include <pthread.h>
#include <stdatomic.h>
static pthread_t thread;
static atomic_int has_called, may_end, code, last_calls;
static int (*ask)(int*);
static void* work(void* none) {
    int count = 0;
    code = ask(&count) ? -1 : count;
    has_called = 1;
    while (!may_end) {}
    for (int i = 0; i < last_calls; ++i) code |= ask(&count);
    return none;
}
int begin(int (*function)(int*), int calls) {
    ask = function;
    last_calls = calls;
    may_end = has_called = 0;
    if (pthread_create(&thread, 0, work, 0)) return -2;
    while (!has_called) {}
    return code;
}
int join(void) {
    code = 0;
    may_end = 1;
    pthread_join(thread, 0);
    return code;
}
"""
PROGRAM = """
import ctypes, sys
from peerlane.c_abi import directory
library, joiner, calls = ctypes.CDLL(f"{directory()}/libamdhip64.so"), sys.argv[1], int(sys.argv[2])
for _ in range(3):
    assert ctypes.CDLL(joiner).begin(library.hipGetDeviceCount, calls) == 2
    assert ctypes.PyDLL(joiner).join() == 0  # it keeps the GIL
    assert ctypes.CDLL(joiner).begin(library.hipGetDeviceCount, calls) == 2
    assert ctypes.CDLL(joiner).join() == 0
print("over")
"""


LATE_JOINER = """
#include <Python.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
static atomic_int is_joined;
static void* work(void* ask) {
    int count = 0;
    while (!is_joined) {}
    usleep(100000);  // until the other thread is in its join
    return (void*)(long)(((int (*)(int*))ask)(&count) ? -1 : count);
}
int join(void* ask) {
    pthread_t thread;
    void* result;
    if (pthread_create(&thread, 0, work, ask)) return -2;
    is_joined = 1;
    pthread_join(thread, &result);
    return (int)(long)result;
}
static PyObject* call(PyObject* self, PyObject* ask) { return PyLong_FromLong(join(PyLong_AsVoidPtr(ask))); }
static PyMethodDef methods[] = {{"join", call, METH_O, ""}, {0, 0, 0, 0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "joining", "", -1, methods, 0, 0, 0, 0};
PyMODINIT_FUNC PyInit_joining(void) { return PyModule_Create(&module); }
"""
LATE_PROGRAM = """
import ctypes, sys
from peerlane.c_abi import directory
folder, loading, name, vendor = sys.argv[1:]
library = ctypes.CDLL(f"{directory()}/{name}")
assert library[f"{vendor}Init"](0) == 0
ask = ctypes.cast(library[{"hip": "hipGetDeviceCount", "cu": "cuDeviceGetCount"}[vendor]], ctypes.c_void_p)
if loading == "import":
    sys.path.insert(0, folder)
    import joining
    assert joining.join(ask.value) == 2
else:
    assert ctypes.PyDLL(f"{folder}/joining.so").join(ask) == 2  # it keeps the GIL
print("over")
"""


def assert_ends(program: str, *words: str) -> None:
    run = ["-m", "peerlane", "run", "--devices", "2", "-c", program, *words]
    done = run_python(run, timeout=SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")
    assert done.seconds < 10


@pytest.mark.parametrize("loading", ["import", "ctypes"])
@pytest.mark.parametrize("library", [("libamdhip64.so", "hip"), ("libcuda.so.1", "cu")], ids=["hip", "cuda"])
def test_module_loaded_after_the_first_call_joins_a_thread_that_calls(
    tmp_path: Path, library: tuple[str, str], loading: str
) -> None:
    source = tmp_path / "joining.c"
    source.write_text(LATE_JOINER)
    include = sysconfig.get_paths()["include"]
    words = ["-shared", "-fPIC", "-O1", "-pthread", f"-I{include}", source, "-o", tmp_path / "joining.so"]
    subprocess.run([shutil.which("cc") or "gcc", *words], check=True, timeout=SECONDS)
    assert_ends(LATE_PROGRAM, str(tmp_path), loading, *library)


@pytest.mark.parametrize("calls", [0, 20])
def test_thread_of_c_ends_though_the_thread_that_joins_it_holds_the_gil(tmp_path: Path, calls: int) -> None:
    source, library = tmp_path / "joiner.c", tmp_path / "joiner.so"
    source.write_text(JOINER)
    words = ["-shared", "-fPIC", "-O1", "-pthread", source, "-o", library]
    subprocess.run([shutil.which("cc") or "gcc", *words], check=True, timeout=SECONDS)
    assert_ends(PROGRAM, str(library), str(calls))


LOCKER = r"""
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint word;  // 1: locked, by who sleeps on it
static atomic_int is_locked, is_mutex, rounds;
static int (*ask)(int*);

static void lock(void) {
    if (is_mutex) pthread_mutex_lock(&mutex);
    else
        while (atomic_exchange(&word, 1)) syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, 0, 0, 0);
}
static void unlock(void) {
    if (is_mutex) pthread_mutex_unlock(&mutex);
    else {
        word = 0;
        syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
    }
}
static void* work(void* none) {
    long wrong = 0;
    lock();
    is_locked = 1;
    usleep(50000);  // until the other thread wants the lock
    for (int i = 0; i < rounds; ++i) {
        int count = 0;
        wrong |= ask(&count) || count != 2;
    }
    unlock();
    return (void*)wrong;
}
int run(int (*function)(int*), int with_mutex) {
    pthread_t thread;
    void* wrong;
    ask = function;
    is_mutex = with_mutex;
    is_locked = 0;
    rounds = 20;
    if (pthread_create(&thread, 0, work, 0)) return -2;
    while (!is_locked) {}
    lock();
    unlock();
    pthread_join(thread, &wrong);
    return (int)(intptr_t)wrong;
}
"""
LOCK_PROGRAM = """
import ctypes, sys
from peerlane.c_abi import directory
library, locker = ctypes.CDLL(f"{directory()}/libcuda.so.1"), sys.argv[1]
assert library.cuInit(0) == 0
for _ in range(3):
    assert ctypes.PyDLL(locker).run(library.cuDeviceGetCount, int(sys.argv[2])) == 0  # it keeps the GIL
print("over")
"""


@pytest.mark.parametrize("kind", ["futex", "mutex"])
def test_thread_of_c_calls_under_a_lock_that_is_awaited_under_the_gil(tmp_path: Path, kind: str) -> None:
    source, library = tmp_path / "locker.c", tmp_path / "locker.so"
    source.write_text(LOCKER)
    words = ["-shared", "-fPIC", "-O1", "-pthread", source, "-o", library]
    subprocess.run([shutil.which("cc") or "gcc", *words], check=True, timeout=SECONDS)
    assert_ends(LOCK_PROGRAM, str(library), str(int(kind == "mutex")))
