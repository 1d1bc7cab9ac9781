"""Checks that many calls of a vendor declare, or make in their bodies: each is written once, for every dialect.

A dialect gives them its codes, and declares them in its vendor's order::

    null = functools.partial(checks.null, Code.INVALID_PARAM)

    @acl.call("acl.rt.free", checks=[null("dev_ptr")])

A body that has to look at something else before makes the check itself: ``null("dev_ptr")(dev_ptr)``.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from peerlane.dialects._shared.call import Check, Refusal


def null(code: int, *names: str, remedy: str = "pass an address") -> Check:
    """Refuse NULL pointers."""
    return Check(names, _is_zero, lambda name, _: Refusal(code, f"{name} is NULL (0)", remedy))


def zero(code: int, *names: str, remedy: str = "pass at least 1 byte") -> Check:
    """Refuse sizes of 0."""
    return Check(names, _is_zero, lambda name, _: Refusal(code, f"{name} is 0", remedy))


def reserved(code: int, *names: str, remedy: str = "pass 0") -> Check:
    """Refuse anything but 0."""
    return Check(
        names, bool, lambda name, value: Refusal(code, f"{name} is {value:#x}; it is reserved", remedy)
    )


def one_of(
    code: int, name: str, valid: Container[object], remedy: str, *, shown: Callable[[Any], str] = str
) -> Check:
    """Refuse a value that is none of those; ``shown`` makes words of it."""
    return Check(
        (name,),
        lambda value: value not in valid,
        lambda name, value: Refusal(code, f"{name} is {shown(value)}", remedy),
    )


def _is_zero(value: object) -> bool:
    return not value
