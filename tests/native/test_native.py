"""The native tests: plain executables, built and run under ASan with UBSan and under TSan."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SANITIZERS = {"address": "address,undefined", "thread": "thread"}
BUILD_SECONDS, RUN_SECONDS, SOAK_SECONDS = 600, 200, 1800
SOURCES = sorted(path.stem for path in Path(__file__).parent.glob("test_*.cpp"))
CAMPAIGNS = [name for name in SOURCES if "scaled(" in (Path(__file__).parent / f"{name}.cpp").read_text()]


def _command(*words: str, seconds: int, **extra: str) -> None:
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=seconds, env=os.environ | extra, check=False
    )
    assert done.returncode == 0, f"{' '.join(words)} ended with {done.returncode}\n{done.stdout}{done.stderr}"


@pytest.fixture(scope="module", params=SANITIZERS)
def build(request: pytest.FixtureRequest) -> Path:
    folder = ROOT / "build" / f"native-{request.param}"
    settings = ("-DPEERLANE_NATIVE_TESTS=ON", "-DCMAKE_BUILD_TYPE=RelWithDebInfo")
    sanitize = f"-DPEERLANE_SANITIZE={SANITIZERS[request.param]}"
    _command(
        "cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", sanitize, *settings, seconds=BUILD_SECONDS
    )
    _command("cmake", "--build", str(folder), seconds=BUILD_SECONDS)
    return folder


def _run(build: Path, name: str, seconds: int, **extra: str) -> None:
    if "thread" in build.name and name.startswith("test_faults"):
        pytest.skip("TSan cannot leave a signal handler by a jump, which is what these tests do")
    options = {"UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1", "TSAN_OPTIONS": "halt_on_error=1"}
    _command(str(build / name), seconds=seconds, **options, **extra)


@pytest.mark.timeout(BUILD_SECONDS + RUN_SECONDS)
@pytest.mark.parametrize("name", SOURCES)
def test_native(build: Path, name: str) -> None:
    _run(build, name, RUN_SECONDS)


@pytest.mark.soak
@pytest.mark.timeout(BUILD_SECONDS + SOAK_SECONDS)
@pytest.mark.parametrize("name", CAMPAIGNS)
def test_native_campaign(build: Path, name: str) -> None:
    _run(build, name, SOAK_SECONDS, PEERLANE_SOAK="1")


def test_every_source_was_found() -> None:
    assert len(SOURCES) >= 7, SOURCES
