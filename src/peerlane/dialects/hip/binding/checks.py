"""Checks of HIP's calls, declared in annotations: ``hipMemMap(ptr: NotZero, ..., flags: Reserved)``.

All of them refuse with hipErrorInvalidValue.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from peerlane.dialects._shared import checks
from peerlane.dialects._shared.call import Check
from peerlane.dialects.hip.binding.convention import INVALID_VALUE, invalid

_NULL = (INVALID_VALUE, "{name} is NULL", "pass memory")
_ZERO = (INVALID_VALUE, "{name} is 0 or NULL", "pass a {name}")
_NONE = (INVALID_VALUE, "{name} is 0", "ask for at least one")

refuse_null = partial(checks.refuse_zero, *_NULL)
refuse_zero = partial(checks.refuse_zero, *_ZERO)
refuse_none = partial(checks.refuse_zero, *_NONE)


def refuse_bits(valid: int, name: str, value: int) -> int:
    """Refuse flags that have other bits than the valid ones."""
    if value & ~valid:
        raise invalid(f"{name} are {value:#x}; valid are the bits of {valid:#x}", "pass 0")
    return value


def refuse_no_struct(kind: str, name: str, struct: Any) -> Any:
    """Refuse NULL where a struct is needed."""
    if struct is None:
        raise invalid(f"{name} is NULL", f"pass a {kind}")
    return struct


def flags(valid: int) -> Check:
    """Return the check that flags have valid bits only."""
    return checks.check(refuse_bits, valid)


def required(kind: str) -> Check:
    """Return the check that a struct of a kind is not NULL."""
    return checks.check(refuse_no_struct, kind)


NotNull = Annotated[int, checks.check(checks.refuse_zero, *_NULL)]
NotNone = Annotated[int, checks.check(checks.refuse_zero, *_NONE)]
NotZero = Annotated[int, checks.check(checks.refuse_zero, *_ZERO)]
Reserved = Annotated[int, checks.reserved(INVALID_VALUE)]
NoFlags = Annotated[int, flags(0)]
