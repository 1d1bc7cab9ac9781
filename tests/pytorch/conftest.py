"""Programs of torch, in a folder of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.torch_ranks import Programs


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)
