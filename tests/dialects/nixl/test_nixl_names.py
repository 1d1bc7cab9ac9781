"""The names under which the dialect nixl is imported, where it refuses to stand, and its fixture."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from helpers.inner_pytest import run
from helpers.prepared import run_python
from peerlane.testing.procs import Completed

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]

IMPORTS = """
import nixl, nixl._api, nixl._bindings, nixl._utils, nixl.logging
from rixl._api import nixl_agent as one
from nixl_cu12._api import nixl_agent as two, nixl_agent_config
from nixl_cu13 import nixl_agent as three
from nixl import nixl_agent as four, nixlNotFoundError, NIXL_SUCCESS, malloc_passthru, get_logger
from nixl._bindings import nixlXferTelemetry
assert one is two is three is four is nixl._api.nixl_agent
print(sorted(name for name in vars(nixl._api) if name.startswith("nixl_")))
"""

#: A stand-in for the vendor's driver, with so many devices.
DRIVER = """
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = %d; return 0; }
"""


def _run(tmp_path: Path, *words: str, devices: int = 0) -> Completed:
    """Run a program beside a vendor's package and a driver with so many devices."""
    real = tmp_path / "real"
    (real / "nixl").mkdir(parents=True)
    (real / "nixl" / "__init__.py").write_text("print('the real one')\n")
    source = tmp_path / "driver.c"
    source.write_text(DRIVER % devices)
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True, timeout=60)
    env = {name: value for name, value in os.environ.items() if "PEERLANE" not in name}
    env |= {"PYTHONPATH": str(real), "LD_LIBRARY_PATH": str(tmp_path)}
    return run_python(["-m", "peerlane", "run", *words], timeout=60, env=env, cwd=tmp_path)


def test_nixl_modules_are_served_under_the_names_of_each_package() -> None:
    done = run_python(["-m", "peerlane", "run", "--dialect", "nixl", "-c", IMPORTS], timeout=60)
    assert done.returncode == 0, done.stderr
    wanted = "['nixl_agent', 'nixl_agent_config', 'nixl_backend_handle', 'nixl_mem_t', 'nixl_prepped_dlist_handle', "
    assert done.stdout.startswith(wanted), done.stdout


LINES = """
from nixl.logging import get_logger
logger = get_logger("_program")
assert logger.name == "nixl.program"
for level in "debug", "info", "warning":
    getattr(logger, level)("a line of level %s", level)
"""


@pytest.mark.parametrize(
    "level, wanted", [(None, ["INFO", "WARNING"]), ("WARN", ["WARNING"]), ("DEBUG", ["INFO", "WARNING"])]
)
def test_nixl_loggers_write_the_lines_of_a_program_to_standard_output_once(
    level: str | None, wanted: list[str]
) -> None:
    env = {name: value for name, value in os.environ.items() if name != "NIXL_LOG_LEVEL"}
    env |= {} if level is None else {"NIXL_LOG_LEVEL": level}
    program = "import logging; logging.basicConfig(level=logging.INFO)\n" + LINES
    done = run_python(["-m", "peerlane", "run", "--dialect", "nixl", "-c", program], timeout=60, env=env)
    assert done.returncode == 0, done.stderr
    assert [line.split()[3] for line in done.stdout.splitlines()] == wanted
    assert all(f"a line of level {each.lower()}" in done.stdout for each in wanted)
    assert "a line" not in done.stderr


def test_nixl_real_package_without_a_device_is_shadowed(tmp_path: Path) -> None:
    done = _run(tmp_path, "--dialect", "nixl", "-c", "import nixl; print(nixl.__name__)")
    assert (done.returncode, done.stdout) == (0, "peerlane.dialects.nixl\n"), done.stderr


def test_nixl_real_package_with_a_device_is_refused_unless_it_is_to_be_shadowed(tmp_path: Path) -> None:
    done = _run(tmp_path, "--dialect", "nixl", "-c", "import nixl", devices=1)
    assert done.returncode != 0
    assert "cannot install dialect 'nixl'" in done.stderr and "--shadow-real" in done.stderr


def test_nixl_fixture_gives_fresh_devices_and_names_what_a_test_left(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        import pytest

        kept = []

        @pytest.mark.peerlane(devices=3)
        def test_agent(nixl, peerlane_node):
            from rixl._api import nixl_agent
            assert nixl.nixl_agent is nixl_agent
            buffer = peerlane_node[2].allocate(64)
            agent = nixl_agent("a")
            agent.register_memory([(buffer.address, 64, 2, "")], "VRAM")
            assert agent.get_agent_metadata()

        def test_leaks(nixl, peerlane_node):
            buffer = peerlane_node[0].allocate(64)
            agent = nixl.nixl_agent("left over")
            agent.register_memory([(buffer.address, 64, 0, "")], "VRAM")
            kept.extend([agent, buffer])
        """,
    )
    done.assert_outcomes(passed=2, errors=1)
    text = done.stdout.str()
    assert "registered memory" in text and "left over" in text
    assert "deregister_memory" in text
