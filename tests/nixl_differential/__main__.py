"""Runs drawn programs on the vendor's wheel and on the dialect, and says where they differ.

``python -m nixl_differential VENDOR COUNT``: VENDOR is an interpreter that has the wheel.  Programs in which
transfers use deregistered memory run under the vendor's policy; the others run under both.  So do those with files.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

DRAWN = Path(__file__).with_name("drawn.py")
AT_ONCE = 20
SECONDS = 60.0

Outcomes = dict[int, list[str]]


def outcomes(command: list[str], first: int, count: int, use: str, policy: str) -> Outcomes:
    """Run programs, and go on behind one in which the process is killed or hangs; return what they printed."""
    found: Outcomes = {}
    at = first
    while at < first + count:
        some = min(AT_ONCE, first + count - at)
        try:
            done = subprocess.run(
                [*command, str(DRAWN), str(at), str(some), use],
                env={**os.environ, "PEERLANE_NIXL_POLICY": policy},
                capture_output=True,
                text=True,
                timeout=SECONDS + 3 * some,
                check=False,
            )
            printed = done.stdout
        except subprocess.TimeoutExpired as error:
            printed = (error.stdout or b"").decode()
        lines = [line[8:] for line in printed.splitlines() if line.startswith("program ")]
        found.update(dict(map(json.loads, lines)))
        at += len(lines) if len(lines) == some else len(lines) + 1
    return found


def compare(vendor: str, count: int) -> int:
    """Print one line for each difference, and a summary; return how many programs differ."""
    ours = [sys.executable, "-m", "peerlane", "run", "--dialect", "nixl"]
    differing = 0
    for use, policies, first in (
        ("deregistered", ["vendor"], 0),
        ("kept", ["vendor", "strict"], 1_000_000),
        ("files", ["vendor", "strict"], 2_000_000),
    ):
        theirs = outcomes([vendor], first, count, use, "vendor")
        for policy in policies:
            mine = outcomes(ours, first, count, use, policy)
            calls = 0
            for seed, told in theirs.items():
                same = mine.get(seed, [])
                calls += len(told) - 2
                if told != same:
                    differing += 1
                    pairs = zip(told, [*same, *["nothing"] * len(told)], strict=False)
                    at, (one, other) = next((at, pair) for at, pair in enumerate(pairs) if pair[0] != pair[1])
                    print(f"program {seed}, call {at}:\n  vendor: {one}\n  ours:   {other}")
            print(
                f"{datetime.date.today()}: {len(theirs)} programs, {calls:,} calls, memory {use}, policy {policy}: "
                f"{sum(theirs[seed] != mine.get(seed) for seed in theirs)} differ; "
                f"{count - len(theirs)} programs crashed or hung the vendor's agents",
                flush=True,
            )
    return differing


if __name__ == "__main__":
    sys.exit(min(compare(sys.argv[1], int(sys.argv[2])), 1))
