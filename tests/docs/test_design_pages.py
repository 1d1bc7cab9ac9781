"""The pages for contributors name files of this repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_schedule

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "native", "tests", "scripts", "benchmarks", "examples", "docs")
PAGES = (
    "docs/architecture.md",
    *(f"docs/design/{page.name}" for page in (ROOT / "docs/design").glob("*.md")),
)
ELSEWHERE = {  # files of vendors' repositories
    *("hip_deviceattributes.py", "hip_deviceproperties.py", "hip_stream.py"),
    *("query_mem_example.py", "test_nixl_bindings.py"),
}


def test_each_file_that_a_design_page_names_is_there() -> None:
    files = [f"/{path.relative_to(ROOT)}" for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")]
    files += [f"/{path.name}" for path in ROOT.iterdir()]
    lost = [
        f"{page}: {name}"
        for page in PAGES
        for name in re.findall(r"`([\w./-]+\.(?:py|pyi|cpp|h|md|txt|toml))`", (ROOT / page).read_text())
        if name not in ELSEWHERE and not any(path.endswith(f"/{name}") for path in files)
    ]
    assert not lost, "\n".join(lost)
