"""Write the pages of every dialect into the checkout."""

from __future__ import annotations

from pathlib import Path

import peerlane.dialects.acl
import peerlane.dialects.hcomm  # noqa: F401 - they declare the calls
from peerlane.dialects.acl._state import acl as acl_calls
from peerlane.dialects.hcomm._state import hcomm as hcomm_calls
from peerlane.dialects.hip._state import calls as hip_calls
from reference_pages import hcomm, hip, nixl, tables

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "reference"


def main() -> None:
    """Write all."""
    pages = {name: (PAGES / f"{name}.md").read_text() for name in ("acl", "hip", "hcomm", "nixl")}
    (PAGES / "acl.md").write_text(tables.page(pages["acl"], acl_calls))
    (PAGES / "hip.md").write_text(hip.refused(tables.page(pages["hip"], hip_calls)))
    (PAGES / "hcomm.md").write_text(hcomm.refused(tables.page(pages["hcomm"], hcomm_calls)))
    (PAGES / "nixl.md").write_text(nixl.page(pages["nixl"]))


if __name__ == "__main__":
    main()
