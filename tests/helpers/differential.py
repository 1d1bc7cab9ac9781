"""Drawn programs on a vendor's wheel and on a dialect: what each call gave, and where both differ."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

AT_ONCE = 20
SECONDS, MOST_SECONDS = 60.0, 15.0  # of a start, and of a program
ALONE = 20  # runs of a program that differs

Outcomes = dict[int, list[str]]


def outcomes(
    command: list[str], drawn: Path, first: int, count: int, words: list[str], env: Mapping[str, str]
) -> Outcomes:
    """Run programs, and go on behind one in which the process is killed or hangs; return what they printed."""
    printed: Outcomes = {}
    at = first
    while at < first + count:
        some = min(AT_ONCE, first + count - at)
        try:
            done = subprocess.run(
                [*command, str(drawn), str(at), str(some), *words],
                env={**os.environ, **env},
                capture_output=True,
                text=True,
                timeout=SECONDS + MOST_SECONDS * some,
                check=False,
            )
            output = done.stdout
        except subprocess.TimeoutExpired as error:
            output = (error.stdout or b"").decode()
        lines = [line[8:] for line in output.splitlines() if line.startswith("program ")]
        printed.update(dict(map(json.loads, lines)))
        at += len(lines) if len(lines) == some else len(lines) + 1
    return printed


def repeat_differing(theirs: Outcomes, ours: Outcomes, again: Callable[[int], Outcomes]) -> set[int]:
    """Run the vendor's programs that differ again, each in a process of its own, in which nothing disturbs them.

    The vendor's outcome of a program may vary.  Then each of its outcomes counts, and one that is ours ends the
    repetition.  Returns the programs with several outcomes of the vendor, alone in a process.
    """
    varying = set()
    for seed in [each for each in theirs if theirs[each] != ours.get(each)]:
        alone: list[list[str]] = []
        while len(alone) < ALONE and ours.get(seed) not in alone:
            alone.append(again(seed).get(seed, []))
        theirs[seed] = alone[-1]
        if any(each != alone[0] for each in alone):
            varying.add(seed)
    return varying


def compare(theirs: Outcomes, ours: Outcomes, count: int, what: str, varying: Collection[int]) -> int:
    """Print one line for each difference, and a summary; return how many of the vendor's programs differ.

    ``varying``: the programs of which the vendor had several outcomes.
    """
    calls = differing = 0
    for seed, vendor in theirs.items():
        same = ours.get(seed, [])
        calls += len(vendor) - 2
        if vendor != same:
            differing += 1
            pairs = zip(vendor, [*same, *["nothing"] * len(vendor)], strict=False)
            at, (one, other) = next((at, pair) for at, pair in enumerate(pairs) if pair[0] != pair[1])
            print(f"program {seed}, call {at}:\n  vendor: {one}\n  ours:   {other}")
    print(
        f"{datetime.date.today()}: {len(theirs)} programs, {calls:,} calls{what}: {differing} differ; "
        f"{len(varying)} had several outcomes of the vendor's; "
        f"{count - len(theirs)} programs crashed or hung the vendor's",
        flush=True,
    )
    return differing
