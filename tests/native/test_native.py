"""The native tests: a program for each sanitizer, ASan with UBSan and TSan, run once for each of its tests."""

from __future__ import annotations

import ctypes.util
import fcntl
import importlib.util
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import nanobind
import pytest

from helpers.absent import absent

pytestmark = pytest.mark.any_schedule

ROOT = Path(__file__).parents[2]
SANITIZERS = {"address": "address,undefined", "thread": "thread", "undefined": "undefined"}
BUILD_SECONDS, RUN_SECONDS, SOAK_SECONDS = 1200, 200, 1800
SOURCES = sorted(path.stem for path in Path(__file__).parent.glob("test_*.cpp"))
TEXTS = {name: (Path(__file__).parent / f"{name}.cpp").read_text() for name in SOURCES}
CAMPAIGNS = [name for name in SOURCES if "scaled(" in TEXTS[name]]


def _command(*words: str, seconds: int, **extra: str) -> None:
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=seconds, env=os.environ | extra, check=False
    )
    assert done.returncode == 0, f"{' '.join(words)} ended with {done.returncode}\n{done.stdout}{done.stderr}"


@cache
def _build(tree: str) -> Path:
    """Build a tree; `make soak` builds the last one source by source, which finds missing includes."""
    batches = "OFF" if tree == "undefined" else "ON"
    return _made(
        tree,
        "-DPEERLANE_NATIVE_TESTS=ON",
        f"-DPEERLANE_SANITIZE={SANITIZERS[tree]}",
        f"-DPEERLANE_BATCHES={batches}",
    )


def _made(tree: str, *settings: str) -> Path:
    """Configure and build a folder; of several workers one builds it, and the others wait at its lock."""
    folder = ROOT / "build" / f"native-{tree}"
    folder.mkdir(parents=True, exist_ok=True)
    at_once = str(os.cpu_count() or 1)  # both trees may be built at once, and compilers need memory
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _command("cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", *settings, seconds=BUILD_SECONDS)
        _command("cmake", "--build", str(folder), "--parallel", at_once, seconds=BUILD_SECONDS)
    return folder


# TSan cannot leave a signal handler by a jump, which the first do; one thread alone uses the checker.
NOT_UNDER_THREAD = ("test_faults", "test_check")


def _with_trees(names: list[str], *trees: str) -> list[tuple[str, str]]:
    return [
        (tree, name)
        for tree in trees
        for name in names
        if tree != "thread" or not name.startswith(NOT_UNDER_THREAD)
    ]


# `make test` leaves out the UBSan checks that double the time of compiling; the last tree has them all.
CASES = [
    *_with_trees(SOURCES, "address", "thread"),
    *(pytest.param(*case, marks=pytest.mark.soak) for case in _with_trees(SOURCES, "undefined")),
]


@pytest.mark.timeout(2 * BUILD_SECONDS + RUN_SECONDS)
@pytest.mark.parametrize(("tree", "name"), CASES)
def test_native_test_under_sanitizer_passes(tree: str, name: str) -> None:
    _run(_build(tree), name, RUN_SECONDS)


@pytest.mark.soak
@pytest.mark.timeout(2 * BUILD_SECONDS + SOAK_SECONDS)
@pytest.mark.parametrize(("tree", "name"), _with_trees(CAMPAIGNS, "address", "thread"))
def test_native_soak_under_sanitizer_passes(tree: str, name: str) -> None:
    _run(_build(tree), name, SOAK_SECONDS, PEERLANE_SOAK="1")


@pytest.mark.soak
@pytest.mark.timeout(2 * BUILD_SECONDS)
def test_module_sources_compiled_alone_build() -> None:
    settings = ("-DPEERLANE_BATCHES=OFF", f"-DPython_EXECUTABLE={sys.executable}")
    assert list(_made("alone", *settings, f"-Dnanobind_DIR={nanobind.cmake_dir()}").glob("_core.*"))


def _run(build: Path, name: str, seconds: int, **extra: str) -> None:
    # A child that is forked before first use starts threads, which TSan refuses without this option.
    thread = "halt_on_error=1:die_after_fork=0"
    if "PEERLANE_UCX" in TEXTS[name]:
        extra["PEERLANE_UCX"] = _libucp()
    options = {
        # LeakSanitizer of GCC 13 and older takes some thread-local blocks of dlopen'ed libraries (UCX) for
        # blocks with a header, which glibc has not written since 2.25, and crashes at its end.
        "ASAN_OPTIONS": "intercept_tls_get_addr=0",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "TSAN_OPTIONS": thread,
    }
    words = [str(build / name)] if "int main(" in TEXTS[name] else [str(build / "native_tests"), name]
    _command(*words, seconds=seconds, **options, **extra)


def _libucp() -> str:
    wheel = importlib.util.find_spec("libucx")
    found = os.environ.get("PEERLANE_UCX") or (
        str(Path(*wheel.submodule_search_locations) / "lib" / "libucp.so.0")
        if wheel and wheel.submodule_search_locations
        else ctypes.util.find_library("ucp")
    )
    if not found:
        absent("libucp is not installed")
    return found


def test_native_sources_are_found() -> None:
    assert len(SOURCES) >= 7, SOURCES
