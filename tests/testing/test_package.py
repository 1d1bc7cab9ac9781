"""The names of `peerlane.testing`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from peerlane import testing
from peerlane.testing import CollectiveCheck, FreshNode, run_python
from peerlane.testing.collective_check import CollectiveCheck as SameCheck
from peerlane.testing.procs import run_python as same_function

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]


def test_each_name_is_that_of_its_module() -> None:
    assert CollectiveCheck is SameCheck and run_python is same_function
    assert {name: getattr(testing, name).__name__ for name in dir(testing)} == {
        name: name for name in dir(testing)
    }
    assert FreshNode.__name__ in dir(testing)


def test_unknown_name_has_a_hint() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'CollectivCheck'; close names: CollectiveCheck"):
        _ = testing.CollectivCheck
    assert not hasattr(testing, "_CollectiveCheck")


def test_import_brings_no_module_before_a_name_is_used() -> None:
    program = "import sys, peerlane.testing; sys.exit('numpy' in sys.modules or 'subprocess' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
