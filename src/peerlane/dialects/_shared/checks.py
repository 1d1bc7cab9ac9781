"""Checks of arguments that many calls of a vendor declare, or make in their bodies: written once, for every dialect.

A dialect binds its codes to them, and declares them in its vendor's order::

    null = functools.partial(checks.null, Code.INVALID_PARAM)

    @acl.call("acl.rt.free", checks=[null("dev_ptr")])

or in the annotation of a parameter: ``Annotated[int, null()]``.  A body that must check something else first calls
the check itself: ``null("dev_ptr")(dev_ptr)``.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
from typing import Any

from peerlane.dialects._shared.call import Check, Refusal


def check(refuse: Callable[..., Any], *how: object, names: tuple[str, ...] = ()) -> Check:
    """Return the check that calls ``refuse(*how, name, value)``, which returns the value that the body gets."""
    return Check(lambda name: partial(refuse, *how, name), names)


def refuse_zero(code: int, cause: str, remedy: str, name: str, value: Any) -> Any:
    """Refuse 0 and None; ``{name}`` in the texts is the argument's."""
    if not value:
        raise Refusal(code, cause.format(name=name), remedy.format(name=name))
    return value


def null(code: int, *names: str, cause: str = "{name} is NULL (0)", remedy: str = "pass an address") -> Check:
    """Refuse NULL pointers."""
    return check(refuse_zero, code, cause, remedy, names=names)


def zero(code: int, *names: str, cause: str = "{name} is 0", remedy: str = "pass at least 1 byte") -> Check:
    """Refuse sizes of 0."""
    return check(refuse_zero, code, cause, remedy, names=names)


def reserved(code: int, *names: str, remedy: str = "pass 0") -> Check:
    """Refuse anything but 0."""
    return check(_refuse_nonzero, code, remedy, names=names)


def _refuse_nonzero(code: int, remedy: str, name: str, value: int) -> int:
    if value:
        raise Refusal(code, f"{name} is {value:#x}; it is reserved", remedy)
    return value


def within(code: int, least: int, most: int, remedy: str) -> Check:
    """Refuse numbers below the least and above the most."""
    return check(_refuse_beyond, code, least, most, remedy)


def _refuse_beyond(code: int, least: int, most: int, remedy: str, name: str, value: int) -> int:
    if not least <= value <= most:
        raise Refusal(code, f"{name} is {value:,}; valid are {least:,} to {most:,}", remedy)
    return value


def one_of(
    code: int,
    valid: Container[object],
    remedy: str,
    *,
    names: tuple[str, ...] = (),
    shown: Callable[[Any], str] = str,
) -> Check:
    """Refuse a value that is not among the valid ones; ``shown`` returns its text for the message."""
    return check(_refuse_other, code, valid, remedy, shown, names=names)


def _refuse_other(
    code: int, valid: Container[object], remedy: str, shown: Callable[[Any], str], name: str, value: Any
) -> Any:
    if value not in valid:
        raise Refusal(code, f"{name} is {shown(value)}", remedy)
    return value
