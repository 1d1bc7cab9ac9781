"""Whether mistakes that the vendor lets pass are refused: ``PEERLANE_NIXL_POLICY`` (facts/nixl 9)."""

from __future__ import annotations

from peerlane.dialects._shared import policy

VARIABLE = "PEERLANE_NIXL_POLICY"
REFUSED = f"the vendor lets this pass; {VARIABLE}=vendor does too"

_CHOICES = ("strict", "vendor")


def is_strict() -> bool:
    """Return whether mistakes are refused that the vendor lets pass: unless ``PEERLANE_NIXL_POLICY=vendor``."""
    return policy.chosen(VARIABLE, _CHOICES) == _CHOICES[0]
