"""How a back-end is found by its name: peerlane's own, entry points of installed packages, registered ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import peerlane as pl
from peerlane.backend import registry
from peerlane.backends.reference import FACTORY
from peerlane.testing.procs import Completed, run_python

pytestmark = pytest.mark.any_schedule

MODULE = """
from peerlane.backends.reference.backend import ReferenceBackend, ReferenceFactory

class Drawer(ReferenceBackend):
    name = "drawer"

class Factory(ReferenceFactory):
    def enter(self, config, present):
        return present or Drawer(config)

FACTORY = Factory()
"""
PROGRAM = """
import sys
import peerlane as pl
with pl.devices()[0].allocate(4) as buffer:
    buffer.fill(7)
    print([each.name for each in pl.devices()], bytes(buffer.view()), pl.Device("drawer:0").name)
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a folder for ``sys.path`` where a distribution with an entry point is installed."""
    info = tmp_path / "drawer-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: drawer\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[peerlane.backends]\ndrawer = drawer_module:FACTORY\n")
    (tmp_path / "drawer_module.py").write_text(MODULE)
    return tmp_path


def _run(folder: Path, node: str) -> Completed:
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "PEERLANE_NODE": node}
    return run_python(["-c", PROGRAM], timeout=60, env=environment)


def test_backend_of_installed_package_is_entered_by_its_name(installed: Path) -> None:
    done = _run(installed, "backend=drawer,devices=2")
    expected = r"['drawer:0', 'drawer:1'] b'\x07\x07\x07\x07' drawer:0"
    assert done.stdout.strip() == expected, done.stderr
    beside = _run(installed, "backend=reference,devices=1")
    assert beside.stdout.strip() == r"['reference:0'] b'\x07\x07\x07\x07' drawer:0", beside.stderr


def test_unknown_backend_name_is_refused_listing_installed_packages(installed: Path) -> None:
    done = _run(installed, "backend=draw")
    text = (
        "PEERLANE_NODE: backend is 'draw' (did you mean 'drawer'?); valid are virtual, reference, drawer, and"
    )
    assert done.returncode == 1 and text in done.stderr


def test_backend_of_package_that_cannot_be_imported_is_refused_with_reason(installed: Path) -> None:
    (installed / "drawer_module.py").write_text("import a_driver_that_is_missing\n")
    done = _run(installed, "backend=drawer")
    text = (
        "PEERLANE_NODE: back-end 'drawer' cannot be loaded: its entry point 'drawer_module:FACTORY' raised "
        "ModuleNotFoundError: No module named 'a_driver_that_is_missing'"
    )
    assert done.returncode == 1 and text in done.stderr


@pytest.mark.parametrize("name", ["virtual", "reference", "a b", "", "x=y", 3])
def test_register_wrong_name_raises_invalid_value(name: object) -> None:
    with pytest.raises(pl.InvalidValue, match="valid are letters, digits"):
        registry.register(name, FACTORY)  # type: ignore[arg-type]
