"""Whether the kind of a copy on a stream may contradict the addresses: ``PEERLANE_ACL_POLICY`` (facts/acl 4.2)."""

from __future__ import annotations

from peerlane.dialects._shared import policy

VARIABLE = "PEERLANE_ACL_POLICY"
_CHOICES = ("kinds=checked", "kinds=corrected")
CORRECTED = f"{VARIABLE}={_CHOICES[1]}"


def corrects_kinds() -> bool:
    """Tell whether the addresses decide: only with ``PEERLANE_ACL_POLICY=kinds=corrected``."""
    return policy.chosen(VARIABLE, _CHOICES) == _CHOICES[1]
