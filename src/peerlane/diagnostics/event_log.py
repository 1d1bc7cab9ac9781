"""The event log of this process: what it does to device memory, for the checker, traces and observers."""

from __future__ import annotations

from collections.abc import Sequence

active = False  #: whether a log is written

READ, WRITTEN, UNKNOWN = range(3)  #: how the host touches bytes

told: list[tuple[int, tuple[tuple[int, int, int, int], ...]]] = []


def host_access(access: int, address: int, width: int, pitch: int = 0, height: int = 1) -> None:
    """Log an access of the host that comes now: ``height`` rows of ``width`` bytes, ``pitch`` apart."""
    told.append((access, ((address, width, pitch, height),)))


def host_rows(access: int, rows: Sequence[tuple[int, int, int, int]]) -> None:
    """Log an access of the host to several such places as one event."""
    told.append((access, tuple(rows)))
