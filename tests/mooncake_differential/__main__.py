"""Runs drawn programs on the vendor's wheel and on the dialect, and says where they differ.

``python -m mooncake_differential VENDOR COUNT``: VENDOR is an interpreter that has the wheel.  Failures of a program
disturb the vendor's next ones (facts/mooncake 4), so one that differs runs again in a process of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

from helpers.differential import Outcomes, compare, outcomes, repeat_differing

DRAWN = Path(__file__).with_name("drawn.py")
OURS = [sys.executable, "-m", "peerlane", "run", "--dialect", "mooncake"]


def run(command: list[str], first: int, count: int) -> Outcomes:
    """Return the outcomes of programs."""
    return outcomes(command, DRAWN, first, count, [], {})


def main(vendor: str, count: int) -> int:
    """Compare so many programs; return how many differ."""
    theirs, ours = run([vendor], 0, count), run(OURS, 0, count)
    varying = repeat_differing(theirs, ours, lambda seed: run([vendor], seed, 1))
    return compare(theirs, ours, count, "", varying)


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1], int(sys.argv[2])), 1))
