"""How late a test lets come what the package promises within a time."""

from __future__ import annotations

#: Seconds that no test asserts less than: a loaded machine may keep a process, or one of its threads, from running.
LOADED_SECONDS = 10.0


def overdue(promised: float) -> float:
    """Return after how many seconds a promise is broken, also on a loaded machine."""
    return max(5 * promised, LOADED_SECONDS)
