"""The variables by which launchers tell a rank its place."""

from __future__ import annotations

import os

from peerlane.rendezvous.launchers import LAUNCHERS

LAUNCHER_VARIABLES = frozenset(
    name
    for of in LAUNCHERS
    for name in (of.rank, of.size, of.local_size, of.local_rank, of.machines, *of.job)
) - {""} | {"PEERLANE_RENDEZVOUS", "PEERLANE_PORT", "PEERLANE_SECRET", "PEERLANE_MACHINE"}


def without_launcher() -> dict[str, str]:
    """Return this process's environment without them."""
    return {name: value for name, value in os.environ.items() if name not in LAUNCHER_VARIABLES}
