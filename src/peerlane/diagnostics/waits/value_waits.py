"""Reports streams that have waited for some seconds until a word of memory has a value.

Another thread or process may still write the word, so such a wait is not an error.
"""

from __future__ import annotations

import sys
import time
from types import CodeType
from typing import NamedTuple

from peerlane import _core
from peerlane.diagnostics import call_site
from peerlane.diagnostics.memory import addresses

SECONDS = 5.0


class ValueWait(NamedTuple):
    """The wait of a stream for a word of memory, without a time-out.

    ``comparison`` is "at least", "equal to", "any bit of", "not all of", or "as far as" of a counter that may wrap.
    """

    stream: int
    operation: int
    address: int
    size: int
    value: int
    comparison: str
    wanted: int
    mask: int
    position: tuple[CodeType, int] | None

    def __str__(self) -> str:
        full = (1 << 8 * self.size) - 1
        number = hex if self.comparison in ("any bit of", "not all of") else str
        masked = f" under the mask {self.mask:#x}" if self.mask & full != full else ""
        at = call_site.at(self.position)
        submitted = f", submitted at {at}," if at else ""
        return (
            f"operation {self.operation} of stream {self.stream}{submitted} waits for the word of {self.size} "
            f"bytes at {addresses.look(self.address)} to be {self.comparison} {number(self.wanted)}{masked}; "
            f"it is {number(self.value)}"
        )


_begun: dict[tuple[int, int], float] = {}  # when a wait was first seen
_reported: set[tuple[int, int]] = set()


def report() -> None:
    """Print the waits that have lasted for :data:`SECONDS`; each once."""
    waits = {each[:2]: each for each in map(ValueWait._make, _core.awaited_words())}
    for over in _begun.keys() - waits.keys():
        del _begun[over]
        _reported.discard(over)
    now = time.monotonic()
    for key, wait in waits.items():
        if now - _begun.setdefault(key, now) < SECONDS or key in _reported:
            continue
        _reported.add(key)
        if sys.stderr is not None:
            print(f"peerlane: after {SECONDS:g} s {wait}", file=sys.stderr, flush=True)
