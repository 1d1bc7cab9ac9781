"""What the classes of virtual devices are called where programs and texts see them."""

from __future__ import annotations


def show_as(neutral: type, *kinds: type) -> None:
    """Give classes the name of the neutral one that they implement: programs know only that."""
    for kind in kinds:
        kind.__name__, kind.__qualname__ = neutral.__name__, neutral.__qualname__
