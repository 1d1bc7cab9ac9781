"""The test of the guide to KV connectors passes as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.inner_pytest import run

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "kv-connectors.md").read_text()


def test_kv_connectors_guide_test_passes(pytester: pytest.Pytester) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    run(pytester, program).assert_outcomes(passed=1)
