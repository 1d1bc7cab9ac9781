"""What tests of several machines need: UCX, and what makes networks.

Without it they are skipped by name.  ``PEERLANE_NEEDS_NAMESPACES=1`` says that this machine has all of it: then they
fail instead.
"""

from __future__ import annotations

import importlib.util
import os
from typing import NoReturn

import pytest

_IS_PROMISED = os.environ.get("PEERLANE_NEEDS_NAMESPACES", "0") != "0"

needs_engine = pytest.mark.skipif(
    not (_IS_PROMISED or importlib.util.find_spec("libucx") or os.environ.get("PEERLANE_UCX")),
    reason="UCX is not installed (pip install peerlane[ucx])",
)


def absent(reason: str) -> NoReturn:
    """Skip the test, or fail it where this machine promised what is missing."""
    if _IS_PROMISED:
        pytest.fail(f"PEERLANE_NEEDS_NAMESPACES is set: {reason}")
    pytest.skip(reason)
