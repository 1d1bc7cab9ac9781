"""The line that a program shows when ranks that it has to meet do not come for some seconds."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Collection
from pathlib import Path

SECONDS = 5.0


class LateRanks:
    """Shows on standard error, once, which ranks have not come.

    A launcher has started all ranks, and shows which of them end: this is for ranks that were started by hand.
    """

    def __init__(self, call: str, rank: int, size: int) -> None:
        self._call, self._rank, self._size = call, rank, size
        #: When the line is due, by ``time.monotonic``.
        self.due = time.monotonic() + SECONDS
        self._is_shown = False

    def look(self, ranks: Collection[int]) -> None:
        """Show the line if it is due; ``ranks`` have not come."""
        if self._is_shown or time.monotonic() < self.due or not ranks:
            return
        self._is_shown = True
        if sys.stderr is None:
            return
        first = sys.argv[0] if sys.argv else ""
        program = shlex.quote(first) if Path(first).is_file() else "program.py"
        print(
            f"{self._call}: rank {self._rank} of {self._size} has waited {SECONDS:g} s for {named(ranks)}; each rank "
            f"is a process: start the others too, or write pl.{self._call}() without rank and size, and type "
            f"`peerlane launch -n {self._size} {program}`",
            file=sys.stderr,
            flush=True,
        )


def named(ranks: Collection[int]) -> str:
    """Return the words for some ranks; of many ranks the first."""
    shown = sorted(ranks)
    more = f" and {len(shown) - 8} more" if len(shown) > 8 else ""
    return f"rank{'s' if len(shown) > 1 else ''} {', '.join(map(str, shown[:8]))}{more}"
