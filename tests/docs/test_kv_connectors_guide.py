"""The tests of the guide to KV connectors pass as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.inner_pytest import run

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "kv-connectors.md").read_text()


PROGRAMS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS, ids=["blocks", "file tier"])
def test_kv_connectors_guide_test_passes(pytester: pytest.Pytester, program: str) -> None:
    run(pytester, program).assert_outcomes(passed=1)
