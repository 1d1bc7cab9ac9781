"""Runs drawn programs on the vendor's wheel and on the dialect, and says where they differ.

``python -m nixl_differential VENDOR COUNT``: VENDOR is an interpreter that has the wheel.  Programs in which
transfers use deregistered memory run under the vendor's policy, as do those with wrong modes of paths; the others,
also with files, run under both.
On a busy machine notifications of the vendor come late, so a program that differs runs again in a process of its own.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from helpers import differential

DRAWN = Path(__file__).with_name("drawn.py")


def _outcomes(command: list[str], first: int, count: int, use: str, policy: str) -> differential.Outcomes:
    return differential.outcomes(command, DRAWN, first, count, [use], {"PEERLANE_NIXL_POLICY": policy})


def compare(vendor: str, count: int) -> int:
    """Print one line for each difference, and a summary; return how many programs differ."""
    ours = [sys.executable, "-m", "peerlane", "run", "--dialect", "nixl"]
    differing = 0
    for use, policies, first in (
        ("deregistered", ["vendor"], 0),
        ("kept", ["vendor", "strict"], 1_000_000),
        ("files", ["vendor", "strict"], 2_000_000),
        ("modes", ["vendor"], 3_000_000),
    ):
        theirs = _outcomes([vendor], first, count, use, "vendor")
        for policy in policies:
            mine = _outcomes(ours, first, count, use, policy)
            what = f", memory {use}, policy {policy}"
            again = partial(_outcomes, [vendor], count=1, use=use, policy="vendor")
            varying = differential.repeat_differing(theirs, mine, again)
            differing += differential.compare(theirs, mine, count, what, varying)
    return differing


if __name__ == "__main__":
    sys.exit(min(compare(sys.argv[1], int(sys.argv[2])), 1))
