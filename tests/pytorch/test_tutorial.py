"""The tutorial of two GPUs of torch, done as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.documented import follow
from helpers.torch_ranks import needs_torch

needs_torch()

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "torch-two-gpus.md"


def test_tutorial_of_torch_shows_its_mistake_and_its_repair(tmp_path: Path) -> None:
    assert len(follow(PAGE.read_text(), tmp_path)) == 3
