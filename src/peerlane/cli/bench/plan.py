"""The checked arguments of ``peerlane bench``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from peerlane.errors import InvalidValue
from peerlane.support.sizes import UNITS, parse_size

MOST_ROUNDS = 1000
MOST_BYTES = 256 * UNITS["GiB"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure and how often; ``show`` is called with the progress.

    Without ``sizes`` each subject uses its default sizes.
    """

    sizes: tuple[int, ...]
    rounds: int
    show: Callable[[str], None]

    def sized(self, default: tuple[int, ...]) -> Plan:
        """Return the plan, with ``default`` as its sizes if it has none."""
        return self if self.sizes else dataclasses.replace(self, sizes=default)


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return the sizes that ``--sizes`` names, such as ``64K,1M,1GiB``, each once and in order.

    Raises
    ------
    InvalidValue
        A word is not a size, or the size is too small or too large.
    """
    sizes = set()
    for item in text.split(","):
        word = item.strip()
        size = parse_size(word) or parse_size(f"{word}iB")
        if size is None or not 1 <= size <= MOST_BYTES:
            raise InvalidValue(
                f"--sizes: {word!r} is not a size of 1 byte to 256 GiB; valid are numbers and a unit such as 512, "
                "64K, 1M, 1GiB, joined by commas"
            )
        sizes.add(size)
    return tuple(sorted(sizes))


def checked_rounds(rounds: int) -> int:
    """Return ``rounds`` if the number is valid."""
    if not 1 <= rounds <= MOST_ROUNDS:
        raise InvalidValue(f"--rounds is {rounds}; valid are 1 to {MOST_ROUNDS}, and 7 or more for a result")
    return rounds
