"""The rules of ``PEERLANE_ACL_POLICY``, for which versions or programs differ."""

from __future__ import annotations

from peerlane.dialects._shared.environment import rule

VARIABLE = "PEERLANE_ACL_POLICY"
CORRECTED, NODE = "kinds=corrected", "peers=node"
_RULES = ("kinds=checked", CORRECTED, "peers=sharing", NODE)


def corrects_kinds() -> bool:
    """Return whether the addresses decide where the kind of a copy on a stream contradicts them (facts/acl 4.2)."""
    return rule(VARIABLE, "kinds", _RULES) == CORRECTED


def counts_all_peers() -> bool:
    """Return whether peer access counts that any process of the node enabled, as in the driver (facts/acl 4.3)."""
    return rule(VARIABLE, "peers", _RULES) == NODE
