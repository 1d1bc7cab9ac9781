"""The reference page, which is made of the headers and the tables of calls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from peerlane.dialects._shared.c_names import declarations_of
from reference_pages import cuda as pages
from reference_pages import tables

pytestmark = pytest.mark.any_schedule
PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "cuda.md").read_text()
HEADERS = {"driver": ["cuda"], "runtime": ["cudart", "cudart12"], "nvml": ["nvml"], "nccl": ["nccl"]}


def test_cuda_reference_page_equals_headers_and_tables_of_calls() -> None:
    assert pages.page(PAGE) == PAGE, "run `make reference`"


@pytest.mark.parametrize("part", HEADERS)
def test_cuda_reference_page_lists_each_function_of_a_library_once(part: str) -> None:
    text = tables.part_of(PAGE, part)
    works = re.findall(r"^\| `(\w+)\(", text, re.MULTILINE)
    refuses = re.findall(r"`(\w+)`", re.sub(r"^\|.*", "", text, flags=re.MULTILINE))
    assert len(set(works)) == len(works)
    assert not set(works) & set(refuses)
    functions = {
        name: each
        for header in HEADERS[part]
        for name, each in declarations_of("cuda", header).functions.items()
    }
    variants = {f"{each.name}_{each.variant}" for each in functions.values() if each.variant}
    assert {*works, *refuses} == set(functions) - variants


def test_cuda_reference_page_counts_functions_that_work() -> None:
    for part in HEADERS:
        text = tables.part_of(PAGE, part)
        counts = re.findall(r"\*\*(\d+) (?:work|refuse)", text)
        assert [int(each) for each in counts] == [
            len(re.findall(r"^\| `", text, re.MULTILINE)),
            len(re.findall(r"`\w+`", re.sub(r"^\|.*", "", text, flags=re.MULTILINE))),
        ]
