"""A line of ``peerlane doctor``'s report."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from peerlane.support.sizes import UNITS, format_size

FINE, ABSENT, LIMITED, MISSING = "fine", "absent", "limited", "missing"


@dataclass(frozen=True)
class Finding:
    """The state of one part of the machine."""

    what: str  #: the part
    found: str  #: what is there; the name is the report's JSON field
    #: ``"fine"``; ``"absent"``: it is optional; ``"limited"``: something does not work; ``"missing"``: peerlane needs
    #: it.
    state: str = FINE
    lost: str = ""  #: what does not work because of it; empty if all does
    remedy: str = ""  #: what to do; empty if there is nothing to do

    def as_json(self) -> dict[str, str]:
        """Return the fields by name."""
        return dataclasses.asdict(self)


def about(nbytes: int) -> str:
    """Return a size in words, rounded to a tenth of a unit."""
    unit = next((unit for unit, size in reversed(UNITS.items()) if nbytes >= size), "B")
    exact = format_size(nbytes)
    return exact if exact.endswith(f" {unit}") else f"{nbytes / UNITS[unit]:.1f} {unit}"
