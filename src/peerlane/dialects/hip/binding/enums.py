"""Enumerations of hip-python, each created at its first use."""

from __future__ import annotations

import enum
import threading
from functools import cache
from typing import Any

from peerlane.dialects.hip.binding import facts, real_name

#: Where programs find the classes, so that members pickle.
SERVED_IN = "peerlane.dialects.hip.hip"

_lock = threading.Lock()


def enumeration(name: str, *, older: bool = False) -> type[enum.IntEnum]:
    """Return the class of an enumeration; the same object at each call.

    It derives from a private class of its own, ``_NAME__Base``, by which arguments are recognised.  Names of equal
    value are found through ``__members__`` and as attributes; the first is the member.

    ``name``: also an alias (``hipMemHandleType_t``).
    ``older``: as hip-python 7.2 has it; only ``hipError_t`` differs.
    Raises KeyError: there is none of the name.
    """
    with _lock:
        real = real_name(name)
        return _class_of(real, older and real == "hipError_t")


def base_of(kind: type[enum.IntEnum]) -> type[enum.IntEnum]:
    """Return the private class of which an enumeration's members are instances."""
    base = kind.__mro__[1]
    assert issubclass(base, enum.IntEnum)
    return base


def is_enumeration(name: str) -> bool:
    """Tell whether a name is an enumeration's, or an alias of one."""
    return real_name(name) in facts()["enums"]


@cache
def _class_of(name: str, older: bool) -> type[enum.IntEnum]:
    described = facts()["enums"][name]
    members: dict[str, int] = described["members"]
    if older:
        changed: dict[str, int] = facts()["older"]["errors"]
        gone = set(facts()["older"]["missing errors"])
        members = {each: value for each, value in (members | changed).items() if each not in gone}
    make: Any = enum.IntEnum  # the functional form, with a name that no checker can follow
    kind: type[enum.IntEnum] = make(described["bases"][0], {}, module=SERVED_IN)(
        name, members, module=SERVED_IN
    )
    return kind
