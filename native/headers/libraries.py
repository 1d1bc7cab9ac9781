"""Prints a line for each header of the dialects: the dialect, the header, and the libraries that it declares."""

from __future__ import annotations

from sources import PACKAGE, use_sources

use_sources()

from peerlane.dialects._shared.hook import read_manifest  # noqa: E402


def main() -> None:
    """Print the lines."""
    for path in sorted(PACKAGE.glob("dialects/*/manifest.py")):
        libraries = read_manifest(str(path.parent)).get("LIBRARIES", {})
        for header in dict.fromkeys(libraries.values()):
            print(path.parent.name, header, *(name for name, of in libraries.items() if of == header))


main()
