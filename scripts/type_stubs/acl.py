"""pyACL, of its table of calls."""

from __future__ import annotations

from collections.abc import Mapping

from peerlane.dialects.acl._elsewhere import MODULES
from peerlane.dialects.acl._state import acl
from type_stubs import calls


def stubs() -> Mapping[str, str]:
    """Return the text of each stub by its path."""
    return {
        f"acl-stubs/{module.partition('.')[2] or '__init__'}.pyi": text
        for module, text in calls.stubs(acl, MODULES).items()
        if module  # the calls that C alone has are in none
    }
