"""The reference page, which ``make reference`` makes from the engine's docstrings, and the vendor's 30 methods."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from peerlane.dialects.mooncake.engine import TransferEngine
from reference_pages import methods, mooncake

pytestmark = pytest.mark.any_schedule

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "mooncake.md").read_text()


def test_mooncake_reference_page_equals_docstrings() -> None:
    assert mooncake.page(PAGE) == PAGE, "run `make reference`"


def test_mooncake_reference_page_lists_each_of_the_30_methods_once() -> None:
    assert sorted(re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE)) == sorted(methods.names(TransferEngine))
    assert len(methods.names(TransferEngine)) == 30
