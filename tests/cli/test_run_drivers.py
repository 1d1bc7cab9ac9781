"""``peerlane run`` where a vendor's own driver is on the machine: programs mean that, unless they are told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from peerlane.dialects import manifest_of, registered
from peerlane.testing.procs import Completed, run_python

pytestmark = pytest.mark.any_schedule
SECONDS = 60
#: ``peerlane`` on a machine where a file of CUDA's driver is.
PEERLANE = """
import sys
from peerlane.dialects import manifest_of
object.__setattr__(manifest_of("cuda"), "drivers", ("/nowhere", sys.argv.pop(1)))
from peerlane.cli import main
sys.exit(main())
"""
#: Tells which libraries of vendors a program loads by name, by a number for each.
PROGRAM = """
import ctypes, sys
code = 0
for at, name in enumerate(("libcuda.so.1", "libnvidia-ml.so.1", "libamdhip64.so", "libascendcl.so")):
    try:
        ctypes.CDLL(name)
    except OSError:
        continue
    code |= 1 << at
sys.exit(code)
"""
CUDA, OTHERS = 0b0011, 0b1100


@pytest.fixture
def run(tmp_path: Path) -> object:
    def call(*words: str, has_driver: bool = True) -> Completed:
        driver = tmp_path / "driver"
        if has_driver:
            driver.touch()
        env = {name: value for name, value in os.environ.items() if "PEERLANE" not in name}
        env |= {"PEERLANE_RUNTIME_DIR": str(tmp_path / "runtime"), "PEERLANE_NODE": "devices=1"}
        return run_python(["-c", PEERLANE, str(driver), *words], timeout=SECONDS, env=env, cwd=tmp_path)

    return call


@pytest.mark.parametrize(
    ("words", "has_driver", "loads"),
    [
        ((), False, CUDA | OTHERS),
        ((), True, OTHERS),
        (("--dialect", "cuda"), True, CUDA | OTHERS),
        (("--shadow-real",), True, CUDA | OTHERS),
        (("--dialect", "hip"), True, OTHERS),
    ],
)
@pytest.mark.parametrize("is_child", [False, True], ids=["the program", "its child"])
def test_libraries_of_a_vendor_whose_driver_is_there_are_not_put_first_unasked(
    run, words: tuple[str, ...], has_driver: bool, loads: int, is_child: bool
) -> None:
    program = PROGRAM
    if is_child:
        program = f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {PROGRAM!r}]).returncode)"
    done = run("run", *words, "-c", program, has_driver=has_driver)
    assert done.returncode == loads, done.stderr


def test_ranks_do_not_get_the_libraries_of_a_vendor_whose_driver_is_there(run) -> None:
    program = PROGRAM.replace("sys.exit(code)", f"sys.exit(code != {OTHERS})")
    assert run("launch", "-n", "2", "-c", program).returncode == 0


def test_manifests_name_whole_paths_of_drivers() -> None:
    assert manifest_of("cuda").drivers
    assert all(path.startswith("/") for name in registered() for path in manifest_of(name).drivers)
