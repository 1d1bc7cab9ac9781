"""What calls ask of their arguments, declared in annotations: ``def hipMemMap(ptr: NotZero, ..., flags: Reserved)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from peerlane.dialects.hip._convention import Check, invalid


def check(refuse: Callable[[str, Any], None]) -> Check:
    """Return the check that ``refuse(name, value)`` makes; the body gets the value as it is."""

    def of(name: str) -> Callable[[Any], Any]:
        def checked(value: Any) -> Any:
            refuse(name, value)
            return value

        return checked

    return Check(of)


def refuse_null(name: str, pointer: int) -> None:
    """Refuse NULL: hipErrorInvalidValue."""
    if not pointer:
        raise invalid(f"{name} is NULL", "pass memory")


def refuse_zero(name: str, value: int) -> None:
    """Refuse a NULL pointer or a size of 0: hipErrorInvalidValue."""
    if not value:
        raise invalid(f"{name} is 0 or NULL", f"pass a {name}")


def refuse_given(name: str, value: int) -> None:
    """Refuse what is reserved and not 0: hipErrorInvalidValue."""
    if value:
        raise invalid(f"{name} is {value:#x}; it is reserved", "pass 0")


def flags(valid: int) -> Check:
    """Return the check of flags, of which these bits are valid: hipErrorInvalidValue."""

    def refuse(name: str, given: int) -> None:
        if given & ~valid:
            raise invalid(f"{name} are {given:#x}; valid are the bits of {valid:#x}", "pass 0")

    return check(refuse)


def given(kind: str) -> Check:
    """Return the check of a struct of a kind, which must not be NULL: hipErrorInvalidValue."""

    def refuse(name: str, struct: object) -> None:
        if struct is None:
            raise invalid(f"{name} is NULL", f"pass a {kind}")

    return check(refuse)


NotNull = Annotated[int, check(refuse_null)]
NotZero = Annotated[int, check(refuse_zero)]
Reserved = Annotated[int, check(refuse_given)]
NoFlags = Annotated[int, flags(0)]
