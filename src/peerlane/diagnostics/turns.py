"""The turns of ranks under ``seeded``: what a wait outside of streams does with its thread's turn.

Other threads than the ranks' own, and all threads under other schedules, go on at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from peerlane import _core

#: Whether the calling thread is a rank that takes turns.
are_taken = _core.takes_turns
#: Let another rank go first.
point = _core.turn_point
#: Let others go first, as this rank has nothing to do.
blocked = _core.turn_blocked


@contextlib.contextmanager
def outside() -> Iterator[None]:
    """Give the turn away for a wait that all ranks end together; turns begin again when all have come back."""
    _core.go_outside()
    try:
        yield
    finally:
        _core.come_back()


@contextlib.contextmanager
def inside() -> Iterator[None]:
    """Keep the turn while another process answers, although the thread sleeps."""
    _core.go_inside()
    try:
        yield
    finally:
        _core.come_out()
