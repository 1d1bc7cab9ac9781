"""Prints a line for each dialect of peerlane that has C libraries: its name and those of the libraries."""

from __future__ import annotations

from sources import PACKAGE, use_sources

use_sources()

from peerlane.dialects._shared.hook import read_manifest  # noqa: E402


def main() -> None:
    """Print the lines."""
    for path in sorted(PACKAGE.glob("dialects/*/manifest.py")):
        manifest = read_manifest(str(path.parent))
        if "LIBRARIES" in manifest:
            print(path.parent.name, *manifest["LIBRARIES"])


main()
