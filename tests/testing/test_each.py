"""A test of many values names each that failed."""

from __future__ import annotations

import pytest

from helpers.each import for_each

pytestmark = pytest.mark.any_schedule


@for_each("number", range(12))
def odd(number: int, tens: int) -> None:
    assert number % 2, f"{tens + number} is even"


@for_each("text, length", [("a", 1), pytest.param("bb", 3, id="b"), ("ccc", 3)])
def lengths(text: str, length: int) -> None:
    with pytest.raises(AssertionError):
        assert len(text) != length


def test_each_value_that_fails_is_named_and_some_are_shown() -> None:
    with pytest.raises(AssertionError) as failed:
        odd(tens=10)
    text = str(failed.value)
    assert text.startswith("6 failed: (0,), (2,), (4,), (6,), (8,), (10,)\n")
    assert "AssertionError: 18 is even" in text
    assert "20 is even" not in text


def test_each_value_may_be_a_row_or_a_param_and_raises_count_too() -> None:
    with pytest.raises(AssertionError, match=r"^1 failed: \('bb', 3\)\n"):
        lengths()


@for_each("value", [1, 2])
def test_each_leaves_fixtures_to_pytest(value: int, tmp_path: object) -> None:
    assert value and tmp_path
