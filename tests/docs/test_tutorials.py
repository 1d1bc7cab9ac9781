"""The tutorials beside that of the KV cache, done as they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.documented import follow

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(240)]

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorial"


@pytest.mark.parametrize(
    ("name", "commands"),
    [("all-reduce", 4), ("ascend-ring", 3), ("two-devices", 3)],
    ids=lambda each: str(each),
)
def test_tutorial_shows_its_mistake_and_its_repair(name: str, commands: int, tmp_path: Path) -> None:
    assert len(follow((TUTORIALS / f"{name}.md").read_text(), tmp_path)) == commands


def test_tutorials_are_in_the_navigation_and_on_the_first_page() -> None:
    navigation, first = ((TUTORIALS.parent / name).read_text() for name in ("../mkdocs.yml", "index.md"))
    for page in TUTORIALS.glob("*.md"):
        assert f"tutorial/{page.name}" in navigation
        assert f"(tutorial/{page.name})" in first
