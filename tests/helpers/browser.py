"""A Chromium that is on this machine; tests that need one are skipped by name where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NEEDS_BROWSER = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
_WORDS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-sync",
)


@contextmanager
def running() -> Iterator[Any]:
    """Start the browser, and end it behind the block."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tools:
        started = tools.chromium.launch(executable_path=CHROMIUM, args=_WORDS)
        yield started
        started.close()
