"""The reference page, which ``make reference`` makes from the agent's docstrings, and the vendor's 40 methods."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from peerlane.dialects.nixl._api import nixl_agent
from reference_pages import methods, nixl

pytestmark = pytest.mark.any_schedule

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "nixl.md").read_text()


def test_nixl_reference_page_equals_docstrings() -> None:
    assert nixl.page(PAGE) == PAGE, "run `make reference`"


def test_nixl_reference_page_lists_each_of_the_40_methods_once() -> None:
    assert sorted(re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE)) == sorted(methods.names(nixl_agent))
    assert len(methods.names(nixl_agent)) == 40
