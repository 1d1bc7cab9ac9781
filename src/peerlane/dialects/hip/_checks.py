"""What calls ask of their arguments, declared in annotations: ``hipMemMap(ptr: NotZero, ..., flags: Reserved)``.

Each function takes the argument's name first and its value last; it returns the value, or refuses with
hipErrorInvalidValue.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from peerlane.dialects.hip._convention import Check, invalid


def check(refuse: Callable[..., Any], *how: object) -> Check:
    """Return the check that ``refuse(name, *how, value)`` makes."""
    return Check(lambda name: partial(refuse, name, *how))


def refuse_null(name: str, pointer: int) -> int:
    """Refuse NULL."""
    if not pointer:
        raise invalid(f"{name} is NULL", "pass memory")
    return pointer


def refuse_zero(name: str, value: int) -> int:
    """Refuse a NULL pointer or a size of 0."""
    if not value:
        raise invalid(f"{name} is 0 or NULL", f"pass a {name}")
    return value


def refuse_none(name: str, count: int) -> int:
    """Refuse a count of nothing."""
    if not count:
        raise invalid(f"{name} is 0", "ask for at least one")
    return count


def refuse_given(name: str, value: int) -> int:
    """Refuse what is reserved and not 0."""
    if value:
        raise invalid(f"{name} is {value:#x}; it is reserved", "pass 0")
    return value


def refuse_bits(name: str, valid: int, given: int) -> int:
    """Refuse flags that have other bits than the valid ones."""
    if given & ~valid:
        raise invalid(f"{name} are {given:#x}; valid are the bits of {valid:#x}", "pass 0")
    return given


def refuse_no_struct(name: str, kind: str, struct: Any) -> Any:
    """Refuse NULL in the place of a struct."""
    if struct is None:
        raise invalid(f"{name} is NULL", f"pass a {kind}")
    return struct


def flags(valid: int) -> Check:
    """Return the check of flags, of which these bits are valid."""
    return check(refuse_bits, valid)


def given(kind: str) -> Check:
    """Return the check of a struct of a kind, which must not be NULL."""
    return check(refuse_no_struct, kind)


NotNull = Annotated[int, check(refuse_null)]
NotNone = Annotated[int, check(refuse_none)]
NotZero = Annotated[int, check(refuse_zero)]
Reserved = Annotated[int, check(refuse_given)]
NoFlags = Annotated[int, flags(0)]
