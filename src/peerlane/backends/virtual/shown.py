"""The public names of the classes of virtual devices."""

from __future__ import annotations


def show_as(neutral: type, *kinds: type) -> None:
    """Give classes the name of the neutral class that they implement, which is the one that programs know."""
    for kind in kinds:
        kind.__name__, kind.__qualname__ = neutral.__name__, neutral.__qualname__
