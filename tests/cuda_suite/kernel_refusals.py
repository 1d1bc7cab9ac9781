"""A plugin of pytest: the report of a test has the calls of the test that peerlane refused for their kernels."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

import pytest

#: The property of a test in the report: the names of the calls.
PROPERTY = "calls refused for kernels"


def _refused() -> Counter[str]:
    kernels = sys.modules.get("peerlane.dialects.cuda.kernels")  # a test that calls nothing imports nothing
    return Counter(kernels.refused) if kernels else Counter()


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Remember what was refused before the test."""
    item.stash[_BEFORE] = _refused()
    yield


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Add the property when the test's teardown is over; only the report of that part comes later."""
    yield
    if calls := _refused() - item.stash[_BEFORE]:
        item.user_properties.append((PROPERTY, ", ".join(calls)))


_BEFORE = pytest.StashKey[Counter[str]]()
