"""What all tests of the dialect mooncake have in common."""

from __future__ import annotations

import pytest

from peerlane.dialects import mooncake


@pytest.fixture(autouse=True)
def _no_failures() -> None:
    """Forget the failed calls of earlier tests."""
    mooncake.explain()
