"""Checks of single arguments, with the codes of the vendor: its upper layer checks first, then the runtime."""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
from typing import Any

from peerlane.dialects._shared import checks
from peerlane.dialects._shared.call import Check
from peerlane.dialects.acl._codes import Code

null = partial(checks.null, Code.INVALID_PARAM)
zero = partial(checks.zero, Code.INVALID_PARAM)
reserved = partial(checks.reserved, Code.INVALID_PARAM)
reserved_below = partial(checks.reserved, Code.RT_PARAM_INVALID)  # the runtime checks it


def one_of(
    name: str,
    valid: Container[object],
    remedy: str,
    *,
    code: Code = Code.RT_PARAM_INVALID,
    shown: Callable[[Any], str] = str,
) -> Check:
    """Refuse a value that is not valid, with the runtime's code unless ``code`` is another."""
    return checks.one_of(code, valid, remedy, names=(name,), shown=shown)
