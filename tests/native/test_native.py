"""The native tests: executables, built and run under ASan with UBSan and under TSan."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_schedule

ROOT = Path(__file__).parents[2]
SANITIZERS = {"address": "address,undefined", "thread": "thread", "undefined": "undefined"}
BUILD_SECONDS, RUN_SECONDS, SOAK_SECONDS = 1200, 200, 1800
SOURCES = sorted(path.stem for path in Path(__file__).parent.glob("test_*.cpp"))
CAMPAIGNS = [name for name in SOURCES if "scaled(" in (Path(__file__).parent / f"{name}.cpp").read_text()]


def _command(*words: str, seconds: int, **extra: str) -> None:
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=seconds, env=os.environ | extra, check=False
    )
    assert done.returncode == 0, f"{' '.join(words)} ended with {done.returncode}\n{done.stdout}{done.stderr}"


@pytest.fixture(scope="class")
def build(request: pytest.FixtureRequest) -> Path:
    tree = request.cls.tree
    folder = ROOT / "build" / f"native-{tree}"
    settings = ("-DPEERLANE_NATIVE_TESTS=ON", f"-DPEERLANE_SANITIZE={SANITIZERS[tree]}")
    _command("cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", *settings, seconds=BUILD_SECONDS)
    at_once = str(os.cpu_count() or 1)  # both trees may be built at once: bound the compilers' memory
    _command("cmake", "--build", str(folder), "--parallel", at_once, seconds=BUILD_SECONDS)
    return folder


class _Executables:
    """A class for each tree: xdist gives a class to one worker, and two workers must not build one tree."""

    tree: str

    @pytest.mark.timeout(BUILD_SECONDS + RUN_SECONDS)
    @pytest.mark.parametrize("name", SOURCES)
    def test_native_executable_under_sanitizer_passes(self, build: Path, name: str) -> None:
        _run(build, name, RUN_SECONDS)

    @pytest.mark.soak
    @pytest.mark.timeout(BUILD_SECONDS + SOAK_SECONDS)
    @pytest.mark.parametrize("name", CAMPAIGNS)
    def test_native_soak_under_sanitizer_passes(self, build: Path, name: str) -> None:
        _run(build, name, SOAK_SECONDS, PEERLANE_SOAK="1")


class TestAddress(_Executables):
    tree = "address"


class TestThread(_Executables):
    tree = "thread"


@pytest.mark.soak
class TestUndefined(_Executables):
    """All of UBSan: the tree under ASan leaves out the checks that double the time of compiling."""

    tree = "undefined"


def _run(build: Path, name: str, seconds: int, **extra: str) -> None:
    if "thread" in build.name and name.startswith("test_faults"):
        pytest.skip("TSan cannot leave a signal handler by a jump, which is what these tests do")
    # A child that is forked before first use starts threads, which TSan refuses without this option.
    thread = "halt_on_error=1:die_after_fork=0"
    options = {"UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1", "TSAN_OPTIONS": thread}
    _command(str(build / name), seconds=seconds, **options, **extra)


def test_native_sources_are_found() -> None:
    assert len(SOURCES) >= 7, SOURCES


def test_native_trees_cover_each_sanitizer() -> None:
    assert {each.tree for each in _Executables.__subclasses__()} == set(SANITIZERS)
