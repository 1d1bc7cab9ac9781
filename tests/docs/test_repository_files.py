"""Files that GitHub and contributors read: issue forms, policies, hooks, the list of changes."""

from __future__ import annotations

import re
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import yaml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = pytest.mark.any_schedule

ROOT = Path(__file__).parents[2]
PAGES = (
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    ".github/PULL_REQUEST_TEMPLATE.md",
)
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def _read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


@pytest.mark.parametrize("page", PAGES)
def test_page_of_repository_links_files_that_are_there(page: str) -> None:
    directory = (ROOT / page).parent
    links = re.findall(r"\]\((?!http)([^)#\s]+)", (ROOT / page).read_text())
    assert [link for link in links if not (directory / link).exists()] == []


def test_bug_form_requires_program_output_and_text_of_doctor() -> None:
    form = _read(".github/ISSUE_TEMPLATE/bug.yml")
    required = {each["id"] for each in form["body"] if each.get("validations", {}).get("required")}
    assert required == {"program", "happens", "expected", "doctor"}
    (doctor,) = (each for each in form["body"] if each.get("id") == "doctor")
    assert "peerlane doctor" in doctor["attributes"]["label"]


def test_pre_commit_fetches_no_repository_and_runs_what_make_test_runs() -> None:
    repos = _read(".pre-commit-config.yaml")["repos"]
    assert {each["repo"] for each in repos} == {"local"}
    hooks = {hook["id"]: hook for each in repos for hook in each["hooks"]}
    makefile = (ROOT / "Makefile").read_text()
    for name, command in (("ruff", "-m ruff check"), ("ruff-format", "-m ruff format"), ("mypy", "-m mypy")):
        assert hooks[name]["language"] == "system" and command in hooks[name]["entry"]
        assert command in makefile
    for hook in hooks.values():
        if hook["language"] != "system":
            assert all(re.fullmatch(r"[\w-]+==[\d.]+", each) for each in hook["additional_dependencies"])


def test_citation_and_package_name_one_licence() -> None:
    citation = _read("CITATION.cff")
    assert f'license = "{citation["license"]}"' in (ROOT / "pyproject.toml").read_text()
    assert "version" not in citation  # it would be a second place for it


def test_recipe_of_conda_requires_what_the_package_does() -> None:
    package, recipe = (
        tomllib.loads((ROOT / "pyproject.toml").read_text()),
        _read(".ci/conda-forge/recipe.yaml"),
    )

    def plain(requirements: list[Any]) -> set[str]:
        """Return requirements without spaces and conditions; those of conda's own tools are left out."""
        listed = (each["then"] if isinstance(each, dict) else each.partition(";")[0] for each in requirements)
        return {each.replace(" ", "") for each in listed if not each.startswith("${{")} - {"python", "pip"}

    required = {name: plain(each) for name, each in recipe["requirements"].items()}
    assert required["run"] == plain(package["project"]["dependencies"])
    assert required["host"] == plain(package["build-system"]["requires"])
    assert required["host"] | required["build"] == plain(package["dependency-groups"]["build"])
    [entry] = recipe["build"]["python"]["entry_points"]
    assert entry.split(" = ") == [*package["project"]["scripts"].popitem()]
    assert recipe["about"]["license"] == package["project"]["license"]
    assert recipe["about"]["summary"] == package["project"]["description"]


def test_changelog_keeps_the_form_of_keep_a_changelog() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    releases = [line for line in lines if line.startswith("## ")]
    assert releases[0] == "## [Unreleased]"
    assert all(re.fullmatch(r"## \[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", each) for each in releases[1:])
    for at, line in enumerate(lines):
        if line.startswith("## "):
            kinds = [
                each.removeprefix("### ")
                for each in takewhile(lambda each: not each.startswith("## "), lines[at + 1 :])
                if each.startswith("### ")
            ]
            assert kinds and set(kinds) <= KINDS and len(kinds) == len(set(kinds))
