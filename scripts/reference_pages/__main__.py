"""Write the pages of every dialect into the checkout."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from peerlane.dialects import registered

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "reference"


def main() -> None:
    """Write all: the module of a dialect's name makes its page anew."""
    for name in registered():
        page = PAGES / f"{name}.md"
        page.write_text(import_module(f"reference_pages.{name}").page(page.read_text()))


if __name__ == "__main__":
    main()
