"""Enumerations and constants of HCOMM, which the vendor's header has (facts/hcomm 1.5, 2.6, 2.7)."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from peerlane.dialects._shared.header import table

_make: Any = enum.IntEnum  # the functional form, with members that no checker can follow

ENUMS: tuple[type[enum.IntEnum], ...] = tuple(
    _make(name, members, module=__name__) for name, members in table("hcomm")["enums"].items()
)
CONSTANTS: dict[str, int] = table("hcomm")["constants"]

globals().update({kind.__name__: kind for kind in ENUMS})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
