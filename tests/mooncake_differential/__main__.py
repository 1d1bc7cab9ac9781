"""Runs drawn programs on the vendor's wheel and on the dialect, and says where they differ.

``python -m mooncake_differential VENDOR COUNT``: VENDOR is an interpreter that has the wheel.
"""

from __future__ import annotations

import sys
from pathlib import Path

from helpers.differential import compare, outcomes

DRAWN = Path(__file__).with_name("drawn.py")
OURS = [sys.executable, "-m", "peerlane", "run", "--dialect", "mooncake"]


if __name__ == "__main__":
    count = int(sys.argv[2])
    theirs, ours = (outcomes(each, DRAWN, 0, count, [], {}) for each in ([sys.argv[1]], OURS))
    sys.exit(min(compare(theirs, ours, count, ""), 1))
