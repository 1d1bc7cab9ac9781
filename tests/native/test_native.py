"""The native tests: a program for each sanitizer, ASan with UBSan and TSan, run once for each of its tests."""

from __future__ import annotations

import ctypes.util
import faulthandler
import importlib.util
import os
import sys
from functools import cache
from pathlib import Path

import nanobind
import pytest

from helpers.absent import absent
from native import trees

pytestmark = [pytest.mark.any_schedule, pytest.mark.waits_for_compilers]

RUN_SECONDS, SOAK_SECONDS = 200, 1800
SOURCES = sorted(path.stem for path in Path(__file__).parent.glob("test_*.cpp"))
TEXTS = {name: (Path(__file__).parent / f"{name}.cpp").read_text() for name in SOURCES}
CAMPAIGNS = [name for name in SOURCES if "scaled(" in TEXTS[name]]


@cache
def _build(tree: str) -> Path:
    # `make test` ends a process whose test does not hear its time-out.  A tree takes longer, and has its limit.
    faulthandler.cancel_dump_traceback_later()
    return trees.build(tree)


# TSan cannot leave a signal handler by a jump, which the first do; one thread alone uses the checker.
NOT_UNDER_THREAD = ("test_faults", "test_check")


def _with_trees(names: list[str], *trees: str) -> list[tuple[str, str]]:
    return [
        (tree, name)
        for tree in trees
        for name in names
        if tree != "thread" or not name.startswith(NOT_UNDER_THREAD)
    ]


LONG = ("test_collectives", "test_message_rings", "test_notifies", "test_reductions")


# `make test` leaves out the UBSan checks that double the time of compiling; the last tree has them all.
CASES = [
    *(
        pytest.param(*case, marks=[pytest.mark.takes_long] * (case[1] in LONG))
        for case in _with_trees(SOURCES, "address", "thread")
    ),
    *(pytest.param(*case, marks=pytest.mark.soak) for case in _with_trees(SOURCES, "undefined")),
]


@pytest.mark.timeout(2 * trees.SECONDS + RUN_SECONDS)
@pytest.mark.parametrize(("tree", "name"), CASES)
def test_native_test_under_sanitizer_passes(tree: str, name: str) -> None:
    _run(_build(tree), name, RUN_SECONDS)


@pytest.mark.soak
@pytest.mark.timeout(2 * trees.SECONDS + SOAK_SECONDS)
@pytest.mark.parametrize(("tree", "name"), _with_trees(CAMPAIGNS, "address", "thread"))
def test_native_soak_under_sanitizer_passes(tree: str, name: str) -> None:
    _run(_build(tree), name, SOAK_SECONDS, PEERLANE_SOAK="1")


@pytest.mark.soak
@pytest.mark.timeout(2 * trees.SECONDS)
def test_module_sources_compiled_alone_build() -> None:
    settings = ("-DPEERLANE_BATCHES=OFF", f"-DPython_EXECUTABLE={sys.executable}")
    assert list(
        trees.configured("alone", *settings, f"-Dnanobind_DIR={nanobind.cmake_dir()}").glob("_core.*")
    )


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
    trees.command(*words, seconds=seconds, **options, **extra)


def _libucp() -> str:
    wheel = importlib.util.find_spec("libucx")
    library = os.environ.get("PEERLANE_UCX") or (
        str(Path(*wheel.submodule_search_locations) / "lib" / "libucp.so.0")
        if wheel and wheel.submodule_search_locations
        else ctypes.util.find_library("ucp")
    )
    if not library:
        absent("libucp is not installed")
    return library


def test_native_sources_exist() -> None:
    assert len(SOURCES) >= 7, SOURCES
