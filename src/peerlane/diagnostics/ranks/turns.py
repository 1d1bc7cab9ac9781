"""Turns of ranks under the schedule ``seeded``, for waits outside of streams.

For threads that are no rank, and under other schedules, these functions do nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from peerlane import _core

#: Whether the calling thread is a rank that takes turns.
is_participant = _core.is_turns_participant
#: Let another rank go first.
point = _core.turn_point
#: ``await_readable(fd, seconds)`` waits, in turns, until a descriptor can be read; False if that takes longer.
await_readable = _core.wait_in_turns
#: Wait for the next turn, before the program goes on.
regain = _core.regain_turn


@contextlib.contextmanager
def inside() -> Iterator[None]:
    """Keep the turn although the thread sleeps, while another process answers."""
    _core.go_inside()
    try:
        yield
    finally:
        _core.come_out()


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """Take no turns in the block: it is not a step of the program."""
    _core.suspend_turns()
    try:
        yield
    finally:
        _core.resume_turns()


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Keep the turn in calls under a lock: the next rank could want the lock, and then neither would go on."""
    with inside(), suspended():
        yield
