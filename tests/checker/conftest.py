"""The schedules under which the checker is tried."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["eager", "lazy", "seeded:7"])
def each_schedule(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the programs of a test run under each schedule in turn."""
    monkeypatch.setenv("PEERLANE_SCHEDULE", request.param)
