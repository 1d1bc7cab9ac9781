"""Names of other libraries: the texts name what peerlane has."""

from __future__ import annotations

import re

import pytest

import peerlane as pl
from peerlane.support.other_libraries import MEANT

pytestmark = pytest.mark.any_schedule

#: Attributes that only objects have.
OF_OBJECTS = {"Group.rank", "Group.size"}


def _names(text: str) -> list[str]:
    """Return what a text of code names: ``copy``, ``Device.sync``."""
    dotted: list[str] = re.findall(r"\b[A-Z]\w*\.\w+", text)
    first = re.match(r"\w+(?=\()", text)
    return dotted + ([first.group()] if first else [])


def test_text_for_each_name_names_what_peerlane_has() -> None:
    unknown = []
    for (kind, name), text in MEANT.items():
        owner = pl if kind == "peerlane" else getattr(pl, kind)
        assert not hasattr(owner, name), f"{kind}.{name} is peerlane's own"
        named = _names(text)
        assert named, f"{kind}.{name}: {text!r} names nothing"
        for each in named:
            first, _, second = each.partition(".")
            if each not in OF_OBJECTS and not hasattr(getattr(pl, first), second or "__doc__"):
                unknown.append(f"{kind}.{name}: {each}")
    assert unknown == []


def test_name_of_another_library_in_the_module_is_explained() -> None:
    with pytest.raises(AttributeError, match=r"'memcpy'; peerlane has copy\(dst, src, stream=\.\.\.\)"):
        _ = pl.memcpy  # type: ignore[attr-defined]
