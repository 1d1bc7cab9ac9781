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
#: Wait until a descriptor can be read, in turns: ``await_readable(fd, seconds)``; False if that took longer.
await_readable = _core.wait_in_turns
#: Wait for the next turn, before the program goes on.
regain = _core.regain_turn


@contextlib.contextmanager
def inside() -> Iterator[None]:
    """Keep the turn while another process answers, although the thread sleeps."""
    _core.go_inside()
    try:
        yield
    finally:
        _core.come_out()


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """Do something that is not a step of the program."""
    _core.suspend_turns()
    try:
        yield
    finally:
        _core.resume_turns()


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Keep the turn in calls that are made with a lock, which the rank that is next may want."""
    with inside(), suspended():
        yield
